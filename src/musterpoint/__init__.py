"""musterpoint: the entry point of a distributed training container."""

__version__ = "0.1.0"
