"""The user's code on this host, and the argv that starts it."""
