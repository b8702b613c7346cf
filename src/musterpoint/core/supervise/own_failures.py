"""Makes the failures that no program's output tells of: of launchers, the plan and MPI."""

from __future__ import annotations

import errno
from typing import Sequence

from musterpoint.base import exit_codes
from musterpoint.base.exit_codes import signal_name
from musterpoint.base.failure import Failure, Kind, fit, numbers
from musterpoint.core.diagnosis import DiagnosisContext
from musterpoint.core.launch.launch_plan import Meeting, ProcessPlan


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
    return context.own_failure(code, lines, kind)._replace(rank=process.rank, local_rank=process.local_rank)


_NO_FORK: tuple[int, Kind] = (exit_codes.LAUNCHER, "infra")
_USERS_MISTAKE: tuple[int, Kind] = (exit_codes.USAGE, "user")


def wrong_world(rank: int, got: int, planned: int, context: DiagnosisContext) -> Failure:
    """The launcher started another number of ranks than planned."""
    text = f"muster: rank {rank} on {context.host} got a world of {got} rank(s), but {planned} were planned"
    return context.own_failure(exit_codes.LAUNCHER, [text], "infra")


def never_met(host: str, world: int, meeting: Meeting, context: DiagnosisContext) -> Failure:
    """The ranks of one world ended well, but never met."""
    text = f"muster: {worlds_of_one(host, world, meeting)}"
    return context.own_failure(exit_codes.LAUNCHER, [text], "infra")


def worlds_of_one(host: str, world: int, meeting: Meeting) -> str:
    """What happened where the ranks of one world never met, and what makes them meet."""
    if meeting.apart:
        return (
            f"torch.distributed ran on {host} without a connection to another of the {world} hosts: each host trains a "
            f"model of its own; {meeting.advice}"
        )
    return (
        f"none of the {world} ranks connected to port {meeting.port} of {host}, where they were to meet: each ran "
        f"alone, as a world of one; {meeting.advice}"
    )


def unplanned_rank(rank: int, local_rank: int, planned: int, context: DiagnosisContext) -> Failure:
    """The launcher started a rank that the plan puts on another host, or one rank twice."""
    text = (
        f"muster: the launcher started rank {rank} (local rank {local_rank}) on {context.host}, "
        f"where {planned} rank(s) were planned: it put ranks on other hosts than the plan says"
    )
    return context.own_failure(exit_codes.LAUNCHER, [text], "infra")


def ended_unseen(rank: int, local_rank: int, status: int, context: DiagnosisContext) -> Failure:
    """What another entry point of this host had started for a rank has ended before the rank's program ran."""
    how = f"killed by {signal_name(-status)}" if status < 0 else f"exit code {status}"
    text = (
        f"muster: the process of rank {rank} (local rank {local_rank}) ended before its program was started, {how}: "
        "look at the Python that it uses (--python), which may be a wrapper"
    )
    return context.own_failure(exit_codes.LAUNCHER, [text], "infra")


def lost_entry_point(rank: int, local_rank: int, context: DiagnosisContext) -> Failure:
    """An entry point of this host that the platform started for a rank has ended before that rank ran."""
    text = (
        f"muster: the entry point of rank {rank} (local rank {local_rank}) on {context.host} ended before its rank was "
        "started: the platform ended it, or it ran out of memory"
    )
    return context.own_failure(exit_codes.LAUNCHER, [text], "peer")


def never_started(ranks: Sequence[int], starter: str, seconds: float, context: DiagnosisContext) -> Failure:
    """``ranks`` of this host are expected, and ``starter`` hasn't started them."""
    them = "it" if len(ranks) == 1 else "them"
    text = (
        f"muster: {numbers(ranks)} of {context.host} didn't start within {seconds:g} s: {starter} was to start {them}, "
        "and still waits, for another host or for something on this one"
    )
    return context.own_failure(exit_codes.LAUNCHER, [text], "infra")


def left_without_finalize(rank: int, local_rank: int, context: DiagnosisContext) -> Failure:
    """MPI ended the job because a rank had ended with 0, but without MPI_Finalize."""
    text = (
        f"rank {rank} (local rank {local_rank}) on {context.host} ended with exit code 0, but without MPI_Finalize, "
        "while other ranks ran on: MPI ended them, as they may wait for it for ever"
    )
    return Failure(context.host, 1, "user", "user", fit([text]), rank, local_rank, at=context.now())


def ended_by_mpi(rank: int, local_rank: int, context: DiagnosisContext) -> Failure:
    """MPI signalled a rank to end; another host may know why."""
    text = f"muster: MPI told rank {rank} (local rank {local_rank}) on {context.host} to end: a rank left the job"
    return context.own_failure(exit_codes.LAUNCHER, [text], "peer")


def daemon_refused(host: str, said: str, context: DiagnosisContext) -> Failure:
    """An MPI daemon that mpirun asked for on ``host`` never ran."""
    lines = [f"muster: mpirun's daemon could not be started on {host}: {context.mask(said).strip()}"]
    return context.own_failure(exit_codes.LAUNCHER, lines, "infra")._replace(host=host)


def _advice(error: OSError) -> str:
    if error.errno == errno.EACCES:
        return " (is it executable?)"
    if error.errno == errno.E2BIG:
        return " (is a hyperparameter or a variable larger than 128 KiB? send it as a file of an input channel)"
    if error.errno == errno.ENOEXEC:
        return " (a script needs a first line such as #!/bin/sh)"
    return ""
