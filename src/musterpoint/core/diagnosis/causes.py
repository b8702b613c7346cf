"""Which of the exceptions that a program printed ended it, and which are symptoms, wrappers or quotations of it.

One kind of symptom has sources of its own, that torch's DataLoader raised because a worker of it is gone:
``_try_get_data`` in ``torch/utils/data/dataloader.py``, ``_pin_memory_loop`` in
``torch/utils/data/_utils/pin_memory.py``, ``_error_if_any_worker_fails`` in ``torch/csrc/DataLoader.cpp``. A worker
sends descriptors of its tensors, over a socket of ``multiprocessing``'s, when they are read.
"""

from __future__ import annotations

import itertools
import re

from musterpoint.core.diagnosis.message_lines import lines_given
from musterpoint.core.diagnosis.peer_texts import is_peer_lost
from musterpoint.core.diagnosis.program_source import After, Sources
from musterpoint.core.diagnosis.torchrun_table import HOROVODRUN, RAISED, Table
from musterpoint.core.diagnosis.traceback import Line, Raised, is_noise

STALE = 40
"""Lines after a traceback from which on the program has probably continued after it."""
_WRAPPER = re.compile(
    r"(?:subprocess\.)?CalledProcessError\b|[\w.]*\bChildFailedError\b|[\w.]*\bProcess(?:Raised|Exited)Exception\b"
    r"|(?:[\w.]*\.)?_?RemoteTraceback\b|[\w.]*\bSignalException\b"
    r"|\S+: Caught \w+ in (?:DataLoader worker|replica|pin memory)|\S+: DataLoader worker .* exited unexpectedly"
    rf"|SystemExit\b|RuntimeError: {HOROVODRUN}"
)
_LOST_CONNECTION = re.compile(
    r"(?:EOFError|ConnectionError|Connection(?:Reset|Aborted|Refused)Error|BrokenPipeError"
    r"|asyncio\.(?:exceptions\.)?IncompleteReadError)(?::|$)"
)
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^<|\\lib\\|/__autograph_generated_file")
TELLS = re.compile(r"(?:subprocess\.)?CalledProcessError\b|[\w.]*\b(?:ChildFailedError|ProcessExitedException)\b")
"""Wrappers that report a child's end; the child may have printed no error."""
_SIGINT, SIGABRT, _SIGTERM = 2, 6, 15
_OF_SHELL = 128
_KILLS = (4, SIGABRT, 7, 8, 9, 11, _SIGTERM)
_TOLD_TO_STOP = ("KeyboardInterrupt", "SystemExit")
_RAISES = re.compile(r"(?:^|[:;]\s*)(?:raise|assert)\b")
_READS = re.compile(r"torch[/\\]utils[/\\]data[/\\](?:dataloader|_utils[/\\]pin_memory)\.py$")
_READERS = ("_try_get_data", "do_one_step", "_pin_memory_loop")
_CHANNEL = re.compile(r"(?:lib[/\\](?:python[\d.]+[/\\])?|torch[/\\])multiprocessing[/\\]\w+\.py$")
"""Modules that carry what a worker sends: Python's own and torch's."""
_GONE = re.compile(
    r"(?:EOFError|Connection(?:Reset|Refused|Aborted)Error|BrokenPipeError|FileNotFoundError)(?::|$)"
    r"|RuntimeError: (?:received \d+ items of ancdata|unable to open shared memory object .*No such file)"
)
_WAITED = re.compile(r"(?:_?queue\.)?Empty$")
"""A worker had sent nothing for some seconds when the DataLoader saw that it is gone."""
_PINNING_ENDED = "RuntimeError: Pin memory thread exited unexpectedly"
_WORKER = re.compile(r"RuntimeError: DataLoader worker \(pid")
_ENDED_ITSELF = re.compile(r"exited unexpectedly with exit code|killed by signal: (?!Killed)")


def may_have_ended(lines: list[Line], raised: list[Raised], status: int | None, sources: Sources) -> list[Raised]:
    """The exceptions of which one may have ended the program, and those that it may quote; empty: none did."""
    top = [one for one in raised if not one.aside]
    while top and lines_after(lines, top[-1]) > STALE and not _ended_program(top[-1], status, sources):
        top.pop()
    top = [one for one in top if one is top[-1] or not one.timed_out]
    outlasting = _outlasting(top, sources)
    launched = any(map(is_wrapper, outlasting)) or _several(top)
    killed = killed_by(status)
    if killed and killed not in (_SIGINT, SIGABRT) and not (launched and (status or 0) > 0):
        # a launcher that saw another rank end first may tell one to end that is on its way out
        if killed == _SIGTERM and outlasting and outlasting[-1] is top[-1] and not lines_after(lines, top[-1]):
            return top
        return [one for one in top if one.fatal][-1:]
    if launched:
        return top
    return outlasting if outlasting and (outlasting[-1].fatal or killed == SIGABRT) else top if outlasting else []


def launches(top: list[Raised]) -> bool:
    """Whether the program is itself a launcher, by what it printed."""
    return any(map(is_wrapper, top)) or _several(top)


