"""musterpoint: the entry point of a distributed training container."""

__version__ = "0.1.0"
PACKAGES = ("musterpoint", "musterpoint_smdistributed")
"""All that an installation has: pip's, that among the packages of a base image's Python, and the one file."""
