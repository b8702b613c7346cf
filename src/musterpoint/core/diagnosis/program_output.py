"""The error that ended a program: found in what it printed, in its own words."""

from __future__ import annotations

import itertools
import re
import signal
from collections import Counter
from typing import Callable, Iterable, Sequence

from musterpoint.base import exit_codes
from musterpoint.core.diagnosis.causes import (
    LIBRARY,
    SIGABRT,
    STALE,
    TELLS,
    adjoin,
    causes_of,
    colon_before,
    innermost,
    is_of_worker,
    is_symptom,
    is_wrapper,
    killed_by,
    launches,
    lines_after,
    lost_connection,
    lost_worker,
    may_have_ended,
    origin,
    own_of_another,
    survived,
    tells_of_worker,
    that_ended_it,
    what_then,
    whole_group,
)
from musterpoint.core.diagnosis.last_words import (
    COMPLAINS,
    Error,
    error_line,
    is_ordinary,
    killed_line,
    last_words,
    said_before,
    said_outside,
    words_of,
)
from musterpoint.core.diagnosis.message_lines import MESSAGE_LINES, shape_of
from musterpoint.core.diagnosis.peer_texts import is_own_mistake, is_peer_lost
from musterpoint.core.diagnosis.program_source import Sources, exits_with_a_value, find_exit_text
from musterpoint.core.diagnosis.torchrun_table import CRASHES, RAISED, Table
from musterpoint.core.diagnosis.traceback import Frame, Line, Raised, lines_of, parse

__all__ = ["Error", "abort_code", "as_told", "find_error", "inner_code", "until_abort"]

SHOWN_FRAMES = 2
CLOSING = 4
"""Lines at an output's end in which an error is followed by what only closes."""
_FAILED_RANK = re.compile(
    r"[WE]\d{4} .*\] (?:Sending process \d+ closing signal|failed \(exitcode: )"
    r"|Process \d+ exit with status code \d+\.$"
)
"""What torchrun and horovodrun log as soon as one of their ranks has failed."""
_SHUT_DOWN = "Horovod has been shut down"
"""What all ranks raise once another one has raised something or ended, in whatever order their words come."""
_LAUNCHES = re.compile(
    r"python|torchrun|torch\.distributed|accelerate|deepspeed|mpirun|mpiexec|horovodrun|\.(?:py|sh)\b"
)
_STATUS = re.compile(r"returned non-zero exit status (\d+)|died with (?:<Signals\.\w+: |unknown signal )(\d+)")
_ABORT = re.compile(rb"^Abort\(\d+\)[^\n]*: application called MPI_Abort\([^\n]*, (-?\d+)\) - process (\d+)$", re.M)
_MORE = re.compile(r"[\s|]*and (\d+) more exceptions?$")
_PROCESS = re.compile(r"process \d+ terminated with (?:exit code (\d+)|signal (SIG\w+))")
_BAD_USAGE = 2
"""The exit code after a wrong argument: argparse's, click's, that of Python and of shells."""
_USAGE = re.compile(r"\s*(?:usage|Usage|USAGE):")
_PARSER = re.compile(r"(?:[\w./+-]+(?: [\w.-]+)*: )?error: (?![\d.]+$)|[Uu]nknown option:? -")
"""How argparse, optparse, jsonargparse and Python begin it. The name of a subcommand may stand behind the program's."""
_FLAGS = re.compile(r"FATAL Flags parsing error:$")
"""absl's; which flag it is stands in the next line."""
_REPORTS = re.compile(
    r"(?i)\bexit(?:s|ed|ing)? (?:code|status|with)\b|\bexit \d|\bnon-?zero\b|\breturned \d"
    r"|\b(?:on|at|near|error:?) line:? ?\d|\bcommand\b.* failed\b"
    r"|\b(?:train\w*|job|run|script|command|python\S*|program|process|launch\w*|it|step) "
    r"(?:(?:has|was|have) )?(?:fail|crash|abort|die|end|exit|kill|terminat|stop)\w*|\bsee (?:above|the log)"
    r"|^make(?:\[\d+\])?: \*\*\* |^Abort\(|^(?:[\w./-]+: )?(?:(?i:error|fatal|critical)\W+)?[\w ./-]+ failed\W*$"
    r"|error\W*[\d.]+$"
)
"""What tells of the exception once more: of a shell's ``trap … ERR``, of ``make``."""
_CLOSES = re.compile(
    r"(?i)\b(?:clean\w*|clos\w+|done|finish\w*|complet\w+|bye|stop\w*|shut\w*|sync\w*|upload\w*|sav(?:ed|ing)|remov\w+"
    r"|releas\w+|delet\w+|giv\w+ up|tear\w*|flush\w*|copy\w*|copied|archiv\w*|exit\w*|end(?:ed|ing)?|fail\w*|crashed"
    r"|kill\w*|real|user|sys|pagefaults|elapsed|duration|took|total|report\w*|log(?:s|ged)?)\b"
)
"""What a ``trap … EXIT``, or ``time``, prints when the program has ended, however it did."""
_NOTHING = re.compile(
    r"(?i)\b(?:no|not|nothing)\b.* to (?:\w+ )?(?:clean|clos|sync|upload|save|remov|releas|delet|flush|copy)"
)
"""Among those, what there was nothing to close of."""
_NOT_FOUND = re.compile(r"\S+: (?:line )?\d+: .+: (?:command )?not found$")
"""A shell's word that ends a script with 127, or with the code of something else."""
_TABLE = re.compile(r"[-dl][-rwx]{9}|(?:.*\s\d[\w.,]*%?){3}")
"""A row that ``ls``, ``df`` or ``free`` prints."""
_TRACE = re.compile(r"\++ ")
"""What ``set -x`` puts before a command."""


