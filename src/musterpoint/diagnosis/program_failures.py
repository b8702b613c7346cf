"""The failures of the user's programs: what the end of a rank, or of a service of the user's own, means."""

from __future__ import annotations

from musterpoint import exit_codes
from musterpoint.diagnosis import classify, program_output, program_source, reason
from musterpoint.diagnosis.facts import DiagnosisContext, RankEnd, ServiceOrLauncherEnd
from musterpoint.diagnosis.traceback import lines_of
from musterpoint.failure import Failure
from musterpoint.untrusted import clip

KILLED = 137
"""The code of what died by SIGKILL, and of a shell whose child did."""
ABORTED = 134
"""The code of what died by SIGABRT."""
OPEN_MPI_GAVE_UP = 14
"""``MPI_ERR_UNKNOWN``, with which Open MPI 5 ends ranks when another one's connection closes ("Socket closed")."""


def of_rank(end: RankEnd, context: DiagnosisContext) -> Failure:
    """What a rank's end means: its exact code, its class, and the reason in the order of importance.

    A rank that is itself a launcher (of the user's own) and hides its child's code behind its 1 gets the child's.
    """
    tails = (end.tail, end.stdout_tail)
    if end.mpi:
        tails = (program_output.until_abort(end.tail), program_output.until_abort(end.stdout_tail))
    blank = Failure(context.host, 1, "user", "user", "", end.rank, end.local_rank, at=end.at)
    failure = _of_program(blank, end, tails, context)
    given_up = end.given_up or (end.mpi and end.status == OPEN_MPI_GAVE_UP and failure.kind == "user")
    return failure._replace(kind="peer") if given_up and failure.kind != "oom" else failure


def of_orphans(end: RankEnd, context: DiagnosisContext) -> Failure | None:
    """What the processes mean that a rank left behind when it was stopped; None where they raised nothing themselves.

    ``end`` has what they wrote.
    """
    error = program_output.find(end.tail) or program_output.find(end.stdout_tail)
    raised = error is not None and error.kind in ("exception", "fatal") and not error.symptom
    # sys.exit() in a handler that came in the midst of a clean-up is printed, too
    ended = error is not None and error.text.startswith(("SystemExit", "KeyboardInterrupt"))
    return of_rank(end, context) if raised and not ended else None


def of_service(end: ServiceOrLauncherEnd, context: DiagnosisContext) -> Failure:
    """What it means that a service of the user's own ended by itself: as for a rank, by the service's name."""
    blank = Failure(context.host, 1, "user", "user", "", at=context.now())
    return _of_program(blank, end, (end.tail, b""), context, end.name)


def _of_program(
    blank: Failure, end: RankEnd | ServiceOrLauncherEnd, tails: tuple[bytes, bytes], context: DiagnosisContext,
    name: str = "",
) -> Failure:  # fmt: skip
    """``blank`` with code, class, reason and signal of a program of the user's own that ended.

    ``tails`` are the ends of its stderr and of its stdout (empty where they share a pipe). A rank that is itself a
    launcher gives way to the one whose failure it tells of; without a ``name`` the rank is who failed.
    """
    status, oom, mask = end.status, end.oom, context.mask
    tail = tails[0] or tails[1]
    try:
        error = _error_in(tails, status, context)
    except Exception:  # a mistake of ours about the words doesn't cost the exit code
        error = None
    inner = program_output.inner_code(tail) if error is not None and error.wrapper and status == 1 else None
    code = inner or (1 if status is None else exit_codes.of_status(status)) or 1
    signo = -status if status is not None and status < 0 else None
    if signo is None and inner is not None and inner > 128:
        signo = inner - 128
    if error is not None and error.rank is not None and not name:
        blank = blank._replace(rank=error.rank, local_rank=error.local_rank)
    who = f"{name or _rank(blank)} on {blank.host}, {_how(status, oom, code, signo)}"
    parts = [who]
    through = code == ABORTED and (error is None or error.kind in ("fatal", "last"))
    hint = classify.hint_for(error.text if error else "", tail.decode("utf-8", "replace") if through else "")
    if error is None or error.kind == "last":
        parts += ["its last line: " + clip(mask(error.text), reason.ERROR_SHARE) if error else "", hint]
    else:
        frames = "\n".join(reason.frame_lines(frame, context.files.directories) for frame in reversed(error.frames))
        parts = [mask(error.text), who, hint, mask(frames)]
    if oom and code != KILLED:
        parts.insert(parts.index(who) + 1, "the kernel's out-of-memory killer (OOM) ended a process there meanwhile")
    text = error.text if error is not None else ""
    kind = classify.kind_of(text, -signo if signo else status, oom, error.symptom if error is not None else None)
    second_hand = error is not None and error.second_hand and kind in ("user", "infra")
    return blank._replace(code=code, kind=kind, reason=reason.fit(parts), signal=signo, second_hand=second_hand)


def _error_in(tails: tuple[bytes, bytes], status: int | None, context: DiagnosisContext) -> program_output.Error | None:
    """The error that ended the program: as it was printed, or as its source says what it gave to ``sys.exit``."""
    error = program_output.find(tails[0] or tails[1], status, context.files.read) or program_output.find(tails[1])
    if status == 1 and (error is None or (error.kind in ("last", "line") and not error.wrapper)):
        said = program_source.find(lines_of(tails[0] or tails[1]), context.files.programs())
        if said:
            return program_output.Error(said, "line", symptom=classify.is_peer_lost(said))
    return error


def _rank(failure: Failure) -> str:
    local = f" (local rank {failure.local_rank})" if failure.local_rank is not None else ""
    return f"rank {failure.rank}{local}"


def _how(status: int | None, oom: bool, code: int, signo: int | None) -> str:
    if oom and code == KILLED:
        return f"killed by the kernel's out-of-memory killer (OOM; exit code {code})"
    if signo is not None:
        return f"killed by {reason.signal_name(signo)} (exit code {code})"
    return f"exit code {code}" if status is not None else f"ended unseen (exit code {code})"
