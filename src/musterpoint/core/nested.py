"""``muster launch`` inside a job that another musterpoint runs: the plan is made here, and the outer one runs it.

This happens when ``train`` has our own ``launcher.py`` as entry point. The roll call, the channel, the stop budget and
the failure file are the outer one's. If the inner one has no plan, it reports the reason.
"""

from __future__ import annotations

import signal
from typing import Mapping

from musterpoint.base import exit_codes, settings
from musterpoint.base.console import Console
from musterpoint.base.errors import UsageError
from musterpoint.base.failure import Failure
from musterpoint.base.settings import Settings
from musterpoint.core.code.interpreter import UserEnvironment, user_environment
from musterpoint.core.job.model import Counted, Job
from musterpoint.core.job.read import masker_of, read_job
from musterpoint.core.launch.choose import Choice, slots_of
from musterpoint.core.launch.launcher import Wanted
from musterpoint.core.launch.plan import LaunchPlan
from musterpoint.core.launch.table import find
from musterpoint.core.prepare import plan_host, prepare_host, what_is_wanted
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.rollcall.roster import Roster, Seat
from musterpoint.core.runtime import Request
from musterpoint.core.supervise.handover import PLANNED, Outer

OF_THE_JOB = ("max_restarts", "channel", "checkpoints", "upload")
"""Options that only the outer musterpoint can follow: it starts ranks again, and has the job's data."""


def launch_nested(request: Request) -> int | None:
    """Hands the job's plan to the outer musterpoint; the job's exit code, or None where there is no outer one.

    Raises:
        MusterError: the job can't be planned.
    """
    outer = Outer.find(request.environ)
    if outer is None:
        return None
    if request.wrong is not None:
        outer.close()
        raise request.wrong
    offered = outer.offer()
    if offered is None:
        outer.close()
        why = "the job above us takes no plan: it is ending, or runs as another user; nothing is started here"
        Console(str).say(why)
        return exit_codes.STOPPED
    for signo in STOPPING:
        signal.signal(signo, signal.SIG_DFL)  # until ranks run, a stop ends us at once
    options = settings.from_environ(request.environ, request.given)
    for field in OF_THE_JOB:
        if value := getattr(options, field):
            option = settings.BY_FIELD[field]
            raise UsageError(
                f"{option.flag} {value}: this launcher is part of another musterpoint's job, which does that: set "
                f"{option.variable} in that job's environment"
            )
    job = read_job(request.environ, options, "", request.program, request.arguments, request.module)
    # variables that the outer one set for its own launcher aren't the user's
    planned = set(request.environ.get(PLANNED, "").split(","))
    own = {name: value for name, value in request.environ.items() if name not in planned}
    seen = user_environment(own, options.python)
    plan = plan_nested(job, options, offered, seen)
    console = Console(masker_of(request.environ, job).mask)
    for note in plan.notes:
        console.say(note)
    for signo in STOPPING:
        signal.signal(signo, signal.SIG_IGN)  # the outer one stops our ranks itself
    code = outer.hand_over(plan, settings.without_own(seen.environ))
    return exit_codes.INTERNAL if code is None else code


def refuse_train(environ: Mapping[str, str]) -> int:
    """Refuses ``train`` below another musterpoint's job: it would read what that one has read, and run it again.

    Returns its exit code; 0 where there is no such job.
    """
    outer = Outer.find(environ)
    if outer is None:
        return exit_codes.OK
    text = (
        "train: a program of a musterpoint job called this, and train would start the same job again: call the "
        "training script itself, or `muster launch SCRIPT`, which starts ranks under the job that runs"
    )
    Console(str).say(text)
    host = environ.get("SM_CURRENT_HOST", "")
    where = f"\non {host}" if host else ""
    outer.report(Failure(host, exit_codes.USAGE, "muster", "user", f"muster: {text}{where}"))
    outer.close()
    return exit_codes.USAGE


def report(failure: Failure, environ: Mapping[str, str]) -> None:
    """Reports to the outer musterpoint, if there is one, why this launcher is about to end."""
    outer = Outer.find(environ)
    if outer is not None:
        outer.report(failure)
        outer.close()


def plan_nested(job: Job, options: Settings, offered: Roster, seen: UserEnvironment) -> LaunchPlan:
    """The plan for the hosts of another musterpoint's roster, with as many slots as this launcher gives them."""
    names = tuple(seat.name for seat in offered.seats)
    group = tuple(seat.name for seat in offered.group)
    # each host's slots are in the outer one's roster
    here = job._replace(hosts=names, group_hosts=group, current_host=offered.me, counted=Counted(), unnamed=None)
    wanted = what_is_wanted(here, options, seen)
    host = prepare_host(wanted, seen.environ, typed=True)._replace(ssh=None)
    seats = tuple(seat._replace(slots=_slots(seat, host.choice, wanted)) for seat in offered.seats)
    return plan_host(wanted.job, wanted.settings, host, offered._replace(seats=seats), seen.environ)


def _slots(seat: Seat, choice: Choice, wanted: Wanted) -> int:
    if not seat.grouped:
        return 0
    launcher = find(choice.launcher)
    if launcher.once:
        return slots_of(seat.name, launcher, wanted.job, wanted.settings, seat.capacity)
    return choice.slots if wanted.settings.slots else seat.capacity