def find_error(
    tail: bytes,
    status: int | None = None,
    source: Callable[[str], str | None] = lambda file: None,
    programs: Callable[[], Iterable[str]] = tuple,
    beside: bytes = b"",
    told: str = "",
    survived: Sequence[str] = (),
) -> Error | None:
    """The error that ended the program which wrote ``tail``; None where it wrote nothing, without a text where it wrote
    nothing but exceptions that it survived.

    Usually the last exception that the program didn't survive. With a wrapper (``CalledProcessError``, torchrun's
    table, a DataLoader worker's copy) or several ranks in one tail, it is the one that isn't a symptom of another. Else
    it is what the program said last. ``status`` is as in ``Evidence``; ``source`` gives the text of a file that a
    traceback names, None where it can't; ``programs`` the texts of the program's files. ``beside`` is the end of its
    stdout where ``tail`` is of its stderr alone; ``told`` the text of an exception in it that Python told us of, and
    ``survived`` the first lines of some that another program came after, which ended so.
    """
    lines, sources = lines_of(tail), Sources(source)
    raised = [_cut(one, told) for one in parse(lines, sources) if not one.timed_out or status in (1, None)]
    top = may_have_ended(lines, raised, status, sources)
    if not top:
        words, went_on_after = _of_words(lines, raised, status, sources, programs, lines_of(beside))
        if went_on_after is None:
            return _with_survived(words, lines, raised)
        if went_on_after.aside:
            return _of_exception(raised, went_on_after, went_on_after)
        top = [one for one in raised if not (one.aside or one.fatal) and one.end <= went_on_after.end]
    ended_it = that_ended_it(lines, top, status, sources)
    if not launches(top):
        # the program caught the exception and then ended with a text or a usage error, or it is a child's
        said_after = [line for line in said_outside(lines, raised, behind_texts=True) if line.number > ended_it.said_at]
        said = find_exit_text([line.text for line in said_after], programs()) if status == 1 else ""
        if said := said or _usage_error(said_after, status):
            return _with_survived(Error(said, "line", symptom=is_symptom(raised, ended_it)), lines, raised)
    if _has_ended(ended_it, top):
        since = [line for line in said_outside(lines, raised) if line.number > ended_it.end]
        later = ended_it.text.partition("\n")[0] in survived
        words = _words_behind(since, status, bool(beside), ended_it.inline or later) or _own_words(beside, status)
        if words := words or (Error("", "last") if later and status not in RAISED else None):
            lost = is_peer_lost(words.text) or is_symptom(raised, ended_it)
            return _with_survived(words._replace(symptom=lost), lines, raised)
    error = _quoting(lines, raised, ended_it, top[-1]) or _leading_error(lines, raised, top, tail)
    if error.kind != "fatal":  # then those of programs that ended before
        ended = (one for one in raised if one.whole and one.end < ended_it.start and not (one.led_on or one.label))
        raised = [] if error.wrapper else [*ended]
    return _with_survived(error, lines, raised)


