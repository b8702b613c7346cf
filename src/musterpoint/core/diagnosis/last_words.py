"""What a program said last beside its exceptions: the text of ``sys.exit``, an error line, or just its last line.

Also what a library in C or C++ said before it called ``abort()``: faulthandler tells only that it did. Sources of
these texts: libstdc++'s ``vterminate.cc``, libc++abi's ``cxa_default_handlers.cpp``, glibc's
``malloc.c``, ``assert.c`` and ``fortify_fail.c``, glog's and Abseil's fatal lines, torch's own
(``c10/util/Logging.cpp``), LLVM's ``kmp_i18n.cpp`` (OpenMP).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Literal

from musterpoint.base.records import NamedTuple
from musterpoint.core.diagnosis.message_lines import MESSAGE_LINES, shape_of
from musterpoint.core.diagnosis.peer_texts import is_peer_lost
from musterpoint.core.diagnosis.traceback import Frame, Line, Raised, is_announcement, is_logged, is_noise

_BEFORE_ABORT = 40
"""Lines, C++ frames apart, within which the words stand before what tells of the abort."""
_THROWN = re.compile(r"terminate called after throwing an instance of '(?P<type>.+)'$")
_WHAT = re.compile(r"\s*what\(\): *(?P<text>.*)")
_LIBCXX = re.compile(r"libc\+\+abi: terminating (?:due to|with) uncaught exception of type (?P<words>.+)")
_C10 = re.compile(
    r"(?:\[rank\d+\]:)?\[(?P<level>[EF])\d{3,4} \d\d:\d\d:[\d.]+ [\w.]+:\d+\] "
    r"(?P<group>\[PG ID [^\]]*\] )?(?:(?P=group) *)?(?P<words>.+)"
)
"""A line of torch's own log: the month's number has one digit or two, and a process group names itself up to twice."""
_ASSERTED = re.compile(
    r".+: \S*\bAssertion `.*' failed\.$|F\d{4} \d\d:\d\d:.+\] .+|.*\bCheck failed: |OMP: Error #\d+: "
    r"|(?:free|malloc|realloc|calloc|munmap_chunk)\(\): |double free or corruption|corrupted (?:size|double-linked)"
    r"|\*\*\* .+ \*\*\*: terminated"
)


class Error(NamedTuple):
    """What ended a program.

    ``kind``: ``exception``, ``fatal`` (a crash that faulthandler saw), ``line`` (a line that looks like an error,
    or that ``sys.exit`` printed) or ``last`` (just the last line). ``frames``: the innermost of the user's code,
    outermost first. ``wrapper``: the program was itself a launcher, which reports a child's failure;
    ``second_hand``: the child printed no error. ``rank`` and ``local_rank``: the child's, where known. ``symptom``:
    a failure elsewhere caused the error. ``lost_connection``: a library says that a connection, or a file, has ended.
    ``lost_child``: a child of the program is gone, and nothing says that it ended by itself.
    ``causes``: what an exception was raised from, the nearest first. ``before``: an exception that was survived.
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
    causes: tuple[str, ...] = ()
    lost_child: bool = False
    before: str = ""


NEAR = 25
"""An error line is searched in this many last lines."""

_ERROR_LINE = re.compile(
    r"(?i:\b(?:\w*error|fatal|\w*exception|failure|abort(?:ed)?)\b ?[:!\]])|\b(?:ERROR|FATAL|CRITICAL)\b"
    r"|command not found|: not found$|No such file or directory|Permission denied|can't open file|[Cc]annot |[Cc]an't "
    r"|^Killed$|Segmentation fault|Bus error|Illegal instruction|[Oo]ut of memory|Assertion .*failed|syntax error"
    r"|terminate called after|No space left on device|unbound variable|No module named|^Abort\(\d+\)"
)
_CRASH = re.compile(
    r"terminate called after|^Killed$|Segmentation fault|Bus error|Illegal instruction|Floating point exception"
)
_BESIDE = re.compile(
    r".*\d%\|.*\||\[notice\] |(?i:hint|note): |Try ['`\"]|For (?:more|further) information"
    r"|Set the environment variable HYDRA_FULL_ERROR"
)
"""Advice that tools print after an error, and progress bars."""
COMMAND = re.compile(r"(?!(?i:error|warning|info|note|fatal|failed)\b)[\w./+-]*[a-z[][\w./+-]*: \S")
"""How a command or a shell begins what it complains of: ``mv: cannot stat``, ``run.sh: line 3: no such command``."""
COMPLAINS = re.compile(
    r"(?i)\b(?:no|not|cannot|without|missing|empty|must|needs?|expected|invalid|unknown|unsupported|bad|wrong|too|only"
    r"|mismatch|corrupt\w*|unable|differs?|required?|exceeds?|less|fewer|more|another|truncated|failed to|out of|denied"
    r"|refused|unrecognized|doesn.t|isn.t|aren.t|can.t|don.t)\b"
)
"""Words of a text that tells why a program can't go on."""
_TOP, _SIDE = re.compile(r"[╭┌][─━]+ .*[Ee]rror\b.*[╮┐]$"), re.compile(r"[│┃] (?P<text>.*?) *[│┃]$")
"""Of a box that rich draws around an error, as typer and tyro have it for a wrong argument."""
_ANNOUNCED = ("future:", "handle:", "protocol:", "transport:", "task:", "source_traceback:")
"""What asyncio prints between an announcement and a traceback."""


