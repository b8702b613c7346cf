"""The failures around the user's programs: launchers, services, the plan, MPI, and errors of our own."""

from __future__ import annotations

import errno
from typing import Callable, Sequence

from musterpoint import exit_codes
from musterpoint.diagnosis.facts import DiagnosisContext, ServiceOrLauncherEnd
from musterpoint.diagnosis.reason import fit, signal_name
from musterpoint.errors import FetchError, MusterError, RollCallError
from musterpoint.failure import Failure, Kind
from musterpoint.launch.plan import ProcessPlan


def of_service_or_launcher(end: ServiceOrLauncherEnd, context: DiagnosisContext) -> Failure:
    """A service or launcher that ended before its ranks did. A service of the user's own fails as a rank does."""
    if end.users:
        from musterpoint.diagnosis.program_failures import of_service

        return of_service(end, context)
    when = "before any of its ranks had come up" if not end.registered else "while its ranks were running"
    when = "before the job was done" if end.role == "service" else when
    how = f"killed by {signal_name(-end.status)}" if end.status < 0 else f"exit code {end.status}"
    lines = [f"muster: {end.name} ended {when} ({how}) on {context.host}"]
    if end.tail:
        from musterpoint.diagnosis.traceback import is_greeting

        said = context.mask(end.tail.decode("utf-8", "replace")).strip().splitlines()
        said = [line for line in said if not is_greeting(line)]
        lines += ["its last lines:", *said[-8:]] if said else []
    # an mpirun that ends by itself has lost a rank or a host, and whoever knows which may say so in a moment
    kind: Kind = "peer" if end.mpi and end.registered and end.status >= 0 else "infra"
    return _failure(context, exit_codes.LAUNCHER, lines, kind)


def cannot_start(process: ProcessPlan, error: OSError, step: str, context: DiagnosisContext) -> Failure:
    """``fork``, ``exec`` or ``chdir`` failed for a process of the plan."""
    if step == "fork":
        text = (
            f"no process can be started: {error.strerror}; give the container more memory or a higher limit on "
            "processes (docker run --pids-limit, ulimit -u)"
        )
    elif step == "chdir":
        text = f"can't enter the working directory {process.cwd}: {error.strerror}"
    else:
        text = f"can't execute {process.words[0]}: {error.strerror}{_advice(error)}"
    code, kind = _NO_FORK if step == "fork" else _USERS_MISTAKE
    lines = [f"muster: {process.name} on {context.host}: {context.mask(text)}"]
    return _failure(context, code, lines, kind)._replace(rank=process.rank, local_rank=process.local_rank)


_NO_FORK: tuple[int, Kind] = (exit_codes.LAUNCHER, "infra")
_USERS_MISTAKE: tuple[int, Kind] = (exit_codes.USAGE, "user")


def wrong_world(rank: int, got: int, planned: int, context: DiagnosisContext) -> Failure:
    """The launcher made another world than the one planned."""
    text = f"muster: rank {rank} on {context.host} got a world of {got} rank(s), but {planned} were planned"
    return _failure(context, exit_codes.LAUNCHER, [text], "infra")


def unplanned_rank(rank: int, local_rank: int, planned: int, context: DiagnosisContext) -> Failure:
    """The launcher brought up a rank that the plan puts on another host, or the same one twice."""
    text = (
        f"muster: the launcher started rank {rank} (local rank {local_rank}) on {context.host}, "
        f"where {planned} rank(s) were planned: it put ranks on other hosts than the plan says"
    )
    return _failure(context, exit_codes.LAUNCHER, [text], "infra")


def left_without_finalize(rank: int, local_rank: int, context: DiagnosisContext) -> Failure:
    """MPI ended the job because a rank had ended with 0 without telling it."""
    text = (
        f"rank {rank} (local rank {local_rank}) on {context.host} ended with exit code 0, but without MPI_Finalize, "
        "while other ranks ran on: MPI ended them, as they may wait for it for ever"
    )
    return Failure(context.host, 1, "user", "user", fit([text]), rank, local_rank, at=context.now())


def ended_by_mpi(rank: int, local_rank: int, context: DiagnosisContext) -> Failure:
    """MPI signalled a rank to end; what for, another host may know."""
    text = f"muster: MPI told rank {rank} (local rank {local_rank}) on {context.host} to end: a rank left the job"
    return _failure(context, exit_codes.LAUNCHER, [text], "peer")


def of_nested_launcher(reported: Failure, context: DiagnosisContext) -> Failure:
    """Why a launcher of ours that runs as the job's program ended: of what it ``reported``, what may stand."""
    kind: Kind = reported.kind if reported.kind in ("user", "infra") else "user"
    lines = [context.mask(f"muster: {reported.reason.removeprefix('muster: ')}")]
    return _failure(context, reported.code, lines, kind)


def daemon_refused(host: str, said: str, context: DiagnosisContext) -> Failure:
    """An MPI daemon that mpirun asked for on ``host`` never ran."""
    lines = [f"muster: mpirun's daemon could not be started on {host}: {context.mask(said).strip()}"]
    return _failure(context, exit_codes.LAUNCHER, lines, "infra")._replace(host=host)


def of_error(error: BaseException, host: str, mask: Callable[[str], str] = str, at: float = 0.0) -> Failure:
    """A failure of our own: the sentence of a :class:`MusterError`, or what of a bug's traceback fits. Code 70 then."""
    if isinstance(error, MusterError):
        kind: Kind = "infra" if isinstance(error, (RollCallError, FetchError)) else "user"
        # a roll call that failed is the same failure on every host
        where = f"\non {host}" if host and not isinstance(error, RollCallError) else ""
        return Failure(host, error.code, "muster", kind, fit([f"muster: {mask(str(error))}{where}"]), at=at)
    import traceback

    frames = "".join(traceback.format_tb(error.__traceback__)[-3:]).rstrip()
    lead = f"muster: internal error, please report it: {''.join(traceback.format_exception_only(error)).strip()}"
    where = f"on {host}, " if host else ""
    reason = fit([mask(lead), f"{where}exit code {exit_codes.INTERNAL}", mask(frames)])
    return Failure(host, exit_codes.INTERNAL, "muster", "infra", reason, at=at)


def _failure(context: DiagnosisContext, code: int, lines: Sequence[str], kind: Kind) -> Failure:
    return Failure(context.host, code, "muster", kind, fit(lines), at=context.now())


def _advice(error: OSError) -> str:
    if error.errno == errno.EACCES:
        return " (is it executable?)"
    if error.errno == errno.E2BIG:
        return " (is a hyperparameter or a variable larger than 128 KiB? send it as a file of an input channel)"
    if error.errno == errno.ENOEXEC:
        return " (a script needs a first line such as #!/bin/sh)"
    return ""
