"""How a process ended and what it printed last, in; one failure out. Pure, and never raises."""
