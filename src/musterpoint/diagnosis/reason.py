"""The failure reason: the few lines that reach the control plane, the user's own error first."""

from __future__ import annotations

import os
import time
from typing import Callable

from musterpoint import exit_codes
from musterpoint.errors import FetchError, MusterError, RollCallError
from musterpoint.failure import MOST_REASON, Failure, Secondary
from musterpoint.supervise.outcome import RankEnd, UnrankedEnd
from musterpoint.untrusted import clip, regular

LIMIT = MOST_REASON
"""Bytes of UTF-8 in a reason. SageMaker shows 1,024 characters and adds words of its own."""
ERROR_SHARE = 480
"""Bytes of them for the error itself where there is more to say."""
KILLED = 137
"""The code of what died by SIGKILL, and of a shell whose child did."""
LARGEST_SOURCE = 512 << 10
"""Bytes of a file that is looked at for what caught an exception."""
ABORTED = 134
"""The code of what died by SIGABRT."""
OPEN_MPI_GAVE_UP = 14
"""``MPI_ERR_UNKNOWN``, with which Open MPI 5 ends ranks when another one's connection closes ("Socket closed")."""


def failure_of(end: RankEnd, host: str, mask: Callable[[str], str], code_root: str = "") -> Failure:
    """What a rank's end means: its exact code, its class, and the reason in the order of importance.

    ``mask`` hides known secrets in the user's text. Files under ``code_root`` are named relative to it. A rank that is
    itself a launcher (of the user's own) and hides its child's code behind its 1 gets the child's.
    """
    tails = (end.tail, end.stdout_tail)
    if end.mpi:
        from musterpoint.diagnosis.culprit import until_abort

        tails = (until_abort(end.tail), until_abort(end.stdout_tail))
    failure = _explained(
        Failure(host, 1, "user", "user", "", end.rank, end.local_rank, at=end.at), end, tails, mask, code_root
    )
    given_up = end.given_up or (end.mpi and end.status == OPEN_MPI_GAVE_UP and failure.kind == "user")
    return failure._replace(kind="peer") if given_up and failure.kind != "oom" else failure


def of_service(end: UnrankedEnd, host: str, mask: Callable[[str], str], code_root: str = "") -> Failure:
    """What it means that a service of the user's own ended by itself: as for a rank, by the service's name."""
    blank = Failure(host, 1, "user", "user", "", at=time.time())
    return _explained(blank, end, (end.tail, b""), mask, code_root, end.name)


def _explained(
    blank: Failure, end: RankEnd | UnrankedEnd, tails: tuple[bytes, bytes], mask: Callable[[str], str],
    code_root: str, name: str = "",
) -> Failure:  # fmt: skip
    """``blank`` with code, class, reason and signal of a program of the user's own that ended.

    ``tails`` are the ends of its stderr and of its stdout (empty where they share a pipe). A rank that is itself a
    launcher gives way to the one whose failure it tells of; without a ``name`` the rank is who failed.
    """
    from musterpoint.diagnosis import classify, culprit

    status, oom = end.status, end.oom
    tail = tails[0] or tails[1]
    error = culprit.find(tail, status, lambda file: _source(file, code_root)) or culprit.find(tails[1])
    if (
        status == 1
        and code_root
        and (error is None or error.kind in ("last", "line"))
        and not (error and error.wrapper)
    ):
        from musterpoint.diagnosis import program_source, traceback

        if said := program_source.find(traceback.lines_of(tail), code_root, lambda file: _source(file, code_root)):
            error = culprit.Error(said, "line", echo=classify.is_peer_lost(said))
    inner = culprit.inner_code(tail) if error is not None and error.wrapper and status == 1 else None
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
        parts += ["its last line: " + clip(mask(error.text), ERROR_SHARE) if error else "", hint]
    else:
        frames = "\n".join(_frame(frame, code_root) for frame in reversed(error.frames))
        parts = [mask(error.text), who, hint, mask(frames)]
    if oom and code != KILLED:
        parts.insert(parts.index(who) + 1, "the kernel's out-of-memory killer (OOM) ended a process there meanwhile")
    text = error.text if error is not None else ""
    kind = classify.kind_of(text, -signo if signo else status, oom, error.echo if error is not None else None)
    second_hand = error is not None and error.second_hand and kind in ("user", "infra")
    return blank._replace(code=code, kind=kind, reason=fit(parts), signal=signo, second_hand=second_hand)


