"""This host until it is ready for the roll call: the request understood, the code, devices and launcher there."""

import os
from functools import partial
from typing import TYPE_CHECKING

from musterpoint.base.errors import MusterError, StoppedEarly, UsageError
from musterpoint.base.failure import Failure
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.code.interpreter import UserEnvironment, user_environment
from musterpoint.core.code.program import find, is_own_file
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
from musterpoint.core.unheeded import unheeded

if TYPE_CHECKING:
    from musterpoint.core.started_per_rank.leader import Leader


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

    @property
    def is_own_launcher(self) -> bool:
        """Whether the program is musterpoint as one file, which starts another one."""
        code = self.host.workspace if self.host is not None else None
        return code is not None and is_own_file(os.path.join(code.cwd, code.program))

    def refused_by(self, settled: Understood) -> Failure | None:
        """Why this host can't run its part, with the host's name as the roll call settled it."""
        return self.refusal and self.refusal._replace(host=settled.job.own_name)


def refused(runtime: Runtime, asked: Understood, error: MusterError) -> Prepared:
    """A host that can't run its part, because of ``error``."""
    return Prepared(asked, empty_offer(asked.job), refusal=runtime.failure_of(error))


def prepare_this_host(runtime: Runtime, asked: Understood, others: "Leader | None") -> Prepared:
    """The steps before the roll call that need no other host, and what there is to say of the request."""
    request, options, job = asked
    try:
        seen = UserEnvironment(request.environ, request.python)
        wanted = what_is_wanted(job, options, seen, runtime.ask)
        tools = (lambda: runtime.tools(job, options)) if asked.fetches else None
        host = prepare_host(wanted, request.environ, request.typed, tools, runtime.ask)
        offer = offer_of(
            wanted.job, wanted.settings, host, runtime.ports, partial(runtime.open_door, environ=request.environ)
        )
        runtime.timeline.add("host-prepared", launcher=offer.launcher, job=wanted.job.name)
        if asked.may_be_unheeded:
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
