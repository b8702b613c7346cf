"""The parts of scripts/gpu: what can be tried only where a GPU is, in the order of worth."""
