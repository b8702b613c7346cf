"""The culprit: of all that a program printed, the error that ended it, in its own words."""

from __future__ import annotations

import itertools
import re
from typing import Callable, NamedTuple

from musterpoint import exit_codes
from musterpoint.report.classify import is_peer_lost
from musterpoint.report.traceback import Frame, Line, Raised, is_noise, lines_of, parse


class Error(NamedTuple):
    """What ended a program. ``kind`` is ``exception``, ``fatal`` (a crash that faulthandler saw), ``line`` (a line that
    looks like an error, or that ``sys.exit`` printed) or ``last`` (just the last line). ``frames`` are the innermost of
    the user's code, outermost first. ``wrapper`` says that the program was itself a launcher, which only passed a
    child's failure on.
    """

    text: str
    kind: str
    frames: tuple[Frame, ...] = ()
    wrapper: bool = False


SHOWN_FRAMES = 2
STALE = 40
"""Lines after which a traceback is old news where the program may have gone on behind it."""
RAISED = frozenset({1, -2, 130})
"""How Python ends by an exception: 1, or SIGINT for a ``KeyboardInterrupt`` (130 from a shell)."""
NEAR = 25
"""An error line is looked for among so many last lines."""

_WRAPPER = re.compile(
    r"(?:subprocess\.)?CalledProcessError\b|[\w.]*\bChildFailedError\b|[\w.]*\bProcess(?:Raised|Exited)Exception\b"
    r"|(?:[\w.]*\.)?_?RemoteTraceback\b|[\w.]*\bSignalException\b"
    r"|\S+: Caught \w+ in (?:DataLoader worker|replica|pin memory)|\S+: DataLoader worker .* exited unexpectedly"
    r"|SystemExit\b"
)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^<|\\lib\\|/__autograph_generated_file")
_ERROR_LINE = re.compile(
    r"(?i:\b(?:\w*error|fatal|\w*exception|failure|abort(?:ed)?)\b ?[:!\]])|\b(?:ERROR|FATAL|CRITICAL)\b"
    r"|command not found|: not found$|No such file or directory|Permission denied|can't open file|[Cc]annot |[Cc]an't "
    r"|^Killed$|Segmentation fault|Bus error|Illegal instruction|[Oo]ut of memory|Assertion .*failed|syntax error"
    r"|terminate called after|No space left on device|unbound variable|No module named|^Abort\(\d+\)"
)
_ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\):.*?rank\s*: (\d+).*?exitcode\s*: (-?\d+)", re.S)
_LAUNCHES = re.compile(
    r"python|torchrun|torch\.distributed|accelerate|deepspeed|mpirun|mpiexec|horovodrun|\.(?:py|sh)\b"
)
_STATUS = re.compile(r"returned non-zero exit status (\d+)|died with (?:<Signals\.\w+: |unknown signal )(\d+)")
_ABORT = re.compile(rb"^Abort\(\d+\)[^\n]*: application called MPI_Abort\([^\n]*, (-?\d+)\) - process \d+$", re.M)
_MORE = re.compile(r"[\s|]*and (\d+) more exceptions?$")
_PROCESS = re.compile(r"process \d+ terminated with (?:exit code (\d+)|signal (SIG\w+))")


def find(
    tail: bytes, status: int | None = None, source: Callable[[str], str | None] = lambda file: None
) -> Error | None:
    """The error that ended the program which wrote ``tail``; None where it wrote nothing.

    The last exception leads. Behind a wrapper (``CalledProcessError``, torchrun's table, a DataLoader worker's copy),
    and between several ranks in one tail, the one that isn't the echo of another leads. ``status`` is as in
    ``RankEnd``; ``source`` gives the text of a file that a traceback names, None where it can't.
    """
    lines = lines_of(tail)
    raised = parse(lines)
    top = [one for one in raised if not one.aside] or raised
    while top and _lines_after(lines, top[-1]) > STALE and not _ended_it(top[-1], status, source):
        top.pop()
    if top:
        return _lead(lines, raised, top, tail)
    error = _error_line(lines)
    if error is not None and error.kind == "last" and status == 1 and _first_said(lines, error.text):
        return error._replace(kind="line")
    return error


def _ended_it(raised: Raised, status: int | None, source: Callable[[str], str | None]) -> bool:
    """Whether a program that wrote much behind a traceback wrote it on its way out, and didn't go on."""
    if raised.aside or not raised.headed or not raised.frames or (status not in RAISED and (status or 0) >= 0):
        return False
    from musterpoint.report.handlers import goes_on

    outermost = raised.frames[0]
    text = source(outermost.file)
    on = None if text is None else goes_on(text, outermost.line, outermost.code, raised.name)
    return (
        status in RAISED and (outermost.function == "<module>" or "runpy" in outermost.file) if on is None else not on
    )


def _first_said(lines: list[Line], text: str) -> bool:
    """Whether a last line is unlike what came before: ``sys.exit(text)`` prints one, and ends with 1."""
    shapes = [re.sub(r"\d+", "0", line.text.strip()) for line in lines if line.text.strip()]
    return shapes.count(re.sub(r"\d+", "0", text)) == 1


