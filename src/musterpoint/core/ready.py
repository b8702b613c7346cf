"""This host until it is ready for the roll call: the request understood, the code, devices and launcher there."""

import os
from functools import partial
from typing import TYPE_CHECKING, Callable

from musterpoint.base import exit_codes
from musterpoint.base.console import Console
from musterpoint.base.errors import MusterError, StoppedEarly, UsageError
from musterpoint.base.failure import Failure
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.code.interpreter import UserEnvironment, user_environment
from musterpoint.core.code.program import find
from musterpoint.core.code.unwrap import ReadLine, Unwrapped, unwrapped
from musterpoint.core.code.workspace import Code
from musterpoint.core.diagnosis.failures import failure_of_error
from musterpoint.core.job.directories import NAMES, is_own, locked, made
from musterpoint.core.job.model import Job
from musterpoint.core.prepare import (
    PreparedHost,
    empty_offer,
    named_job,
    offer_of,
    ordered_job,
    prepare_host,
    what_is_wanted,
)
from musterpoint.core.rollcall.roster import Offer, Roster
from musterpoint.core.runtime import Request, Runtime

if TYPE_CHECKING:
    from musterpoint.core.started_per_rank.leader import Leader
    from musterpoint.core.supervise.loan import Lender


def below(request: Request, run: "Callable[[Request, Lender | None], int]") -> int:
    """The code of ``run``, which gets ``request`` and the other end of a loan.

    It is the request of a launch in the program of another job of ours, where that lends something.
    """
    from musterpoint.core.supervise.loan import Lender
    from musterpoint.core.supervise.state import Outcome

    lender = Lender.find(request.environ)
    if lender is None:
        return run(request, None)
    try:
        loan = lender.borrow()
        if loan is None:
            Console(str).say("the job above is ending, or runs as another user: it lends nothing, and nothing starts")
            return exit_codes.STOPPED
        given = loan.given(request.environ, request.given)
    except UsageError as error:
        Console(str).say(str(error))
        lender.ended(Outcome(error.code, failure_of_error(error, request.environ.get("SM_CURRENT_HOST", ""))))
        return error.code
    return run(request._replace(environ=loan.environ(request.environ), given=given, loan=loan), lender)


class Understood(NamedTuple):
    """A request as it was understood: the ``request`` with the environment that the user's program will see and the
    Python that runs it, the ``options``, and the ``job``.
    """

    request: Request
    options: Settings
    job: Job

    @property
    def fetches(self) -> bool:
        """Whether code is to be fetched, or packages installed. A program from a command line is here already, and its
        packages are left to the user unless an installer is named.
        """
        return self.request.program is None or installs(self.options)

    @property
    def may_be_unheeded(self) -> bool:
        """Whether something was asked of musterpoint that could have no effect."""
        given, program, environ = self.request.given, self.request.program, self.request.environ
        return bool(given) or program is not None or any(name.startswith("MUSTER_") for name in environ)

    def on(self, roster: Roster) -> "Understood":
        """The same with the names and the order of the hosts that the roll call settled."""
        named = named_job(self.job, roster)
        if named is self.job and self.options.host_order == "topology":
            return self._replace(job=ordered_job(self.job, roster))
        return self if named is self.job else self._replace(job=named)


def installs(options: Settings) -> bool:
    """Whether packages are to be installed for a program that is here already."""
    return bool(options.requirements) or options.installer in ("pip", "uv")


def with_own_folder(runtime: Runtime, options: Settings, job: Job) -> tuple[Job, UsageError | None]:
    """``job`` with a folder that no other running job writes to; or without one, and why it has none: the other hosts
    are to be told. None is made for a typed program that isn't there.

    Raises:
        UsageError: a job of one host has none.
    """
    try:
        program, module = job.entry_point.program, job.entry_point.module
        named = program.endswith((".py", ".sh", ".ipynb")) or os.path.isdir(os.path.join(job.paths.code, program))
        if named and is_own(job.paths.failure) and not installs(options):
            find(program, module, job.paths.code, "", {})
        placed, locks, moved = locked(job, bool(options.job_name))
    except UsageError as error:
        if len(job.hosts) == 1:
            raise
        return job._replace(paths=job.paths._replace(**dict.fromkeys((*NAMES, "failure", "success"), ""))), error
    runtime.keep_open(locks)
    if moved:
        runtime.console.say(moved)
    return placed, None


