"""Makes the failures of ranks, services and launchers that ended, by their status and what they printed."""

from __future__ import annotations

import os
import re
from typing import Callable, Iterable, Mapping, Sequence

from musterpoint.base import exit_codes
from musterpoint.base.exit_codes import signal_name
from musterpoint.base.failure import ERROR_SHARE, LONGEST_INSIDE, MOST_ENDED, Failure, Kind, after_others, fit
from musterpoint.base.untrusted import clip
from musterpoint.core.diagnosis import program_output
from musterpoint.core.diagnosis.causes import is_wrapper
from musterpoint.core.diagnosis.evidence import DiagnosisContext, Evidence, ProcessEnd, Seen
from musterpoint.core.diagnosis.hints import hint_for
from musterpoint.core.diagnosis.last_words import COMMAND, Error
from musterpoint.core.diagnosis.peer_texts import is_peer_lost
from musterpoint.core.diagnosis.traceback import is_greeting

KILLED = 137
"""The exit code after SIGKILL, also of a shell whose child was killed."""
ABORTED = 134
"""The exit code after SIGABRT."""
OPEN_MPI_GAVE_UP = 14
"""``MPI_ERR_UNKNOWN``, with which Open MPI 5 ends ranks when another one's connection closes ("Socket closed")."""
OPEN_MPI_ECHOES = (OPEN_MPI_GAVE_UP, 195)
"""And -61, ``PMIX_ERR_LOST_CONNECTION``: with which it ends ranks whose daemon has gone, as the system sees it."""
MOST_CAUSES = 3
MOST_OF_ANOTHER = 200
"""Bytes of an exception that the first one came from, or that the program survived."""
MPI_RAISED = b"mpi4py.MPI.Exception: "
_OUT_OF_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU|MPS backend) out of memory|\bOutOfMemoryError\b|CUDA_ERROR_OUT_OF_MEMORY"
    r"|CUDA error: out of memory|failure '?out of memory|\bMemoryError\b|[Cc]annot allocate memory"
    r"|can't allocate memory|OOM when allocating|RESOURCE_EXHAUSTED: .*[Oo]ut of memory|std::bad_alloc"
    r"|NRT_RESOURCE|[Ff]ailed to allocate .* on (?:NC|device)"
)
_INFRASTRUCTURE = re.compile(
    r"uncorrectable ECC|GPU is lost|fallen off the bus|[Dd]river/library version mismatch|Input/output error"
    r"|Stale file handle|Remote I/O error|Transport endpoint is not connected"
    r"|(?:CUDA error: |Cuda failure (?:\d+ )?')(?:hardware|unknown error|device not ready)|NVLink error|Xid \d+"
)
_CHILD_KILLED = re.compile(r"killed by signal: Killed|SIGKILL|\bexit ?code:? -9\b")
"""What DataLoader, subprocess and multiprocessing say of a child that was killed."""
_CHILD_GONE = re.compile(r"terminated abruptly")
"""What concurrent.futures' pools say of one, and of one that crashed."""

_TAKEN_PORT = re.compile(rb"[^\n]*\bport: ([0-9]+)\b[^\n]*\bEADDRINUSE\b[^\n]*")
"""What torch's TCPStore says of a port that another process has."""


def failure_by(evidence: Evidence, context: DiagnosisContext) -> Failure | None:
    """The failure of a rank as it is seen; None: there is none."""
    return _SEEN[evidence.seen](evidence, context)


def _ended(evidence: Evidence, context: DiagnosisContext) -> Failure:
    """The failure of a launch of ours in the rank, where that ended it; else the rank's own."""
    failed = [one for one in evidence.launches if one is not None]
    after = _after_launches(evidence, bool(failed)) if evidence.launches else None
    failure = failure_of_rank(after or evidence, context)
    cause = next((one for one in reversed(failed) if one.code == failure.code), None)
    if cause is not None and after is None:
        return cause
    if evidence.world == 1:
        failure = failure._replace(lost_connection=False)  # there is no other rank
    if failure.kind != "peer" or not evidence.ended_well:
        return failure
    if len(evidence.ended_well) >= evidence.world - 1:
        return after_others(failure, evidence.ended_well, evidence.world)
    # the leader knows of other hosts' ranks
    return failure._replace(ended=tuple(sorted(evidence.ended_well))[:MOST_ENDED])


def _after_launches(evidence: Evidence, failed: bool) -> Evidence | None:
    """The evidence since the last launch of ours; None where launches that have ``failed`` may explain the end, as that
    output has no other program's error.
    """
    both = zip((evidence.tail, evidence.stdout_tail), evidence.since_launch, strict=True)
    tails = [tail[-count:] if count else b"" for tail, count in both]
    found = [program_output.find_error(tail, evidence.status) for tail in tails if tail]
    errors = [error for error in found if error is not None and not error.wrapper]
    if failed and not any(one.kind in ("exception", "fatal") or COMMAND.match(one.text) for one in errors):
        return None
    return evidence._replace(tail=tails[0], stdout_tail=tails[1])


