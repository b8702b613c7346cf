"""The error that ended a program: found in what it printed, in its own words."""

from __future__ import annotations

import itertools
import re
import signal
from collections import Counter
from typing import Callable, Literal

from musterpoint.base import exit_codes
from musterpoint.base.records import NamedTuple
from musterpoint.core.diagnosis import aborts
from musterpoint.core.diagnosis.culprit import (
    LIBRARY,
    STALE,
    TELLS,
    adjoin,
    colon_before,
    continues_after,
    culprit,
    innermost,
    is_symptom,
    is_wrapper,
    lost_connection,
    origin,
    own_of_another,
    whole_group,
)
from musterpoint.core.diagnosis.launchers_table import CRASHES, RAISED, Table
from musterpoint.core.diagnosis.peer_texts import is_own_mistake, is_peer_lost
from musterpoint.core.diagnosis.traceback import (
    MESSAGE_LINES,
    Frame,
    Line,
    Raised,
    is_logged,
    is_noise,
    lines_of,
    parse,
)


class Error(NamedTuple):
    """What ended a program.

    ``kind``: ``exception``, ``fatal`` (a crash that faulthandler saw), ``line`` (a line that looks like an error,
    or that ``sys.exit`` printed) or ``last`` (just the last line). ``frames``: the innermost of the user's code,
    outermost first. ``wrapper``: the program was itself a launcher, which reports a child's failure;
    ``second_hand``: the child printed no error. ``rank`` and ``local_rank``: the child's, where known. ``symptom``:
    a failure elsewhere caused the error. ``lost_connection``: a library says that a connection, or a file, has ended.
    """

    text: str
    kind: Literal["exception", "fatal", "line", "last"]
    frames: tuple[Frame, ...] = ()
    wrapper: bool = False
    second_hand: bool = False
    rank: int | None = None
    local_rank: int | None = None
    symptom: bool = False
    lost_connection: bool = False


SHOWN_FRAMES = 2
NEAR = 25
"""An error line is searched in this many last lines."""

_ERROR_LINE = re.compile(
    r"(?i:\b(?:\w*error|fatal|\w*exception|failure|abort(?:ed)?)\b ?[:!\]])|\b(?:ERROR|FATAL|CRITICAL)\b"
    r"|command not found|: not found$|No such file or directory|Permission denied|can't open file|[Cc]annot |[Cc]an't "
    r"|^Killed$|Segmentation fault|Bus error|Illegal instruction|[Oo]ut of memory|Assertion .*failed|syntax error"
    r"|terminate called after|No space left on device|unbound variable|No module named|^Abort\(\d+\)"
)
_FAILED_RANK = re.compile(
    r"[WE]\d{4} .*\] (?:Sending process \d+ closing signal|failed \(exitcode: )"
    r"|Process \d+ exit with status code \d+\.$"
)
"""What torchrun and horovodrun log as soon as one of their ranks has failed."""
_SHUT_DOWN = "Horovod has been shut down"
"""What all ranks raise once another one has raised something or ended, in whatever order their words come."""
_ADVICE = re.compile(r"\[notice\] |(?i:hint|note): |Try ['`\"]|For (?:more|further) information")
"""Advice that tools print after an error."""
_SIGABRT = 6
_LAUNCHES = re.compile(
    r"python|torchrun|torch\.distributed|accelerate|deepspeed|mpirun|mpiexec|horovodrun|\.(?:py|sh)\b"
)
_STATUS = re.compile(r"returned non-zero exit status (\d+)|died with (?:<Signals\.\w+: |unknown signal )(\d+)")
_ABORT = re.compile(rb"^Abort\(\d+\)[^\n]*: application called MPI_Abort\([^\n]*, (-?\d+)\) - process (\d+)$", re.M)
_MORE = re.compile(r"[\s|]*and (\d+) more exceptions?$")
_PROCESS = re.compile(r"process \d+ terminated with (?:exit code (\d+)|signal (SIG\w+))")


