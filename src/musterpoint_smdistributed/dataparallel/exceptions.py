"""What sagemaker-training imports to tell errors of this library from a script's own."""


class SMDDPError(Exception):
    """An error of this library."""
