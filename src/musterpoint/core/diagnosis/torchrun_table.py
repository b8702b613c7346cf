"""What a launcher of the user's own prints when ranks of it have failed: which, and how each ended.

Sources: torchrun's table, ``ChildFailedError`` in ``torch/distributed/elastic/multiprocessing/errors/__init__.py``. The
earliest failure is its root cause: of ranks that end within one second that may be one that only lost a peer.
horovodrun's summary, ``launch_gloo`` in ``horovod/runner/gloo_run.py``, and the lines before it of each process.
"""

import re
from typing import Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.core.diagnosis.traceback import Raised

RAISED = frozenset({1, -2, 130})
"""How Python ends by an exception: 1, or SIGINT for a ``KeyboardInterrupt`` (130 from a shell)."""
CRASHES = {
    4: "Illegal instruction",
    6: "Aborted",
    7: "Bus error",
    8: "Floating-point exception",
    11: "Segmentation fault",
}
"""faulthandler's names of signals."""
_ROOT_CAUSE = "Root Cause (first observed failure):"
_ROW = re.compile(r"^\s*rank\s*: (\d+)(?: \(local_rank: (\d+)\))?.*?^\s*exitcode\s*: (-?\d+)", re.S | re.M)
_STARTS = re.compile(r" FAILED\n-{9,}\nFailures:")
_SIGTERM = 15
HOROVODRUN = "Horovod detected that one or more processes exited with non-zero status"
_FIRST = re.compile(rf"^RuntimeError: {HOROVODRUN}[^\n]*\nProcess name: (?:\S*\[)?(\d+)\]?\nExit code: (\d+)$", re.M)
_PROCESS = re.compile(r"^Process (\d+) exit with status code (\d+)\.$", re.M)


class RankRow(NamedTuple):
    """One rank that failed. ``status`` is negative for a signal."""

    rank: int
    local_rank: int | None
    status: int


class Table(NamedTuple):
    """``root`` is the rank that the launcher saw first, ``rows`` are all, by their ranks; ``launcher`` is its name."""

    root: RankRow
    rows: Mapping[int, RankRow]
    launcher: str = "torchrun"

    @classmethod
    def of(cls, tail: bytes) -> "Table | None":
        """The last table in the output of a program; None if there is none."""
        text = tail.decode("utf-8", "replace")
        before, found, after = text.rpartition(_ROOT_CAUSE)
        root = _ROW.search(after)
        if not found or root is None:
            return cls._of_horovodrun(text)
        start = [match.end() for match in _STARTS.finditer(before)]
        rows = [_row(match) for match in _ROW.finditer(before, start[-1])] if start else []
        first = _row(root)
        return cls(first, {row.rank: row for row in (*rows, first)})

    @classmethod
    def _of_horovodrun(cls, text: str) -> "Table | None":
        """Its processes are shells, which end with 128 and more for a rank that was killed."""
        first = _FIRST.search(text)
        if first is None:
            return None
        ended = [*_PROCESS.findall(text), first.groups()]
        rows = {int(rank): RankRow(int(rank), None, _of_shell(int(code))) for rank, code in ended}
        return cls(rows[int(first[1])], rows, "horovodrun")

    def may_be_of(self, raised: Raised) -> bool:
        """Whether the root cause raised it: only ranks in a process group tag their lines, and crashes have no tag."""
        status = self.root.status
        if raised.fatal and not raised.timed_out:
            return raised.text.endswith(CRASHES.get(-status, "\0"))
        ends = RAISED - {1} if raised.name == "KeyboardInterrupt" else {1}
        return raised.label == str(self.root.rank) or (not raised.label and status in ends)

    def ended_by_itself(self, label: str) -> bool:
        """Whether the rank with this tag is known to have ended otherwise than by the launcher's SIGTERM."""
        row = self.rows.get(int(label)) if label.isdecimal() else None
        return row is not None and row.status != -_SIGTERM

    def silent_cause(self, raised: "set[int]") -> RankRow | None:
        """The rank that ended with a code of its own without a word, beside those that ``raised`` something; None: no
        single one. To be asked where the first that ended only lost a peer: it may have been quicker.
        """
        ended = [row for row in self.rows.values() if row.rank not in raised and row.status > 1]
        return ended[0] if len(ended) == 1 else None

    def has_killed(self, raised: "set[int]") -> bool:
        """Whether a signal that isn't the launcher's has ended a rank which isn't among those that ``raised``."""
        return any(row.status < 0 and row.status != -_SIGTERM for row in self.rows.values() if row.rank not in raised)

    def local_rank(self, rank: int) -> int | None:
        """Where a rank ran; None: it isn't in the table."""
        return self.rows[rank].local_rank if rank in self.rows else None

    def status(self, rank: int | None) -> int:
        """How a rank that raised ended, or, without one in the table, the root cause.

        torchrun may have ended it by SIGTERM while it was on its way out.
        """
        status = self.rows.get(self.root.rank if rank is None else rank, self.root).status
        return 1 if rank not in (None, self.root.rank) and status == -_SIGTERM else status


def _of_shell(code: int) -> int:
    return 128 - code if code > 128 else code


def _row(match: "re.Match[str]") -> RankRow:
    rank, local_rank, status = match.groups()
    return RankRow(int(rank), int(local_rank) if local_rank else None, int(status))