def _several(top: list[Raised]) -> bool:
    """Whether several ranks print."""
    return len({one.label for one in top if one.label}) > 1


def killed_by(status: int | None) -> int:
    """The signal that ended a program, also one that a shell tells of; 0: none."""
    if status is None or status >= 0:
        return status - _OF_SHELL if status is not None and status - _OF_SHELL in _KILLS else 0
    return -status


def _outlasting(top: list[Raised], sources: Sources) -> list[Raised]:
    """Those that the program didn't survive; of a chain its end decides."""
    return [one for one in top if not one.led_on and not survived(one, sources)]


def survived(raised: Raised, sources: Sources) -> bool:
    """Whether the program went on after an exception that it printed.

    One that nothing catches has a traceback from the program's first line on. One whose traceback begins within a
    function was caught there, unless its source has nothing that catches it: then something else cut the traceback,
    or a logger was given the exception.
    """
    if raised.fatal or raised.group == "member" or raised.label or not raised.headed or not raised.frames:
        return False  # torch tags what nothing has caught
    then = what_then(raised, sources)
    if then is None:
        return raised.logged or not (raised.whole or is_wrapper(raised))
    return then == "on" or (then == "uncaught" and raised.logged)


def what_then(raised: Raised, sources: Sources) -> After | None:
    """What the code at the begin of a traceback did then; None: that can't be told."""
    if not raised.headed or not raised.frames:
        return None
    file, line, _function, code = raised.frames[0]
    return sources.after(file, line, code, raised.name)


def lines_after(lines: list[Line], raised: Raised) -> int:
    """How many lines that mean something follow an exception; of more than :data:`STALE` not how many more."""
    following = itertools.islice(lines, raised.end + 1, None)
    telling = (line for line in following if line.label == raised.label and not is_noise(line.text))
    return sum(1 for _ in itertools.islice(telling, STALE + 1))


def _ended_program(raised: Raised, status: int | None, sources: Sources) -> bool:
    """Whether a traceback ended the program, though much output follows it."""
    if raised.aside or not raised.headed or not raised.frames or (status not in RAISED and (status or 0) >= 0):
        return False
    then = what_then(raised, sources)
    return (status in RAISED and raised.whole) if then is None else then != "on"


def that_ended_it(lines: list[Line], top: list[Raised], status: int | None, sources: Sources) -> Raised:
    """The exception of ``top`` that ended the program: the last, unless an earlier one has that in its message.

    An exception that nobody catches has a traceback from the program's first line on. So the last one is a quotation
    (of a worker, a thread, a logger) where its traceback begins within a function, and one before it does not.
    """
    last = top[-1]
    outlasting = _outlasting(top, sources)
    if any(map(is_wrapper, outlasting)) or _several(top):
        return last
    if outlasting and outlasting[-1] is not last:
        return outlasting[-1]
    if last.fatal or last.group or any(map(is_wrapper, top)) or not (status is None or status in RAISED):
        return last
    for at in reversed(range(len(top) - 1)):
        one = top[at]
        if one.label != last.label or one.fatal or one.group or last.start - one.end > STALE:
            break
        if not one.whole:
            continue
        if colon_before(lines, one, top[at + 1]):
            return one
        then = what_then(one, sources)
        open_ended = lines_given(one.frames[-1].code, one.text.partition("\n")[0]) is None
        quoted = open_ended and (_is_users_own(one) if then is None else then != "on")
        if then != "on" and (not last.whole or (quoted and adjoin(lines, one, top[at + 1]))):
            return one
        break
    return last


def adjoin(lines: list[Line], outer: Raised, inner: Raised) -> bool:
    """Whether nothing stands between two tracebacks of one program, and the second wasn't raised while the first was
    handled.
    """
    between = (line.text for line in lines if outer.end < line.number < inner.start and line.label == outer.label)
    return (
        outer.label == inner.label
        and not inner.chained
        and not inner.fatal
        and not any(text.strip() for text in between)
    )


def colon_before(lines: list[Line], outer: Raised, inner: Raised) -> bool:
    """Whether ``inner`` is a traceback in the message of ``outer`` (``worker failed:``, then its traceback)."""
    return outer.text.endswith(":") and ": " in outer.text and not is_wrapper(outer) and adjoin(lines, outer, inner)


def innermost(raised: list[Raised], table: Table | None) -> Raised | None:
    """The exception that wrappers and symptoms come from: that of torchrun's root-cause rank if it is named."""
    real = [one for one in raised if not (is_wrapper(one) or _reads_worker(one))]
    named = [one for one in real if table and one.label == str(table.root.rank)]
    own = [one for one in named or real if not is_symptom(raised, one)]
    if named and not own:  # a rank that fails may take longer to end than another that notices it at once
        own = [
            one
            for one in real
            if (one.start < named[-1].start or (table and table.ended_by_itself(one.label)))
            and not is_symptom(raised, one)
        ]
    chosen = own or named or real
    return _quoting_it(raised, chosen[-1]) if chosen else None