def _ended_well(evidence: Evidence, context: DiagnosisContext) -> Failure | None:
    """The failure that a rank's script hid, by the last words of the rank."""
    shown = program_output.ends_with_error(evidence.tail or evidence.stdout_tail, context.files.read)
    return failure_of_rank(evidence, context) if shown else None


def _raising(evidence: Evidence, context: DiagnosisContext) -> Failure | None:
    """The failure that a rank which still runs will be, by its own word or its last output; None for a symptom."""
    told = evidence.raised
    if not _ends_with_exception(evidence, context) if told is None else is_wrapper(told.chain[-1]):
        return None  # a launcher prints how its rank ended only now
    failure = _ended(evidence, context)
    return failure if not failure.is_symptom and failure.host == context.host and failure.code == 1 else None


def _aborting(evidence: Evidence, context: DiagnosisContext) -> Failure | None:
    """The failure of a rank that asked its MPI to end the job; its code is the one that the rank gave."""
    for tail in (evidence.tail, evidence.stdout_tail):
        if (code := program_output.abort_code(tail, evidence.rank)) is not None:
            return failure_of_rank(evidence._replace(status=code, aborted=True), context)._replace(code=code)
    return None


def failure_of_rank(end: Evidence, context: DiagnosisContext) -> Failure:
    """The failure of a rank: its exact code, its class, and the reason, the most important first.

    If the rank is the user's own launcher, which ended with 1 for a failed child, it gets the child's code.
    """
    tails = (end.tail, end.stdout_tail)
    if end.aborted:
        tails = (program_output.until_abort(end.tail), program_output.until_abort(end.stdout_tail))
    outside, role = context.job.outside, context.job.role
    blank = Failure(context.host, 1, "user", "user", "", at=end.at, role=role)
    if not outside and context.job.leads:
        blank = blank._replace(rank=end.rank, local_rank=end.local_rank)
    name = outside and f"the program of {outside}"
    if role:
        name = role if context.job.role_is_one else f"rank {end.rank} of {role}"
    failure = _of_program(blank, end, tails, context, name)
    return failure._replace(kind="peer") if failure.kind in ("user", "infra") and _is_echo(end) else failure


def _is_echo(end: Evidence) -> bool:
    """Whether an MPI made a rank end for another one's sake.

    Open MPI may end the stub of a rank first that ends with its own code then: the one that it gave to ``MPI_Abort``.
    """
    if not end.given_up:
        return end.mpi and end.status == OPEN_MPI_GAVE_UP
    if end.ends_anyhow or end.status is None or end.status < 0 or end.status in OPEN_MPI_ECHOES:
        return True
    return any(MPI_RAISED in tail for tail in (end.tail, end.stdout_tail))


def _ends_with_exception(end: Evidence, context: DiagnosisContext) -> bool:
    """Whether a traceback is the last that a rank printed, and nothing caught the exception."""
    try:
        return program_output.ends_with_exception(end.tail or end.stdout_tail, context.files.read)
    except Exception:  # a bug in reading the output must not lose the job
        return False


def _of_orphans(end: Evidence, context: DiagnosisContext) -> Failure | None:
    """The failure of processes that a stopped rank left behind, from their output in ``end``; None if there is none."""
    error = program_output.find_error(end.tail) or program_output.find_error(end.stdout_tail)
    raised = error is not None and error.kind in ("exception", "fatal") and not error.symptom
    # sys.exit() in a signal handler is printed, too, if it interrupts a clean-up
    ended = error is not None and error.text.startswith(("SystemExit", "KeyboardInterrupt"))
    return failure_of_rank(end, context) if raised and not ended else None


def _cut_short(end: Evidence, context: DiagnosisContext) -> Failure | None:
    """The failure that a rank was about to be by what it had printed when it was told to end; None: it had no error."""
    try:
        error = _error_in((end.tail, end.stdout_tail), None, context)  # its last words may be a trap's
    except Exception:  # only a count depends on it
        return None
    told = end.raised is not None or (error is not None and error.kind != "last")
    return failure_of_rank(end._replace(status=1), context) if told else None


_SEEN: Mapping[Seen, Callable[[Evidence, DiagnosisContext], Failure | None]] = {
    "ended": _ended,
    "ended well": _ended_well,
    "raising": _raising,
    "aborting": _aborting,
    "cut short": _cut_short,
    "orphans": _of_orphans,
}


