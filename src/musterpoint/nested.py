"""``muster launch`` below another musterpoint: the plan is made here, and carried out by the one above.

``train`` whose entry point is our own ``launcher.py`` has this shape. There is one roll call, one channel, one stop
budget and one failure file: the outer one's, which is told why the inner one ends before it has a plan.
"""

from __future__ import annotations

import signal
from typing import Mapping

from musterpoint import exit_codes, settings
from musterpoint.console import Console
from musterpoint.failure import Failure
from musterpoint.job.model import Counted, Job
from musterpoint.job.read import read_job
from musterpoint.job.secrets import masker_of
from musterpoint.launch.choose import Choice, slots_of
from musterpoint.launch.plan import ONE_PER_HOST, LaunchPlan
from musterpoint.prepare import activated, get_ready, plan_here
from musterpoint.processes.signals import STOPPING
from musterpoint.rollcall.roster import Roster, Seat
from musterpoint.runtime import Request
from musterpoint.settings import Settings
from musterpoint.supervise.handover import PLANNED, Outer


def launch_inside(request: Request) -> int | None:
    """The exit code of the job that was handed over; None where no other musterpoint is above us.

    Raises:
        MusterError: the job can't be planned.
    """
    outer = Outer.find(request.environ)
    if outer is None:
        return None
    offered = outer.offer()
    if offered is None:
        outer.close()
        why = "the job above us takes no plan: it is ending, or runs as another user; nothing is started here"
        Console(str).say(why)
        return exit_codes.STOPPED
    for signo in STOPPING:
        signal.signal(signo, signal.SIG_DFL)  # until ranks run, a stop ends us at once, whatever we wait for
    options = settings.from_environ(request.environ, request.given)
    job = read_job(request.environ, options, "", request.program, request.arguments, request.module)
    # what the outer one set for its own launcher isn't the user's wish
    planned = set(request.environ.get(PLANNED, "").split(","))
    own = {name: value for name, value in request.environ.items() if name not in planned}
    environ = activated(own, options.python)
    plan = plan_inside(job, options, offered, environ)
    console = Console(masker_of(request.environ, job).mask)
    for note in plan.notes:
        console.say(note)
    for signo in STOPPING:
        signal.signal(signo, signal.SIG_IGN)  # the outer one stops our ranks itself
    code = outer.hand_over(plan, settings.without_own(environ))
    return exit_codes.INTERNAL if code is None else code


def report(failure: Failure, environ: Mapping[str, str]) -> None:
    """Tells a musterpoint above us why this launcher is about to end; nobody above: nothing happens."""
    outer = Outer.find(environ)
    if outer is not None:
        outer.report(failure)
        outer.close()


def plan_inside(job: Job, options: Settings, offered: Roster, environ: Mapping[str, str]) -> LaunchPlan:
    """The plan for hosts that another musterpoint has gathered: its roster, with the slots of this launcher."""
    names = tuple(seat.name for seat in offered.seats)
    group = tuple(seat.name for seat in offered.group)
    # the slots are those that the outer one has gathered
    job = job._replace(hosts=names, group_hosts=group, current_host=offered.me, counted=Counted())
    ready = get_ready(job, options, environ, typed=True)
    seats = tuple(seat._replace(slots=_slots(seat, ready.choice, options, job)) for seat in offered.seats)
    return plan_here(job, options, ready, offered._replace(seats=seats), environ)


def _slots(seat: Seat, choice: Choice, options: Settings, job: Job) -> int:
    if not seat.grouped:
        return 0
    if choice.launcher in ONE_PER_HOST:
        return slots_of(seat.name, choice.launcher, job, options, seat.capacity)
    return choice.slots if options.slots else seat.capacity
