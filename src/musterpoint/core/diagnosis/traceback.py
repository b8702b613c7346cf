"""Tracebacks as programs print them: every exception in a tail of bytes, with its frames.

Understood are Python's own forms (chains, groups, ``SyntaxError``, faulthandler dumps), the copies that torch and
multiprocessing print of a child's traceback, TensorFlow's messages that follow behind a second stack, and lines tagged
with a rank.
"""

from __future__ import annotations

import json
import re
from typing import Literal, Sequence

from musterpoint.base.records import NamedTuple
from musterpoint.core.diagnosis.message_lines import MESSAGE_LINES, lines_of_message
from musterpoint.core.diagnosis.program_source import Sources


class Frame(NamedTuple):
    """``code`` is the source line, empty where none was printed."""

    file: str
    line: int
    function: str
    code: str = ""


class Raised(NamedTuple):
    """One exception as printed. ``text`` is its last line with the rest of the message; ``frames`` are outermost first.

    ``label`` is the rank tag of its lines (``1`` of ``[rank1]:``). ``start`` and ``end`` are line numbers in the tail,
    ``said_at`` that of the text.
    ``chained`` says that it was raised from, or while handling, the one before; ``caused``: from it; ``led_on``: the
    next one was raised so. ``aside``: it didn't end the program by itself (ignored exceptions, those of a thread or a
    child, members of a group); ``ignored``: Python went on as if there were none; ``logged``: a logger printed it, and
    ``frames`` begin where it was caught. ``fatal`` marks a faulthandler dump. ``headed`` says that ``frames`` begin
    with the outermost. ``group`` is empty, ``group`` for an
    exception group, or ``member`` for what is in one.
    """

    text: str
    frames: tuple[Frame, ...]
    label: str = ""
    start: int = 0
    end: int = 0
    said_at: int = 0
    chained: bool = False
    caused: bool = False
    led_on: bool = False
    aside: bool = False
    ignored: bool = False
    logged: bool = False
    fatal: bool = False
    headed: bool = False
    group: Literal["", "group", "member"] = ""

    @property
    def name(self) -> str:
        """The exception's class as printed, such as ``torch.cuda.OutOfMemoryError``."""
        return self.text.split(":", 1)[0].split("\n", 1)[0].strip()

    @property
    def whole(self) -> bool:
        """Whether its traceback begins with the program's first line."""
        return self.headed and bool(self.frames) and begins_program(self.frames[0])

    @property
    def inline(self) -> bool:
        """Whether its traceback begins in code that no file has, so that nothing tells how that code goes on."""
        spawned = len(self.frames) > 1 and "multiprocessing" in self.frames[1].file
        return self.headed and bool(self.frames) and is_inline(self.frames[0]) and not spawned

    @property
    def timed_out(self) -> bool:
        """Whether ``faulthandler.dump_traceback_later`` printed it, which ends the program with 1, or not at all."""
        return self.fatal and self.text.startswith("Timeout (")


def is_inline(frame: Frame) -> bool:
    """Whether its code stands in no file: ``python -c``'s, or what was piped into Python."""
    return _INLINE.match(frame.file) is not None


def begins_program(frame: Frame) -> bool:
    return frame.function == "<module>" or "runpy" in frame.file


class Line(NamedTuple):
    """One line of a tail: its number, its rank tag (empty: none) and its text without the tag."""

    number: int
    label: str
    text: str


