"""Plans what this host starts, and why, from the job, the roster and this host's devices. It does no I/O."""