def _source(file: str, code_root: str) -> str | None:
    """The text of a Python file that a traceback names; None where there is none, or none of a sensible size."""
    try:
        with open(os.path.join(code_root, file), "rb", opener=regular) as opened:
            text = opened.read(LARGEST_SOURCE + 1)
    except (OSError, ValueError):
        return None
    return text.decode("utf-8", "replace") if 0 < len(text) <= LARGEST_SOURCE else None


def _rank(failure: Failure) -> str:
    local = f" (local rank {failure.local_rank})" if failure.local_rank is not None else ""
    return f"rank {failure.rank}{local}"


def with_secondary(failure: Failure, others: Secondary) -> str:
    """``failure``'s reason with what is known of the others, still within :data:`LIMIT`."""
    if not others.total:
        return failure.reason
    what = {"the same way": others.same, "after it (peer lost)": others.lost, "with another error": others.other}
    kinds = [(how, count) for how, count in what.items() if count]
    who = "1 other rank" if others.total == 1 else f"{others.total} other ranks"
    said = kinds[0][0] if len(kinds) == 1 else ", ".join(f"{count} {how}" for how, count in kinds)
    return fit([failure.reason, f"{who} failed{' ' if len(kinds) == 1 else ': '}{said}"], last_first=True)


def of_error(error: BaseException, host: str, mask: Callable[[str], str] = str, at: float = 0.0) -> Failure:
    """A failure of our own: the sentence of a :class:`MusterError`, or what of a bug's traceback fits. Code 70 then."""
    if isinstance(error, MusterError):
        kind = "infra" if isinstance(error, (RollCallError, FetchError)) else "user"
        # a roll call that failed is the same failure on every host
        where = f"\non {host}" if host and not isinstance(error, RollCallError) else ""
        return Failure(host, error.code, "muster", kind, fit([f"muster: {mask(str(error))}{where}"]), at=at)
    import traceback

    frames = "".join(traceback.format_tb(error.__traceback__)[-3:]).rstrip()
    lead = f"muster: internal error, please report it: {''.join(traceback.format_exception_only(error)).strip()}"
    where = f"on {host}, " if host else ""
    reason = fit([mask(lead), f"{where}exit code {exit_codes.INTERNAL}", mask(frames)])
    return Failure(host, exit_codes.INTERNAL, "muster", "infra", reason, at=at)


def fit(parts: list[str], limit: int = LIMIT, last_first: bool = False) -> str:
    """``parts`` as lines within ``limit`` bytes. The first is cut to its share where there are others; then the last.

    ``last_first``: the last part is kept whole and the text before it is cut.
    """
    parts = [part for part in parts if part]
    whole = "\n".join(parts)
    if len(whole.encode("utf-8", "replace")) <= limit:
        return whole
    if last_first:
        kept = "\n" + parts[-1]
        return clip("\n".join(parts[:-1]), limit - len(kept.encode())) + kept
    rest = len("\n".join(parts[1:]).encode("utf-8", "replace")) + 1
    first = clip(parts[0], limit if len(parts) == 1 else max(ERROR_SHARE, limit - rest))
    return clip("\n".join([first, *parts[1:]]), limit)


def _how(status: int | None, oom: bool, code: int, signo: int | None) -> str:
    if oom and code == KILLED:
        return f"killed by the kernel's out-of-memory killer (OOM; exit code {code})"
    if signo is not None:
        return f"killed by {signal_name(signo)} (exit code {code})"
    return f"exit code {code}" if status is not None else f"ended unseen (exit code {code})"


def signal_name(signo: int) -> str:
    """``SIGKILL`` for 9; ``signal 99`` for one without a name."""
    import signal

    try:
        return signal.Signals(signo).name
    except ValueError:
        return f"signal {signo}"


def _frame(frame: tuple[str, int, str, str], code_root: str) -> str:
    file, line, function, code = frame
    for root in {code_root, os.path.realpath(code_root)} if code_root else ():  # it may be a link, or a mount's name
        file = file.removeprefix(root.rstrip("/") + "/")
    where = f'  File "{file}", line {line}' + (f", in {function}" if function else "")
    return where + (f"\n    {code}" if code else "")