def inner_code(tail: bytes) -> int | None:
    """The exit code that a launcher of the user's own hid behind its 1; None where its output doesn't tell.

    Sources: torchrun's table (root cause), ``CalledProcessError``, ``torch.multiprocessing.spawn``.
    """
    text = "\n".join(line.text for line in lines_of(tail))
    if tables := _ROOT_CAUSE.findall(text):
        return exit_codes.of_status(int(tables[-1][1]))
    if ended := _PROCESS.findall(text):
        code, name = ended[-1]
        return int(code) if code else exit_codes.of_signal(_signal_number(name))
    for line in reversed(text.split("\n")):
        status = _STATUS.search(line)
        if "CalledProcessError" in line and status and _LAUNCHES.search(line):
            return exit_codes.of_signal(int(status[2])) if status[2] else int(status[1]) & 0xFF
    return None


def abort_code(tail: bytes) -> int | None:
    """The code that a program gave to ``MPI_Abort``, from what MPICH and Intel MPI print of it; None if it didn't.

    Open MPI's programs end with it themselves.
    """
    asked = _ABORT.search(tail)
    return (int(asked[1]) & 0xFF or 1) if asked else None


def until_abort(tail: bytes) -> bytes:
    """What a program wrote until it called ``MPI_Abort``: where its MPI doesn't end it, it goes on and fails again."""
    asked = _ABORT.search(tail)
    return tail[: asked.end()] if asked else tail


def _lead(lines: list[Line], raised: list[Raised], top: list[Raised], tail: bytes) -> Error:
    last = top[-1]
    # torchrun's table may end with the child's own traceback
    wrapper = _is_wrapper(last) or any("ChildFailedError" in one.name for one in top)
    if last.fatal:
        # an exception may be printed before the crash of a clean-up
        before = [one for one in top[:-1] if not one.fatal and last.start - one.end < STALE and one.label == last.label]
        last = before[-1] if before else last
    if wrapper or len({one.label for one in top if one.label}) > 1:
        inner = _innermost(raised, tail)
        if wrapper and (inner is None or is_peer_lost(inner.text)) and (silent := _silent_root_cause(tail)):
            return Error(silent, "line", wrapper=True)
        last = inner or last
    if _is_wrapper(last):
        line = _error_line([line for line in lines if line.number < last.start])
        if line is not None and line.kind == "line":
            return line._replace(wrapper=True)
    if last.group == "group":
        return _of_group(raised, last, lines)
    frames = _user_frames(_origin(raised, last), top[-1])
    return Error(last.text, "fatal" if last.fatal else "exception", frames, wrapper)


def _of_group(raised: list[Raised], group: Raised, lines: list[Line]) -> Error:
    """An exception group's own words, and those of the first exception in it, however deep."""
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
    return Error(text, "exception", _user_frames(leaves[0], group))


def _innermost(raised: list[Raised], tail: bytes) -> Raised | None:
    """The exception behind wrappers and echoes: the root cause's own if torchrun names its rank."""
    real = [one for one in raised if not _is_wrapper(one)]
    tables = _ROOT_CAUSE.findall(tail.decode("utf-8", "replace"))
    named = [one for one in real if tables and one.label == tables[-1][0]]
    own = [one for one in named or real if not is_peer_lost(one.text)]
    chosen = own or named or real
    return chosen[-1] if chosen else None


def _silent_root_cause(tail: bytes) -> str:
    """What torchrun's table says of a rank that ended without a word; empty where there is no table."""
    tables = _ROOT_CAUSE.findall(tail.decode("utf-8", "replace"))
    if not tables:
        return ""
    rank, code = tables[-1]
    how = f"was killed by signal {code[1:]}" if code.startswith("-") else f"ended with exit code {code}"
    return f"the program's own torchrun says: its rank {rank} {how}"


def _origin(raised: list[Raised], last: Raised) -> Raised:
    """The exception whose frames to show: a copy from another process is chained before the one raised again here."""
    index = raised.index(last)
    if last.chained and index and raised[index - 1].text.split(".")[-1] == last.text.split(".")[-1]:
        return raised[index - 1]
    return last


def _is_wrapper(raised: Raised) -> bool:
    return not raised.fatal and _WRAPPER.match(raised.text) is not None


def _user_frames(raised: Raised, outer: Raised) -> tuple[Frame, ...]:
    """The innermost frames of the user's code in ``raised`` or else in ``outer``; without any, the innermost of all."""
    for one in (raised, outer):
        own = [frame for frame in one.frames if not _LIBRARY.search(frame.file)]
        if own:
            return tuple(own[-SHOWN_FRAMES:])
    return raised.frames[-1:]


def _lines_after(lines: list[Line], raised: Raised) -> int:
    after = (line for line in lines[raised.end + 1 :] if line.label == raised.label)
    return sum(not is_noise(line.text) for line in after)


def _error_line(lines: list[Line]) -> Error | None:
    """The last of the last lines that looks like an error, else the last line that isn't noise."""
    said = [line.text.strip() for line in lines if not is_noise(line.text)]
    for text in reversed(said[-NEAR:]):
        if _ERROR_LINE.search(text):
            return Error(_with_what(lines, text), "line")
    return Error(said[-1], "last") if said else None


def _with_what(lines: list[Line], text: str) -> str:
    """A C++ ``terminate called`` line with the ``what():`` line after it."""
    for line, following in zip(lines, lines[1:], strict=False):  # noqa: RUF007
        if line.text.strip() == text and following.text.strip().startswith("what():"):
            return f"{text}\n{following.text.strip()}"
    return text


def _signal_number(name: str) -> int:
    import signal

    return int(getattr(signal, name, signal.SIGKILL))