_TAG = re.compile(
    r"\[rank (?P<ours>\d+)\] |\[rank(?P<torch>\d+)\]: ?|\[default(?P<elastic>\d+)\]: ?"
    r"|\[\d+,(?:mpirank:)?(?P<mpi>\d+)(?:,[\w.-]+)?\]<std(?:out|err)>: ?|\[(?P<horovod>\d+)\]<std(?:out|err)>: ?"
)
_HEADER = re.compile(r"(?:Traceback|Exception Group Traceback) \(most recent call last\):\s*$")
_FRAME = re.compile(r'(?P<indent>\s+|> )File "(?P<file>[^"]*)", line (?P<line>\d+)(?:,? in (?P<function>.*))?$')
_EXCEPTION = re.compile(r"(?:(?:[^\W\d]\w*|<locals>)\.)*[^\W\d]\w*(?:: .*|:)?$")
_INLINE = re.compile(r"<(?:string|stdin)")
_BARE = re.compile(r"\S+:$")
_REPEATED = re.compile(r"\s+\[Previous line repeated \d+ more times?\]")
_LEFT_OUT = re.compile(r"musterpoint: \d+ bytes are left out here$")
_TYPED = re.compile(r"(?:[^\W\d][\w.]*\.)?\w*(?:Error|Exception|Exit|Interrupt|Iteration|Group): ")
_FATAL = re.compile(r"Fatal Python error: .+|Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!$")
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):")
_CAUSE = "The above exception was the direct cause"
_CHAIN = re.compile(rf"(?:During handling of the above exception, another|{_CAUSE})")
_IGNORED = re.compile(
    r"Exception ignored |Error in atexit|--- Logging error ---|Unhandled exception in event loop|Call stack:$"
    r"|(?:.*\W)?(?:(?:Task|Future) exception was never retrieved|Exception in callback )"
)
_ELSEWHERE = re.compile(r"Exception in thread |Process \S+:$")
_ABORT = re.compile(r"Abort\(-?\d+\)")
"""What MPICH and Intel MPI print at the end of a program that called ``MPI_Abort``."""
_GROUP = re.compile(r"\s*(?:\+ (?=Exception Group)|\|(?: |$))")
_MEMBER = re.compile(r"\s*\+(?P<opens>-\+)?[-+]+ ?(?P<number>\d*)")
_RULER, _OPENS = -1, -2
_CARETS = re.compile(r"[\s~^]+$")
_NOISE = re.compile(
    r"\s*$|[WEIF]\d{4} \d\d:\d\d|\[[WEIF]\d{4} \d\d:\d\d|.*\b\w*Warning: |\s*warnings\.warn\(|terminate called without"
    r"|wandb: |frame #\d+: |Extension modules: |[*=~-]{4,}\s*$|\s+what\(\):|<omitting |\(Use `|Exception raised from "
    r"|/\S+/resource_tracker\.py|\"\"\"|musterpoint: |Aborted \(core|.*\(core dumped\)|srun: |--------"
    r"|WARNING: All log messages before absl::|To enable the following instructions: "
    r"|The above exception was the |During handling of the above "
    r"|\[cli[_-]\d+\]: |system msg for write_line failure|:$"
)
_SHELL = re.compile(r"(?:\S+: line \d+:\s+\d+ )?(?:Terminated|Killed|Hangup)\s*$")
"""What a shell says of a program that a signal has ended."""
_LOGGED = re.compile(r"\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\[?\d\d:\d\d:\d\d\b")
"""How ``logging`` and its like begin a line."""
_STACK_FIRST = re.compile(r": (?:Graph execution error|in user code):$")
"""TensorFlow: the message itself comes behind the stack of the graph's node, or of the code that was traced."""
_NODE = re.compile(r"\s*$|Detected at node|Node: '|\d+ root error\(s\) found")
_BEFORE = 40
"""Lines before a traceback that may come again behind it."""
BLANK = 3
"""Empty lines that a message may begin with."""
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTROLS = {code: "\ufffd" for code in [*range(32), *range(127, 160)] if chr(code) not in "\t\n\r"}
_BEGINS = "Traceback (most recent call last):"
_IN_A_NAME = re.compile(r"\r(?=: |['\"’”)])")
"""A CR that belongs to a word of a script with Windows line ends; behind a progress bar's comes other text."""
LINE = 4 << 10
"""Characters kept of one line."""


def is_greeting(text: str) -> bool:
    """Whether TensorFlow prints the line at every import, or for information only."""
    return is_noise(text) and text.startswith(("I", "WARNING: All log", "To enable"))


def is_noise(text: str) -> bool:
    """Whether a line has no error: empty, a warning, a launcher's log line, a C++ frame."""
    return _NOISE.match(text) is not None


