"""What doesn't depend on a framework; sagemaker-training imports :mod:`.exceptions` from here."""