def find_error(
    tail: bytes, status: int | None = None, source: Callable[[str], str | None] = lambda file: None
) -> Error | None:
    """The error that ended the program which wrote ``tail``; None where it wrote nothing.

    Usually the last exception. With a wrapper (``CalledProcessError``, torchrun's table, a DataLoader worker's copy) or
    several ranks in one tail, it is the one that isn't a symptom of another. ``status`` is as in
    ``RankEnd``; ``source`` gives the text of a file that a traceback names, None where it can't.
    """
    lines = lines_of(tail)
    raised = [one for one in parse(lines) if not one.timed_out or status in (1, None)]
    top = [one for one in raised if not one.aside] or raised
    while top and _lines_after(lines, top[-1]) > STALE and not _ended_program(top[-1], status, source):
        top.pop()
    if top:
        ended_it = culprit(lines, top, status, source)
        return _quoting(lines, raised, ended_it, top[-1]) or _leading_error(lines, raised, top, tail)
    error = _last_words(lines) if status == 1 else None
    error = error or _error_line(lines)
    return error and error._replace(symptom=is_peer_lost(error.text))


def ends_with_exception(tail: bytes) -> bool:
    """Whether a traceback is the last that a program printed."""
    lines = lines_of(tail)
    raised = [one for one in parse(lines) if one.headed and not one.aside]
    return bool(raised) and not any(line.text.strip() for line in lines if line.number > raised[-1].end)


def as_told(said: Error | None, chain: tuple[Raised, ...], status: int | None) -> Error | None:
    """The error of a rank that told of the exception which ends it, beside ``said``, what was read in its output.

    The output has more where both mean the same; and a launcher in a rank tells of the rank that it started itself.
    """
    last = chain[-1]
    if status not in RAISED or is_wrapper(last) or "ExceptionGroup" in last.name:
        return said
    if said is not None and said.kind == "exception" and (said.wrapper or said.text.startswith(last.name)):
        return said
    error = Error(last.text, "exception", _user_frames(last, last), symptom=is_symptom([*chain], last))
    return error._replace(lost_connection=lost_connection(last))


def _ended_program(raised: Raised, status: int | None, source: Callable[[str], str | None]) -> bool:
    """Whether a traceback ended the program, though much output follows it."""
    if raised.aside or not raised.headed or not raised.frames or (status not in RAISED and (status or 0) >= 0):
        return False
    outermost = raised.frames[0]
    text = source(outermost.file)
    on = None if text is None else continues_after(text, raised)
    return (
        status in RAISED and (outermost.function == "<module>" or "runpy" in outermost.file) if on is None else not on
    )


def _last_words(lines: list[Line]) -> Error | None:
    """What ``sys.exit(text)`` printed before exit code 1: last lines unlike all before them, and no logger's.

    A line before them that looks like an error is appended, unless similar lines are frequent ("loss" isn't an error).
    """
    said = [line.text.rstrip() for line in lines if not is_noise(line.text) and not _ADVICE.match(line.text)]
    counts = Counter(map(_shape, said))
    if not said or counts[_shape(said[-1])] > 1 or is_logged(said[-1]) or _ERROR_LINE.search(said[-1]):
        return None
    start = len(said) - 1
    for at in range(len(said) - 2, max(-1, len(said) - 1 - MESSAGE_LINES), -1):
        if counts[_shape(said[at])] > 1 or is_logged(said[at]):
            break
        if said[at].endswith(":") or said[at + 1][:1].isspace():
            start = at
    before = [text.strip() for text in said[:start][-NEAR:] if counts[_shape(text)] == 1 and _ERROR_LINE.search(text)]
    return Error("\n".join([text.strip() for text in said[start:]] + before[-1:]), "line")


def _shape(text: str) -> str:
    """A line with all numbers as 0."""
    return re.sub(r"\d+", "0", text.strip())


def inner_code(tail: bytes, rank: int | None = None) -> int | None:
    """The child's exit code where the user's own launcher ended with 1; None if its output doesn't show it.

    Sources: its launcher's table (of ``rank``, else of the root cause), ``CalledProcessError``,
    ``torch.multiprocessing.spawn``.
    """
    text = "\n".join(line.text for line in lines_of(tail))
    if table := Table.of(tail):
        return exit_codes.of_status(table.status(rank))
    if ended := _PROCESS.findall(text):
        code, name = ended[-1]
        return int(code) if code else exit_codes.of_signal(_signal_number(name))
    for line in reversed(text.split("\n")):
        status = _STATUS.search(line)
        if "CalledProcessError" in line and status and _LAUNCHES.search(line):
            return exit_codes.of_signal(int(status[2])) if status[2] else int(status[1]) & 0xFF
    return None