def failure_of_service(end: ProcessEnd, context: DiagnosisContext) -> Failure:
    """The failure of a user's own service that ended by itself: like a rank's, with the service's name."""
    role = end.name if context.job.role else ""
    blank = Failure(context.host, 1, "user", "user", "", at=context.now(), role=role)
    return _of_program(blank, end, (end.tail, b""), context, end.name)


def _of_program(
    blank: Failure, end: Evidence | ProcessEnd, tails: tuple[bytes, bytes], context: DiagnosisContext, name: str = ""
) -> Failure:
    """``blank`` with code, class, reason and signal of a program of the user's own that ended.

    ``tails`` are the ends of its stderr and of its stdout (empty where they share a pipe). ``name`` says who it is;
    empty for a rank. If the rank is a launcher that names a failed rank of its own, that one is reported.
    """
    status, oom, mask = end.status, end.oom, context.mask
    tail = tails[0] or tails[1]
    try:
        rank_end = end if isinstance(end, Evidence) else None
        error = _error_in(tails, status, context, rank_end)
        error = _by_told(error, rank_end, context) if rank_end is not None else error
    except Exception:  # a bug in reading the output must not lose the exit code
        error = None
    inner = program_output.inner_code(tail, error.rank) if error is not None and error.wrapper and status == 1 else None
    code = inner or (1 if status is None else exit_codes.of_status(status)) or 1
    signo = -status if status is not None and status < 0 else None
    if signo is None and inner is not None and inner > 128:
        signo = inner - 128
    if error is not None and error.rank is not None and not name:
        blank = blank._replace(rank=error.rank, local_rank=error.local_rank)
    who = f"{name or _rank(blank)} on {blank.host}, {_how(status, oom, code, signo)}"
    parts = [who]
    through = code == ABORTED and (error is None or error.kind in ("fatal", "last"))
    requirements = context.files.read("requirements.txt") or "" if error is not None else ""
    code_lines = "\n".join(frame.code for frame in error.frames) if error is not None else ""  # perhaps not printed yet
    hint = hint_for(
        error.text if error else "",
        f"{code_lines}\n{tail.decode('utf-8', 'replace')}",
        through,
        context.job._replace(rank=blank.rank, local_rank=blank.local_rank),
        requirements,
        context.files,
    )
    if error is None or error.kind == "last":
        parts += ["its last line: " + clip(mask(error.text), ERROR_SHARE) if error and error.text else "", hint]
    else:
        frames = "\n".join(_frame_lines(frame, context.files.directories) for frame in reversed(error.frames))
        causes = [clip(f"raised from {mask(cause)}", MOST_OF_ANOTHER) for cause in error.causes[:MOST_CAUSES]]
        parts = [mask(error.text), who, hint, *causes, mask(frames)]
    if error is not None and error.before:
        parts.append(clip(f"printed before: {mask(error.before)}", MOST_OF_ANOTHER))
    if oom and code != KILLED:
        parts.insert(parts.index(who) + 1, "the kernel's out-of-memory killer (OOM) ended a process there meanwhile")
    text = error.text if error is not None else ""
    symptom, lost_child = (error.symptom, error.lost_child) if error is not None else (None, False)
    kind = kind_of(text, -signo if signo else status, oom, symptom, lost_child)
    second_hand = error is not None and error.second_hand and kind in ("user", "infra")
    inside = clip(_inside(error.frames), LONGEST_INSIDE) if error is not None else ""
    lost = error is not None and error.lost_connection and kind == "user"
    found = blank._replace(code=code, kind=kind, reason=fit(parts), signal=signo, inside=inside)
    return found._replace(second_hand=second_hand, lost_connection=lost)


def _inside(frames: Sequence[tuple[str, int, str, str]]) -> str:
    """The innermost function of the user's code among ``frames``, or the line where it was in no function."""
    if not frames:
        return ""
    file, line, function, _code = frames[-1]
    return function if function and not function.startswith("<") else f"{os.path.basename(file)}, line {line}"


def _by_told(error: Error | None, end: Evidence, context: DiagnosisContext) -> Error | None:
    """The ``error`` that was read, or what the rank told that it raised, or a Python of its script.

    A script may have gone on behind that, so it leads where nothing could follow, or ``error`` was read in its words.
    """
    told, script = end.raised or end.below, end.script
    said = error.text if error is not None else ""
    surely = end.raised is not None or bool(told and script and script.ended_by(told.pid, end.status))
    if told is not None and (surely or (error is not None and error.kind == "line" and said in told.chain[-1].text)):
        return program_output.as_told(error, told.with_code(context.files.read), end.status)
    last = script.programs[-1].error if script is not None and script.programs[-1].failed else ""
    known = not last or (error is not None and (error.before or error.wrapper or last in said))
    return error if known else (error or Error("", "last"))._replace(before=last)