def said_outside(lines: list[Line], raised: list[Raised], behind_texts: bool = False) -> list[Line]:
    """The lines that are no exception's, and that announce or log none. ``behind_texts``: with those behind the first
    line of an exception's text, which may be somebody else's. ``lines`` are all of a tail.
    """
    hidden: set[int] = set()
    for one in raised:
        end = one.said_at if behind_texts and not one.fatal else one.end
        hidden.update(line.number for line in lines[one.start : end + 1] if line.label == one.label)
        for line in (lines[at] for at in range(one.start - 1, -1, -1) if lines[at].label == one.label):
            announces = is_announcement(line.text) or line.text.startswith(_ANNOUNCED)
            if announces or (not one.aside and (is_logged(line.text) or _ERROR_LINE.search(line.text))):
                hidden.add(line.number)
            if not announces:
                break
    return [line for line in lines if line.number not in hidden]


def is_ordinary(text: str) -> bool:
    """Whether a line is output of the program itself, not of a logger or a tool."""
    return not (is_noise(text) or is_logged(text) or _BESIDE.match(text))


def last_words(lines: list[Line]) -> Error | None:
    """What ``sys.exit(text)`` printed before exit code 1: last lines unlike all before them, and no logger's.

    A line before them that looks like an error is appended, unless similar lines are frequent ("loss" isn't an error).
    """
    said = [line.text.rstrip() for line in lines if not is_noise(line.text) and not _BESIDE.match(line.text)]
    counts = Counter(map(shape_of, said))
    if not said or counts[shape_of(said[-1])] > 1 or is_logged(said[-1]) or _ERROR_LINE.search(said[-1]):
        return None
    start = len(said) - 1
    for at in range(len(said) - 2, max(-1, len(said) - 1 - MESSAGE_LINES), -1):
        if counts[shape_of(said[at])] > 1 or is_logged(said[at]):
            break
        if said[at].endswith(":") or said[at + 1][:1].isspace():
            start = at
    before = [text.strip() for text in said[:start][-NEAR:] if counts[shape_of(text)] == 1 and _ERROR_LINE.search(text)]
    return Error("\n".join([text.strip() for text in said[start:]] + before[-1:]), "line")


def error_line(lines: list[Line]) -> Error | None:
    """The last line that looks like an error; else the last that isn't noise, perhaps a command's complaint."""
    said = [at for at, line in enumerate(lines) if not is_noise(line.text)]
    for at in reversed(said[-NEAR:]):
        if boxed := _boxed_error(lines, at):
            return Error(boxed, "line")
        if _ERROR_LINE.search(lines[at].text):
            return Error(_thrown(lines, at) or lines[at].text.strip(), "line")
    texts = [lines[at].text.strip() for at in said]
    last = next((text for text in reversed(texts) if not _BESIDE.match(text)), *texts[-1:]) if texts else ""
    return Error(last, "line" if COMMAND.match(last) and COMPLAINS.search(last) else "last") if said else None


def _boxed_error(lines: list[Line], at: int) -> str:
    """The text of the box around an error that ``lines[at]`` stands in; empty: it stands in none."""
    inside: list[str] = []
    while at >= 0 and (side := _SIDE.match(lines[at].text.rstrip())):
        inside.insert(0, side["text"].strip())
        at -= 1
    return " ".join(filter(None, inside)) if inside and at >= 0 and _TOP.match(lines[at].text.rstrip()) else ""


def killed_line(lines: list[Line]) -> Error | None:
    """What says that a program crashed or lost a peer before a signal ended it, else just its last line."""
    found = error_line(lines)
    if found is None or found.kind == "last" or is_peer_lost(found.text) or _CRASH.search(found.text):
        return found
    said = [line.text for line in lines if not is_noise(line.text)]
    return Error(said[-1].strip(), "last")


def _thrown(lines: list[Line], at: int) -> str:
    """Type and message of the C++ exception that ended a program, by ``lines[at]``; empty: it is no such line."""
    text = lines[at].text.strip()
    if said := _LIBCXX.match(text):
        return said["words"]
    name = _THROWN.match(text)
    if name is None:
        return ""
    following = (_WHAT.match(line.text) for line in itertools.islice(lines, at + 1, at + 3))
    what = next((said["text"] for said in following if said is not None), "")
    return what if what.startswith(name["type"]) else f"{name['type']}: {what}".rstrip(": ")


def words_of(text: str) -> str:
    """What a line says, without what torch's log or the C++ library puts before it."""
    if said := _C10.match(text):
        return said["words"].strip()
    said = _WHAT.match(text)
    return said["text"] if said else text


def _fatal(text: str) -> str:
    """The words of a fatal line of torch's log."""
    said = _C10.match(text)
    return said["words"].strip() if said and said["level"] == "F" else ""


def said_before(lines: list[Line], number: int) -> str:
    """The words of the abort that a crash at line ``number`` tells of; empty: there are none."""
    before = [line for line in lines if line.number < number and not line.text.startswith("frame #")][-_BEFORE_ABORT:]
    for at in reversed(range(len(before))):
        text = before[at].text.strip()
        if words := _thrown(before, at) or _fatal(text) or (text if _ASSERTED.match(text) else ""):
            return words
    return ""