def is_announcement(text: str) -> bool:
    """Whether a line says that a traceback follows which didn't end the program by itself."""
    return _IGNORED.match(text) is not None or _ELSEWHERE.match(text) is not None


def is_logged(text: str) -> bool:
    """Whether a logger printed the line, so that it is no part of an exception's message or ``sys.exit``'s text."""
    return _LOGGED.match(text) is not None or (text.startswith('{"') and text.rstrip().endswith("}"))


def lines_of(tail: bytes) -> list[Line]:
    """The lines of a tail, decoded for people; of a line that was overwritten (``\\r``) only what remained."""
    lines: list[Line] = []
    shown = _COLOURS.sub("", tail.decode("utf-8", "replace")).translate(_CONTROLS)
    for raw in shown.split("\n"):
        text, label = _visible(raw), ""
        while tag := _TAG.match(text):
            label, text = next(filter(None, tag.groups())), text[tag.end() :]
        for part in _in_json(text) if _BEGINS in text and "{" in text else (text,):
            lines.append(Line(len(lines), label, part[:LINE]))
    return lines


def _in_json(text: str) -> Sequence[str]:
    """The lines of the traceback that a logger wrote as a string in a JSON object; else the line itself."""
    at = text.find("{")
    while 0 <= at < text.find(_BEGINS):
        try:
            values = [json.JSONDecoder().raw_decode(text, at)[0]]
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)  # it belongs to what the logger wrote before
            continue
        for value in values:  # more are added meanwhile
            if isinstance(value, str) and _BEGINS in value:
                return value.rstrip("\n").split("\n")
            values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        break
    return (text,)


def _visible(raw: str) -> str:
    """What remains of a line that was overwritten, unless what was written first is an exception's type."""
    parts = _IN_A_NAME.sub(r"\\r", raw.rstrip("\r")).split("\r")
    return " ".join(parts) if len(parts) > 1 and _TYPED.match(parts[0]) else parts[-1]


def parse(lines: list[Line], sources: Sources | None = None) -> list[Raised]:
    """Every exception in ``lines``, in the order in which their texts end. Ranks' lines may be interleaved."""
    found: list[Raised] = []
    sources = sources or Sources()
    for label in dict.fromkeys(line.label for line in lines):
        found += _Reader([line for line in lines if line.label == label], label, sources).read()
    return sorted(found, key=lambda raised: raised.end)


