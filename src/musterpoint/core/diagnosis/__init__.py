"""Makes one failure of how a process ended and what it printed last. No I/O; never raises."""