def abort_code(tail: bytes, rank: int) -> int | None:
    """The code that ``rank`` gave to ``MPI_Abort``, from what MPICH and Intel MPI print of it; None if it didn't.

    With Open MPI it is the exit code anyway.
    """
    asked = next((said for said in _ABORT.finditer(tail) if int(said[2]) == rank), None)
    return (int(asked[1]) & 0xFF or 1) if asked else None


def until_abort(tail: bytes) -> bytes:
    """What a program wrote until it called ``MPI_Abort``; it may continue after that and fail again."""
    asked = _ABORT.search(tail)
    return tail[: asked.end()] if asked else tail


def _leading_error(lines: list[Line], raised: list[Raised], top: list[Raised], tail: bytes) -> Error:
    last, table = top[-1], Table.of(tail)
    # torchrun's table may end with the child's own traceback
    wrapper = is_wrapper(last) or any("ChildFailedError" in one.name for one in top)
    if last.fatal:
        # an exception may be printed before a crash in the clean-up; torch tags it with its rank, nobody tags the crash
        labels = {one.label for one in top}
        its = {last.label} if last.label or len(labels) > 2 else labels
        before = [one for one in top[:-1] if not one.fatal and last.start - one.end < STALE and one.label in its]
        last = before[-1] if before else last
    several = len({one.label for one in top if one.label}) > 1
    if not wrapper and len(top) > 1 and colon_before(lines, top[-2], last):
        whole = f"{top[-2].text}\n{last.text}"
        return Error(whole, "exception", _user_frames(top[-2], top[-2]), symptom=is_symptom(raised, top[-2]))
    if wrapper or several:
        inner = innermost(raised, table)
        if wrapper and table and (inner is None or is_symptom(raised, inner)):
            spoke = {int(one.label) for one in raised if one.label.isdecimal()}
            silent = table.silent_cause(spoke) if inner is not None else None
            shut_down = inner is not None and _SHUT_DOWN in inner.text and silent is None
            other = own_of_another(raised) if shut_down and not table.has_killed(spoke) else None
            inner = other or inner
            if other is None and (silent is not None or inner is None or not table.may_be_of(inner)):
                return _error_of_silent_rank(lines, table._replace(root=silent or table.root))
        last = whole_group(raised, inner or last)
    if is_wrapper(last) and "SignalException" not in last.name:  # after a signal there is no error to look for
        line = _error_line([line for line in lines if line.number < last.start])
        if line is not None and line.kind == "line":
            return line._replace(wrapper=True, symptom=is_peer_lost(line.text))
    if last.group == "group":
        error = _group_error(raised, last, lines)._replace(wrapper=wrapper)
    else:
        symptom = is_symptom(raised, last)
        error = Error(
            last.text,
            "fatal" if last.fatal else "exception",
            _user_frames(origin(raised, last), top[-1]),
            wrapper,
            not symptom and TELLS.match(last.text) is not None and _LAUNCHES.search(last.text) is not None,
            symptom=symptom,
            lost_connection=not symptom and lost_connection(last),
        )
    if last.fatal and (said := _symptom_before(lines, last.start)):
        error = error._replace(text=said, symptom=True)
    elif last.fatal and last.text.endswith(CRASHES[_SIGABRT]) and (said := aborts.said_before(lines, last.start)):
        error = error._replace(text=f"{said}\n{last.text}")
    if table is not None and wrapper and table.may_be_of(last):
        return error._replace(rank=table.root.rank, local_rank=table.root.local_rank)
    tagged = any(f"{tag}:".encode() in tail for tag in (f"[rank{last.label}]", f"[{last.label}]<stderr>"))
    if not ((wrapper or several) and last.label.isdecimal() and tagged):
        return error
    rank = int(last.label)
    return error._replace(rank=rank, local_rank=table.local_rank(rank) if table is not None else None)