def _error_in(
    tails: tuple[bytes, bytes], status: int | None, context: DiagnosisContext, end: Evidence | None = None
) -> Error | None:
    """The error that ended the program: as printed, or the text that its source gives to ``sys.exit``."""
    files = context.files
    beside = tails[1] if tails[0] else b""
    told = end and (end.raised or end.below)
    known = told.chain[-1].text if told else "", end.script.survived(status) if end and end.script else ()
    error = program_output.find_error(tails[0] or tails[1], status, files.read, files.programs, beside, *known)
    if error is None:
        return program_output.find_error(tails[1])
    other = None if error.text else program_output.find_error(tails[1], status)
    return error if other is None else other._replace(before=error.before)


def _rank(failure: Failure) -> str:
    local = f" (local rank {failure.local_rank})" if failure.local_rank is not None else ""
    return f"rank {failure.rank}{local}"


def _how(status: int | None, oom: bool, code: int, signo: int | None) -> str:
    if oom and code == KILLED:
        return f"killed by the kernel's out-of-memory killer (OOM; exit code {code})"
    if signo is not None:
        return f"killed by {signal_name(signo)} (exit code {code})"
    return f"exit code {code}" if status is not None else f"ended unseen (exit code {code})"


def _frame_lines(frame: tuple[str, int, str, str], directories: Iterable[str]) -> str:
    """A frame as Python prints it; a file in one of ``directories`` is named relative to it."""
    file, line, function, code = frame
    for directory in directories:
        file = file.removeprefix(directory.rstrip("/") + "/")
    where = f'  File "{file}", line {line}' + (f", in {function}" if function else "")
    return where + (f"\n    {code}" if code else "")


def failure_of_service_or_launcher(end: ProcessEnd, context: DiagnosisContext) -> Failure:
    """A service or launcher that ended before its ranks did. A service of the user's own fails as a rank does."""
    if end.users:
        return failure_of_service(end, context)
    when = "before any of its ranks had come up" if not end.registered else "while its ranks were running"
    when = "before the job was done" if end.role == "service" else when
    how = f"killed by {signal_name(-end.status)}" if end.status < 0 else f"exit code {end.status}"
    lines = [f"muster: {end.name} ended {when} ({how}) on {context.host}"]
    error = _error_of_service(end) if end.role == "service" else None
    port = _TAKEN_PORT.search(end.tail) if end.role == "launcher" and not end.registered else None
    if port is not None:
        taken = f"port {port[1].decode()} is in use on {context.host}: without --master-port a free one is taken"
        lines = [
            f"muster: {taken}",
            lines[0].removeprefix("muster: "),
            context.mask(port[0].decode("utf-8", "replace")),
        ]
    elif error is not None:
        hint = hint_for(error.text, "", False, context.job)
        lines = [f"muster: {context.mask(error.text)}", lines[0].removeprefix("muster: "), *([hint] if hint else [])]
    elif end.tail:
        said = context.mask(end.tail.decode("utf-8", "replace")).strip().splitlines()
        said = [line for line in said if not is_greeting(line)]
        lines += ["its last lines:", *said[-8:]] if said else []
    # an mpirun that ends by itself has lost a rank or a host; the cause may be reported in a moment
    kind: Kind = "peer" if end.mpi and end.registered and end.status >= 0 else "infra"
    failure = context.own_failure(exit_codes.LAUNCHER, lines, kind)
    return failure._replace(signal=-end.status) if end.status < 0 else failure


def _error_of_service(end: ProcessEnd) -> Error | None:
    """The exception that ended a service: it says more than the end itself."""
    try:
        error = program_output.find_error(end.tail, end.status)
    except Exception:  # a bug in reading the output must not lose the failure
        return None
    return error if error is not None and error.kind == "exception" else None


def kind_of(
    text: str, status: int | None, oom: bool = False, symptom: bool | None = None, lost_child: bool = False
) -> Kind:
    """``user``, ``oom``, ``peer`` or ``infra`` for a rank's error ``text``.

    ``status`` is as in ``Evidence``; ``oom`` says that the kernel's OOM killer struck. ``symptom``: whether
    another failure caused the error (None: decided by its text); ``lost_child``: it is the loss of a child. A SIGKILL
    that nothing here explains is ``infra``, whether it met the rank or a child of it.
    """
    killed = lost_child or _CHILD_KILLED.search(text) is not None
    if (oom and (status in (-9, 137) or killed or _CHILD_GONE.search(text))) or _OUT_OF_MEMORY.search(text):
        return "oom"
    if is_peer_lost(text) if symptom is None else symptom:
        return "peer"
    if status == -9 or status is None or killed or _INFRASTRUCTURE.search(text):
        return "infra"
    return "user"
