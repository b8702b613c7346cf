"""What ``muster plan`` and ``muster env`` show: every host's plan, made without the network, as a page or as JSON."""
