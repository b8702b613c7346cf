"""Host names in, a roster and an open channel out: who is here, at which address, before one deadline."""