def understood(runtime: Runtime, request: Request, options: Settings, job: Job) -> Understood:
    """The request with the variables that the program will see, and the job with its directories."""
    runtime.watch_pid1(options.pid1_watch)
    placed = made(job)
    runtime.set_job(placed.job)
    said = placed.why or (placed.said if runtime.leads else "")
    if said:
        runtime.console.say(said)
    named = {name: value for name, value in request.environ.items() if name not in placed.unset}
    seen = user_environment(named, options.python)
    if seen.note and runtime.leads:
        runtime.console.say(seen.note)
    return Understood(request._replace(environ=seen.environ, python=seen.python), options, placed.job)


class Prepared(NamedTuple):
    """This host before the roll call. A host that can't run its part, or was stopped, takes part in it all the same:
    the others would wait for it. ``asked``: the job as its program has it, if that is a launcher's command line.
    """

    asked: Understood
    offer: Offer
    host: PreparedHost | None = None
    refusal: Failure | None = None
    stop: StoppedEarly | None = None

    def refused_by(self, settled: Understood) -> Failure | None:
        """Why this host can't run its part, with the host's name as the roll call settled it."""
        return self.refusal and self.refusal._replace(host=settled.job.own_name)


def refused(runtime: Runtime, asked: Understood, error: MusterError) -> Prepared:
    """A host that can't run its part, because of ``error``."""
    return Prepared(asked, empty_offer(asked.job), refusal=runtime.failure_of(error))


def prepare_this_host(
    runtime: Runtime, asked: Understood, others: "Leader | None", read: ReadLine | None = None
) -> Prepared:
    """The steps before the roll call that need no other host, and what there is to say of the request.

    ``read``: reads command lines of ours; a program that is wholly one is read as the job.
    """
    request, options, job = asked
    try:
        tools = (lambda: runtime.tools(job, options)) if asked.fetches else None
        code = Code(job, request.environ, request.python, tools)
        found = unwrapped(job, request.given, request.environ, code.folder, read)
        if found is not None:
            request, options, job = asked = with_line(runtime, request, found)
        seen = UserEnvironment(request.environ, request.python)
        wanted = what_is_wanted(job, options, seen, runtime.ask)
        host = prepare_host(wanted, request.environ, request.typed, code, tools is not None, runtime.ask)
        offer = offer_of(
            wanted.job, wanted.settings, host, runtime.ports, partial(runtime.open_door, environ=request.environ)
        )
        runtime.timeline.add("host-prepared", launcher=offer.launcher, job=wanted.job.name)
        if asked.may_be_unheeded:
            from musterpoint.core.unheeded import unheeded  # 2 ms, where there are options

            typed = request.program is not None
            for text in unheeded(job, options, request.environ, request.given, host.choice, typed, request.line):
                runtime.console.say(text)
        if others is not None:
            others.gather(options.rollcall_timeout)
    except StoppedEarly as stop:
        return Prepared(asked, empty_offer(job), stop=stop)
    except MusterError as error:
        return refused(runtime, asked, error)
    return Prepared(Understood(request, wanted.settings, wanted.job), offer, host)


def with_line(runtime: Runtime, request: Request, found: Unwrapped) -> Understood:
    """The request, options and job of the launch that a program wholly is."""
    line: Request = found.line
    runtime.use_options(line.given)
    for text in line.notes:
        runtime.console.say(text)
    seen = user_environment(line.environ, found.options.python or request.python)
    given = {**request.given, **line.given}
    line = line._replace(environ=seen.environ, python=seen.python, given=given, loan=request.loan)
    return Understood(line, found.options, found.job)