def own_of_another(raised: list[Raised]) -> Raised | None:
    """The last exception that is a rank's own."""
    own = [one for one in raised if one.label.isdecimal() and not is_wrapper(one) and not is_symptom(raised, one)]
    return next((one for one in reversed(own) if one.name not in _TOLD_TO_STOP), None)


def _quoting_it(raised: list[Raised], one: Raised) -> Raised:
    """The exception of the same rank that has ``one`` in its message; ``one`` itself where there is none."""
    if one.whole or one.chained or one.aside or one.fatal:
        return one
    before = [other for other in raised if other.label == one.label and other.end < one.start]
    outer = before[-1] if before else one
    quotes = outer.whole and not (outer.group or outer.aside or outer.fatal or is_wrapper(outer))
    return outer if quotes and _is_users_own(outer) else one


def whole_group(raised: list[Raised], one: Raised) -> Raised:
    """The exception group that ``one`` is a member of, however deep; itself if it is none."""
    if not (one.group and one.aside):
        return one
    groups = [
        other
        for other in raised
        if other.group == "group" and not other.aside and other.label == one.label and other.start <= one.start
    ]
    return groups[-1] if groups else one


def is_symptom(raised: list[Raised], one: Raised) -> bool:
    """Whether a failure elsewhere caused an exception, or the one that it is chained to.

    An exception that the user's own code raises is never one, whatever its text.
    """
    chain = [other for other in raised if other.label == one.label and other.end <= one.end]
    while chain:
        link = chain.pop()
        if is_peer_lost(link.text) and not _is_users_own(link):
            return True
        if not link.chained:
            break
    return False


def lost_connection(raised: Raised) -> bool:
    """Whether a library says no more than that a connection, or a file, has ended."""
    return not raised.fatal and _LOST_CONNECTION.match(raised.text) is not None and not _is_users_own(raised)


def _is_users_own(raised: Raised) -> bool:
    """Whether a statement of the user's code raised it, not a library that this code called."""
    inner = raised.frames[-1] if raised.frames else None
    return inner is not None and not LIBRARY.search(inner.file) and _RAISES.search(inner.code) is not None


def origin(raised: list[Raised], last: Raised) -> Raised:
    """The exception whose frames to show: the original where it was copied from another process and raised again."""
    index = raised.index(last)
    if last.chained and index and raised[index - 1].text.split(".")[-1] == last.text.split(".")[-1]:
        return raised[index - 1]
    return last


def causes_of(raised: list[Raised], one: Raised) -> tuple[str, ...]:
    """The first lines of what ``one`` was raised from, the nearest first: copies of it, and wrappers, tell no more."""
    own = [other for other in raised if other.label == one.label]
    at = own.index(one) if one in own else 0
    found: list[str] = []
    while own and own[at].caused and at:
        at -= 1
        said = own[at].text.partition("\n")[0]
        if not is_wrapper(own[at]) and said.split(".")[-1] != one.text.partition("\n")[0].split(".")[-1]:
            found.append(said)
    return tuple(found)


def is_wrapper(raised: Raised) -> bool:
    """Whether it only tells of another exception, or of the end of a child."""
    return not raised.fatal and _WRAPPER.match(raised.text) is not None


def _reads_worker(one: Raised) -> bool:
    """Whether a DataLoader raised it while it was reading from a worker, and no code of the user's did."""
    reads = [at for at, each in enumerate(one.frames) if each.function in _READERS and _READS.search(each.file)]
    below = one.frames[reads[-1] + 1 :] if reads else ()
    if not (_GONE.match(one.text) or _WAITED.match(one.text)):
        return False
    # a pickle of the user's classes may raise anything there
    return bool(below) and all(_CHANNEL.search(each.file) for each in below)


def is_of_worker(text: str) -> bool:
    """Whether torch's ``text`` tells that a worker has ended."""
    return _WORKER.match(text) is not None


def tells_of_worker(raised: list[Raised], one: Raised) -> str:
    """The text that tells best how the worker ended which ``one`` is about; empty: ``one`` is about none.

    ``raised`` is all of the tail: torch's handler of ended children may raise a second exception, or be late.
    """
    if not (_reads_worker(one) or one.text.startswith(_PINNING_ENDED) or _WORKER.match(one.text)):
        return ""
    told = [other.text for other in raised if other.label == one.label and _WORKER.match(other.text)]
    return max(told, key=len) if told else one.text


def lost_worker(raised: list[Raised], one: Raised) -> bool:
    """Whether ``one`` says that a worker went away while it was read from, and nothing that it ended by itself."""
    told = tells_of_worker(raised, one)
    of_it = [other for other in raised if other.label == one.label and _reads_worker(other)]
    if not (_reads_worker(one) or one.text.startswith(_PINNING_ENDED)):
        of_it = [other for other in of_it if one.chained and other.led_on and other.end < one.start]
    cut = any(not _WAITED.match(other.text) for other in of_it)
    return bool(told) and cut and _ENDED_ITSELF.search(told) is None