def _cut(one: Raised, told: str) -> Raised:
    """``one`` without the lines that followed its message, where that is known."""
    more = told.count("\n")
    its = told and more + 1 < MESSAGE_LINES and one.text.startswith(f"{told}\n") and not one.label
    return one._replace(text=told, end=one.said_at + more) if its else one


def _of_words(
    lines: list[Line],
    raised: list[Raised],
    status: int | None,
    sources: Sources,
    programs: Callable[[], Iterable[str]],
    beside: list[Line],
) -> tuple[Error | None, Raised | None]:
    """What a program said that no exception ended, and the last exception before its end where that says more."""
    outside = said_outside(lines, raised)
    killed = killed_by(status)
    if killed == SIGABRT and (said := said_before(outside, len(lines))):
        return _line(said), None
    if killed:
        error = error_line(outside) if killed == SIGABRT else killed_line(outside)
        lost = any(not one.aside and not lines_after(lines, one) and is_symptom(raised, one) for one in raised[-1:])
        return error and error._replace(symptom=lost or is_peer_lost(error.text)), None
    all_said = said_outside(lines, raised, behind_texts=True)
    if status == 1 and (said := find_exit_text([line.text for line in all_said], programs())):
        return _line(said), None
    others = [one for one in raised if not (one.ignored or one.fatal or one.group == "member")]
    last = others[-1] if others and lines_after(lines, others[-1]) <= STALE else None
    since = [line for line in outside if not others or line.number > others[-1].end]
    error = error_line(since)
    if status == 1 and ((last is None and error is None) or exits_with_a_value(programs())):
        error = _near_error(since) or last_words(since) or error
    if error is None or error.kind == "last":
        printed = error_line(said_outside(beside, parse(beside)))
        error = printed if printed is not None and printed.kind == "line" else error
    if error is not None and error.kind == "line":
        return _line(error.text), None
    if last is not None:
        caught = what_then(last, sources) == "on"
        follows = [line for line in all_said if line.number > last.said_at] if caught else since
        follows += [] if last.aside else beside
        if not (survived(last, sources) and any(is_ordinary(line.text) for line in follows)):
            return None, last
    error = error or error_line(outside)
    return error and error._replace(kind="last", symptom=is_peer_lost(error.text)), None


def _near_error(lines: list[Line]) -> Error | None:
    """The error line just before last words that complain of nothing, which a trap may print, or advice."""
    said = [line for line in lines if line.text.strip()]
    shapes = Counter(shape_of(line.text) for line in said)
    if not said or COMPLAINS.search(said[-1].text):
        return None
    found = (error_line([line]) for line in reversed(said[-CLOSING:-1]) if shapes[shape_of(line.text)] == 1)
    return next((error for error in found if error is not None and error.kind == "line"), None)


def _line(text: str) -> Error:
    return Error(text, "line", symptom=is_peer_lost(text))


def _with_survived(error: Error | None, lines: list[Line], raised: list[Raised]) -> Error | None:
    """``error`` with the last exception before it that the program survived."""
    told = [one for one in raised if not one.fatal and one.group != "member"]
    said = told[-1].text.partition("\n")[0] if told else ""
    stale = told and not told[-1].whole and lines_after(lines, told[-1]) > STALE
    if not said or stale or (error is not None and said in error.text):
        return error
    return (error or Error("", "last"))._replace(before=said)


def ends_with_exception(tail: bytes, source: Callable[[str], str | None] = lambda file: None) -> bool:
    """Whether a traceback is the last that a program printed, and nothing caught the exception."""
    lines, sources = lines_of(tail), Sources(source)
    raised = [one for one in parse(lines, sources) if one.headed and not one.aside]
    if not raised or survived(raised[-1], sources):
        return False
    return not any(line.text.strip() for line in lines if line.number > raised[-1].end)


