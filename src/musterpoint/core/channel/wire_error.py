"""What a host raises where another one doesn't speak the protocol; it ends that connection, and nothing else."""


class WireError(ValueError):
    """The other end doesn't speak this protocol."""
