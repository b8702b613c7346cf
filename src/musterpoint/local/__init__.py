"""The control plane on one machine: makes N hosts, runs the job on them, collects the results."""