def ends_with_error(tail: bytes, source: Callable[[str], str | None] = lambda file: None) -> bool:
    """Whether the last that a program printed is an exception that nothing caught, a crash, or of a wrong option."""
    said = [line for line in lines_of(tail) if line.text.strip()]
    if said and _PARSER.match(said[-1].text):
        return True
    crashed = [one for one in parse(said) if one.fatal and not one.timed_out]
    return ends_with_exception(tail, source) or bool(crashed and lines_after(said, crashed[-1]) == 0)


def raised_aside(tail: bytes) -> str:
    """The first line of an exception that ended a thread or a child shortly before a program fell silent; or empty."""
    lines = lines_of(tail)
    last = next(reversed(parse(lines)), None)
    if last is None or not last.aside or last.ignored or last.group or lines_after(lines, last) > STALE:
        return ""
    return last.text.partition("\n")[0]


def as_told(said: Error | None, chain: tuple[Raised, ...], status: int | None) -> Error | None:
    """The error of a rank that told of the exception which ends it, beside ``said``, what was read in its output.

    The output has more where both mean the same; and a launcher in a rank tells of the rank that it started itself.
    """
    last = chain[-1]
    if status not in RAISED or is_wrapper(last) or "ExceptionGroup" in last.name:
        return said
    known = said is not None and (said.wrapper or is_of_worker(said.text) or _same_exception(said.text, last.text))
    if said is not None and said.kind == "exception" and known:
        return said
    return _of_exception([*chain], last, top=last)


def _same_exception(printed: str, told: str) -> bool:
    """Tells whether both begin with the same line; Python prints its suggestions behind it."""
    one, other = printed.partition("\n")[0], told.partition("\n")[0]
    return one.startswith(other) or other.startswith(one)


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
        return _of_exception(raised, top[-2], top=top[-2])._replace(text=whole)
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
        told = [range(one.start, one.end + 1) for one in raised]
        line = error_line([line for line in lines[: last.start] if not any(line.number in each for each in told)])
        if line is not None and line.kind == "line":
            return line._replace(wrapper=True, symptom=is_peer_lost(line.text))
    if last.group == "group":
        error = _group_error(raised, last, lines)._replace(wrapper=wrapper)
    else:
        error = _of_exception(raised, last, top[-1])
        tells = TELLS.match(last.text) is not None and _LAUNCHES.search(last.text) is not None
        error = error._replace(wrapper=wrapper, second_hand=not error.symptom and tells)
    if last.fatal and (said := _symptom_before(lines, last.start)):
        error = error._replace(text=said, symptom=True)
    elif last.fatal and last.text.endswith(CRASHES[SIGABRT]) and (said := said_before(lines, last.start)):
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
    error = _of_exception(raised, ended_it, top=ended_it)
    return error._replace(text=f"{error.text}\n{last.text}") if quoted and last.text != error.text else error


def _of_exception(raised: list[Raised], one: Raised, top: Raised) -> Error:
    """The error that an exception is; ``top``: whose frames are the program's, where ``one`` is another process's."""
    symptom = is_symptom(raised, one)
    return Error(
        tells_of_worker(raised, one) or one.text,
        "fatal" if one.fatal else "exception",
        _user_frames(origin(raised, one), top),
        symptom=symptom,
        lost_connection=not symptom and lost_connection(one),
        causes=causes_of(raised, one),
        lost_child=lost_worker(raised, one),
    )


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
    if root.status == -SIGABRT and (said := _symptom_before(lines, len(lines))):
        return Error(said, "line", (), True, False, root.rank, root.local_rank, symptom=True)
    how = f"was killed by signal {-root.status}" if root.status < 0 else f"ended with exit code {root.status}"
    text = f"the program's own {table.launcher} says: its rank {root.rank} {how}"
    if root.status > 0:
        until = next((line.number for line in lines if _FAILED_RANK.match(line.text)), 0)
        before = [line for line in lines if line.number < until and line.label in ("", str(root.rank))]
        words = last_words(before) if root.status == 1 else error_line(before)  # argparse ends with 2
        text = f"{words.text}\n{text}" if words is not None and words.kind == "line" else text
    return Error(text, "line", (), True, True, root.rank, root.local_rank)


