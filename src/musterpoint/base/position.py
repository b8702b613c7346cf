"""Where a rank is in its program, as it travels between hosts."""

from typing import Any, Literal

from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import printable

PositionKind = Literal["collective", "call", "place", "stopped", "unknown"]
"""``collective``: in a collective operation, which waits for other ranks. ``call``: in one call of a library in C, for
as long as was looked; it may be such an operation under another name. ``place``: elsewhere in its program.
``stopped``: by a signal, or ended. ``unknown``: its stack could not be read.
"""
KINDS: tuple[PositionKind, ...] = ("collective", "call", "place", "stopped", "unknown")

LONGEST = 200
"""Characters of a position's words, and of its spot."""


class Position(NamedTuple):
    """``words``: the collective, or a phrase such as ``is in data loading: read at data.py:8``. ``spot``: file and line
    of the user's own code, where the words don't say that already. ``moving``: the rank used the processor, read or
    wrote between two looks. ``call``: the number of the collective of all ranks that it waits in, by torch's flight
    recorder; 0: not known. ``raised``: the exception that it has raised, if it is on its way out; the words say so.
    """

    rank: int
    kind: PositionKind
    words: str
    spot: str = ""
    moving: bool = False
    call: int = 0
    raised: str = ""

    @classmethod
    def from_wire(cls, value: Any) -> "Position":
        """Builds it from decoded JSON.

        Raises:
            ValueError: it is no list of this record's fields.
        """
        if not isinstance(value, list) or len(value) != len(cls._fields):
            raise ValueError("a position is a list of seven values")
        rank, kind, words, spot, moving, call, raised = value
        if type(rank) is not int or not 0 <= rank < 2**32 or type(moving) is not bool:
            raise ValueError("a position begins with a rank, and says whether it moves by true or false")
        if type(call) is not int or not 0 <= call < 2**63:
            raise ValueError("a position has the number of a call")
        if kind not in KINDS or not all(isinstance(text, str) for text in (words, spot, raised)):
            raise ValueError("a position has a kind, words, a place in the user's code and an exception")
        words, spot, raised = (printable(text, LONGEST) for text in (words, spot, raised))
        return cls(rank, kind, words, spot, moving, call, raised)