class _Reader:
    """Walks the lines of one rank."""

    def __init__(self, lines: list[Line], label: str, sources: Sources) -> None:
        self.label, self.sources = label, sources
        self.numbers = [line.number for line in lines]
        self.texts, self.members = _ungroup([line.text for line in lines])
        self.at = 0

    def read(self) -> list[Raised]:
        found: list[Raised] = []
        chained = caused = aside = ignored = False
        while self.at < len(self.texts):
            text = self.texts[self.at]
            raised = None
            if _HEADER.search(text):
                raised = self._raised(self.at + 1, aside)
            elif _FRAME.match(text) or (self.at and self.members[self.at] > 0 > self.members[self.at - 1]):
                raised = self._raised(self.at, aside)
            elif _FATAL.match(text):
                raised = self._dump()
            if raised is not None:
                if chained and found:
                    found[-1] = found[-1]._replace(led_on=True)
                before = found[-1] if chained and found and not found[-1].group else None
                found.append(
                    raised._replace(
                        chained=chained,
                        caused=caused,
                        aside=raised.aside or (before is not None and before.aside),
                        ignored=ignored or (before is not None and before.ignored),
                    )
                )
                chained = caused = aside = ignored = False
                continue
            chained = chained or _CHAIN.match(text) is not None
            caused = caused or text.startswith(_CAUSE)
            # the announced traceback follows within a line or two
            aside = is_announcement(text) or (aside and not _ends_announcement(text))
            ignored = aside and (ignored or _IGNORED.match(text) is not None)
            self.at += 1
        return found

    def _raised(self, at: int, aside: bool) -> Raised | None:
        """The exception whose first frame is at ``at``; moves behind it, or returns None and leaves the place."""
        start = self.at
        if start < at < len(self.texts) and not self.texts[at].strip():
            at += 1  # loguru's tracebacks begin with an empty line
        frames, base, end = self._frames(at)
        if end >= len(self.texts):
            return None
        first = self.texts[end][base:] if self.texts[end][:base].isspace() or not base else self.texts[end]
        if not _EXCEPTION.match(first.rstrip()) or (not frames and self.members[end] <= 0):
            return None
        message = [first.rstrip()]
        number, said_at = self.members[end], self.numbers[end]
        self.at = end + 1
        if _BARE.match(message[0]) and (begins := self._behind_blank(self.at)):
            message, self.at = [f"{first.rstrip()} {self.texts[begins].strip()}"], begins + 1
            said_at = self.numbers[begins]
        while self.at < len(self.texts) and self.members[self.at] == number and not self._ends(self.texts[self.at]):
            text = self.texts[self.at]
            # the rest of a long message: indented lines belong to it
            if len(message) >= MESSAGE_LINES and not text[base : base + 1].isspace():
                break
            message.append(text[base:].rstrip())
            self.at += 1
        if number <= 0:
            code = frames[-1].code if frames else ""
            if code.count("(") > code.count(")"):
                code = self.sources.statement(frames[-1].file, frames[-1].line)
            before = self.texts[max(0, start - _BEFORE) : start]
            others = len(message) - lines_of_message(message, code, before, bool(frames) and is_inline(frames[0]))
            message, self.at = message[: len(message) - others], self.at - others
        del message[MESSAGE_LINES:]
        shown = [text for text in self.texts[at:end] if _FRAME.match(text)]
        marked = next((at for at, text in enumerate(shown) if _is_marked(text)), -1)
        partial = bool(start and frames) and not begins_program(frames[0])
        logged = marked >= 0 or (partial and is_logged(self.texts[start - 1]))
        opens = self.at < len(self.texts) and self.members[self.at] == _OPENS
        if _STACK_FIRST.search(message[-1]):
            message[-1:], traced = self._behind_stack(message[-1])
            known = {frame[:2] for frame in frames}
            frames += [frame for frame in traced if frame[:2] not in known]
        return Raised(
            "\n".join(message),
            tuple(frames[max(0, marked) :]),
            self.label,
            self.numbers[start],
            self.numbers[self.at - 1],
            said_at,
            aside=aside or number > 0,
            logged=logged,
            headed=at > start,
            group="group" if opens else "member" if number > 0 else "",
        )

    def _behind_blank(self, at: int) -> int:
        """Where a message goes on that begins with a newline; 0: nothing of it follows."""
        ahead = (number for number in range(at, len(self.texts))[: BLANK + 1] if self.texts[number].strip())
        found = next(ahead, 0)
        return 0 if self._ends(self.texts[found]) else found

    def _behind_stack(self, first: str) -> tuple[list[str], list[Frame]]:
        """The message that TensorFlow announced with ``first``, and the frames in between; moves behind both."""
        at, frames, message = self.at, [], list[str]()
        while at < len(self.texts):
            if frame := _FRAME.match(self.texts[at]):
                function = (frame["function"] or "").rstrip(" *")
                frames.append(Frame(frame["file"], int(frame["line"]), function))
            elif frames and not frames[-1].code and self.texts[at].startswith("      "):
                frames[-1] = frames[-1]._replace(code=self.texts[at].strip())
            elif not _NODE.match(self.texts[at]):
                break
            at += 1
        while at < len(self.texts) and len(message) < MESSAGE_LINES and not self._ends(self.texts[at]):
            if not self.texts[at].lstrip().startswith("[["):
                message.append(self.texts[at].strip())
            at += 1
        if not message:
            return [first], []
        self.at = at
        if not first.endswith("in user code:"):
            message[0] = first.removesuffix("Graph execution error:") + message[0]
        return message, frames

    def _frames(self, at: int) -> tuple[list[Frame], int, int]:
        """The frames from ``at`` on, how far the whole traceback is indented, and the first line after them."""
        frames: list[Frame] = []
        base = 0
        while at < len(self.texts):
            text = self.texts[at]
            if frame := _FRAME.match(text):
                if not frames:
                    base = max(0, len(frame["indent"]) - 2)
                frames.append(Frame(frame["file"], int(frame["line"]), (frame["function"] or "").strip()))
            elif frames and (ahead := self._behind_gap(at)):
                at = ahead
                continue
            elif frames and not text.strip() and self._is_spaced(at):
                pass
            elif not frames or not text.startswith(" " * (base + 2)) or not text.strip():
                break
            elif not frames[-1].code and not _CARETS.match(text) and not _REPEATED.match(text):
                frames[-1] = frames[-1]._replace(code=text.strip())
            at += 1
        return frames, base, at

    def _is_spaced(self, at: int) -> bool:
        """Whether an empty line among frames is one of loguru's, which has them between frames and before the text."""
        follows = self.texts[at + 1] if at + 1 < len(self.texts) else ""
        return _FRAME.match(follows) is not None or (
            _EXCEPTION.match(follows) is not None and any(map(_is_marked, self.texts[max(0, at - _BEFORE) : at]))
        )

    def _behind_gap(self, at: int) -> int:
        """Where frames go on behind a gap at ``at``, or behind a cut line and the gap. 0: no gap, or no more frames."""
        gap = next((number for number in range(at, len(self.texts))[:2] if _LEFT_OUT.match(self.texts[number])), None)
        if gap is None:
            return 0
        ahead = range(gap + 1, len(self.texts))[:4]  # a piece of a frame may come first
        return next((number for number in ahead if _FRAME.match(self.texts[number])), 0)

    def _ends(self, text: str) -> bool:
        """Whether ``text`` is no longer part of the message before it."""
        return bool(
            is_noise(text)
            or is_logged(text)
            or _HEADER.search(text)
            or _FRAME.match(text)
            or _CHAIN.match(text)
            or is_announcement(text)
            or _FATAL.match(text)
            or text.startswith(("-- Process ", "usage: ", "Usage: ", "terminate called "))
            or _ABORT.match(text)
            or _SHELL.match(text)
        )

    def _dump(self) -> Raised:
        """A faulthandler dump: the frames of the thread that crashed, or of the first one shown."""
        start, text = self.at, self.texts[self.at].strip()
        timed_out = text.startswith("Timeout")
        self.at += 1
        frames: list[Frame] = []
        for ahead in range(self.at, min(self.at + 200, len(self.texts))):
            if _FATAL.match(self.texts[ahead]) or _HEADER.search(self.texts[ahead]):
                break
            if _THREAD.match(self.texts[ahead]) and (timed_out or self.texts[ahead].startswith("Current thread")):
                frames, _, self.at = self._frames(ahead + 1)
                if not timed_out:  # then the main thread is the last
                    break
        return Raised(
            text, tuple(reversed(frames)), self.label, self.numbers[start], self.numbers[self.at - 1], fatal=True
        )


def _is_marked(text: str) -> bool:
    """Whether loguru marks the frame as the one that caught the exception."""
    return text.startswith("> File ")


def _ends_announcement(text: str) -> bool:
    """Whether no traceback can follow an announcing line any more after ``text``."""
    return not (text.startswith((" ", "future:", "Message:", "handle:", "Call stack:")) or not text.strip())


def _ungroup(texts: list[str]) -> tuple[list[str], list[int]]:
    """Lines without the bars of an exception group's tree, and for each its number in the group.

    0 outside; negative for the tree's own rulers: ``_OPENS`` where a group's members begin.
    """
    plain: list[str] = []
    members: list[int] = []
    number = 0
    for text in texts:
        ruler = _MEMBER.match(text)
        bar = _GROUP.match(text)
        if ruler and (number or plain):
            number = int(ruler["number"]) if ruler["number"] else number
            plain.append("")
            members.append(_OPENS if ruler["opens"] else _RULER)
        elif bar:
            plain.append(text[bar.end() :])
            members.append(number)
        else:
            number = 0
            plain.append(text)
            members.append(0)
    return plain, members