def _quoting(lines: list[Line], raised: list[Raised], ended_it: Raised, last: Raised) -> Error | None:
    """The error of an exception that ended the program and isn't the ``last`` one: its words, then what it quotes."""
    if ended_it is last:
        return None
    following = next(one for one in raised if one.start > ended_it.end)
    quoted = adjoin(lines, ended_it, following) or colon_before(lines, ended_it, following)
    text = f"{ended_it.text}\n{last.text}" if quoted else ended_it.text
    return Error(text, "exception", _user_frames(ended_it, ended_it), symptom=is_symptom(raised, ended_it))


def _group_error(raised: list[Raised], group: Raised, lines: list[Line]) -> Error:
    """An exception group's message and that of the first exception in it, however deep."""
    following = [one for one in raised if one.label == group.label and one.start > group.start]
    tree = list(itertools.takewhile(lambda one: one.group, following))
    leaves: list[Raised] = []
    for one in tree:
        if one.group == "member" and one.chained and leaves:
            leaves[-1] = one
        elif one.group == "member":
            leaves.append(one)
    if not leaves:
        return Error(group.text, "exception", _user_frames(group, group))
    within = (line.text for line in lines if group.end < line.number <= tree[-1].end + 2)
    others = len(leaves) - 1 + sum(int(more[1]) for text in within if (more := _MORE.match(text)))
    first, _, rest = leaves[0].text.partition("\n")
    first += f" (and {others} other{'s' if others > 1 else ''})" if others else ""
    text = "\n".join(filter(None, [group.text, first, rest]))
    return Error(text, "exception", _user_frames(leaves[0], group), symptom=is_symptom(raised, leaves[0]))


def _error_of_silent_rank(lines: list[Line], table: Table) -> Error:
    """The error of a rank that raised nothing, from its launcher's table: perhaps a crash after a lost peer."""
    root = table.root
    if root.status == -_SIGABRT and (said := _symptom_before(lines, len(lines))):
        return Error(said, "line", (), True, False, root.rank, root.local_rank, symptom=True)
    how = f"was killed by signal {-root.status}" if root.status < 0 else f"ended with exit code {root.status}"
    text = f"the program's own {table.launcher} says: its rank {root.rank} {how}"
    if root.status > 0:
        until = next((line.number for line in lines if _FAILED_RANK.match(line.text)), 0)
        before = [line for line in lines if line.number < until and line.label in ("", str(root.rank))]
        words = _last_words(before) if root.status == 1 else _error_line(before)  # argparse ends with 2
        text = f"{words.text}\n{text}" if words is not None and words.kind == "line" else text
    return Error(text, "line", (), True, True, root.rank, root.local_rank)


def _symptom_before(lines: list[Line], number: int) -> str:
    """The last line before an abort in which a library reports a lost peer; empty if there is none."""
    said = [line.text.strip() for line in lines if line.number < number and not line.text.startswith("frame #")]
    said = said[-STALE:]
    symptoms = [] if is_own_mistake("\n".join(said)) else [text for text in said if is_peer_lost(text)]
    telling = [text for text in symptoms if not text.startswith("terminate called")]
    return aborts.words_of((telling or symptoms or [""])[-1])


def _user_frames(raised: Raised, outer: Raised) -> tuple[Frame, ...]:
    """The innermost frames of the user's code in ``raised`` or else in ``outer``; without any, the innermost of all."""
    for one in (raised, outer):
        own = [frame for frame in one.frames if not LIBRARY.search(frame.file)]
        if own:
            return tuple(own[-SHOWN_FRAMES:])
    return raised.frames[-1:]


def _lines_after(lines: list[Line], raised: Raised) -> int:
    after = (line for line in lines[raised.end + 1 :] if line.label == raised.label)
    return sum(not is_noise(line.text) for line in after)


def _error_line(lines: list[Line]) -> Error | None:
    """The last of the last lines that looks like an error, else the last line that isn't noise."""
    said = [at for at, line in enumerate(lines) if not is_noise(line.text)]
    for at in reversed(said[-NEAR:]):
        if _ERROR_LINE.search(lines[at].text):
            return Error(aborts.thrown(lines, at) or lines[at].text.strip(), "line")
    return Error(lines[said[-1]].text.strip(), "last") if said else None


def _signal_number(name: str) -> int:
    return int(getattr(signal, name, signal.SIGKILL))
