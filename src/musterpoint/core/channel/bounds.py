"""What may stand in a field of a message, beside its type: ``point: Annotated[str, Text(64)]``.

:mod:`musterpoint.core.channel.codec` makes decoders of them.
"""

from typing import Annotated, Any, Callable

from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import is_host_name


class WireError(ValueError):
    """The other end doesn't speak this protocol. It ends that connection, and nothing else."""


class Text(NamedTuple):
    """At most ``longest`` characters of Unicode. ``shown``: people read it, so it is made printable and cut instead;
    ``lines``: line ends stay then.
    """

    longest: int
    shown: bool = False
    lines: bool = False


class Argument(NamedTuple):
    """A program's argument: at most ``longest`` characters, none of them zero; bytes that are no Unicode are kept."""

    longest: int


class Range(NamedTuple):
    """A number from ``least`` to ``most``."""

    least: int
    most: int


class Length(NamedTuple):
    """A list of ``least`` to ``most`` elements."""

    least: int
    most: int


class Which(NamedTuple):
    """A text that ``fits``; ``what`` it is else."""

    fits: Callable[[Any], bool]
    what: str


def is_address(value: str) -> bool:
    """Whether it may be a numeric IPv4 or IPv6 address: nothing else is in it."""
    return 0 < len(value) <= 64 and not value.strip("0123456789abcdefABCDEF.:")


STOP_SIGNALS = (1, 2, 3, 15)
"""SIGHUP, SIGINT, SIGQUIT and SIGTERM."""

HostName = Annotated[str, Which(is_host_name, "no host's name")]
Address = Annotated[str, Which(is_address, "no numeric address")]
Port = Annotated[int, Range(1, 65535)]
