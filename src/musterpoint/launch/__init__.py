"""Pure planning: a job, a roster and this host's devices in; what to start here, and why, out."""