def _symptom_before(lines: list[Line], number: int) -> str:
    """The last line before an abort in which a library reports a lost peer; empty if there is none."""
    said = [line.text.strip() for line in lines if line.number < number and not line.text.startswith("frame #")]
    said = said[-STALE:]
    symptoms = [] if is_own_mistake("\n".join(said)) else [text for text in said if is_peer_lost(text)]
    telling = [text for text in symptoms if not text.startswith("terminate called")]
    return words_of((telling or symptoms or [""])[-1])


def _user_frames(raised: Raised, outer: Raised) -> tuple[Frame, ...]:
    """The innermost frames of the user's code in ``raised`` or else in ``outer``; without any, the innermost of all."""
    for one in (raised, outer):
        own = [frame for frame in one.frames if not LIBRARY.search(frame.file)]
        if own:
            return tuple(own[-SHOWN_FRAMES:])
    return raised.frames[-1:]


def _signal_number(name: str) -> int:
    return int(getattr(signal, name, signal.SIGKILL))


def _usage_error(lines: list[Line], status: int | None) -> str:
    """The error of a command line that the program didn't understand, as parsers of options print it, among ``lines``,
    which came behind a traceback; empty: there is none.

    ``status`` is as in ``Evidence``. Only absl ends with the code of an exception; its words are like nobody else's.
    """
    texts = [line.text.rstrip() for line in lines]
    for at in reversed(range(len(texts))):
        if _FLAGS.match(texts[at]):
            return "\n".join(text.strip() for text in texts[at : at + 2])
    if status is None or status <= 0 or status in RAISED:
        return ""
    for text in reversed(texts):
        if status == _BAD_USAGE and _PARSER.match(text):
            return text.strip()
    usage = next((at for at, text in enumerate(texts) if _USAGE.match(text)), None)
    if usage is None:
        return ""
    said_of_it = error_line(lines[max(0, usage - 1) :])  # fire prints its error before the usage, others behind it
    return said_of_it.text if said_of_it is not None and said_of_it.kind == "line" else ""


def _has_ended(one: Raised, top: list[Raised]) -> bool:
    """Tells whether all of an exception was read: what follows is another program's, or its script's."""
    whole = one.text.count("\n") + 1 < MESSAGE_LINES and not launches(top)
    return whole and one is top[-1] and not (one.label or one.fatal or one.group)


def _own_words(stdout: bytes, status: int | None) -> Error | None:
    """The error that a script printed last to its stdout, before a code of its own."""
    error = _words_behind(lines_of(stdout.rstrip())[-1:], status, True, False)
    return error if error is not None and error.kind == "line" and status not in (None, *RAISED) else None


def _words_behind(lines: list[Line], status: int | None, apart: bool, texts: bool) -> Error | None:
    """The words that ended a script by ``lines``, all behind an exception; None: that one did.

    ``status`` is as in ``Evidence``; ``apart``: the lines are of its stderr alone; ``texts``: a program of it may end
    with any text. What came last ended it: an error line, or what it said before another exit code than that of an
    exception. What only closes, or tells of the exception once more, may come from a trap.
    """
    shapes = Counter(shape_of(line.text) for line in lines)
    lines = [line for line in lines if not (_TRACE.match(line.text) or _REPORTS.search(line.text))]
    if status in RAISED:
        lines = [line for line in lines if not _NOT_FOUND.search(line.text)]
    error = error_line(lines)
    error = error if error is not None and (error.kind == "line" or status not in (None, *RAISED)) else None
    went_on = [at for at, line in enumerate(lines) if is_ordinary(line.text) and not _only_closes(line.text)]
    last = next((at for at in reversed(went_on) if shapes[shape_of(lines[at].text)] == 1), None)
    if last is None or status not in RAISED:
        return error if went_on or (error is not None and error.kind == "line") else None
    behind = error_line(lines[last + 1 :])
    if behind is not None and behind.kind == "line":
        return behind
    said = last_words(lines[: last + 1]) if texts else None
    if said is not None and COMPLAINS.search(said.text.partition("\n")[0]):
        return said
    # a word more may be anything, also a trap's; behind other output it is the script's
    return error or (said if (apart or went_on[0] < last) and not _TABLE.match(lines[last].text) else None)


def _only_closes(text: str) -> bool:
    return _CLOSES.search(text) is not None and (_NOTHING.search(text) is not None or not COMPLAINS.search(text))
