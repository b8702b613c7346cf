"""An attempt of a job on this host, and most have one: its part is planned, started, and waited for."""

import signal
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Mapping

from musterpoint.base import settings, temporary
from musterpoint.base.errors import LauncherError, MusterError
from musterpoint.base.failure import Failure
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.base.stop_budget import rank_grace, whole_grace
from musterpoint.core.channel.peers import Peers
from musterpoint.core.code import build_locks
from musterpoint.core.diagnosis.facts import JobFacts
from musterpoint.core.job import platforms
from musterpoint.core.job.hyperparameters import text_value
from musterpoint.core.job.model import Job
from musterpoint.core.launch.plan import LaunchPlan
from musterpoint.core.launch.table import find
from musterpoint.core.prepare import PreparedHost, plan_host
from musterpoint.core.processes.pump import Pump
from musterpoint.core.processes.streams import OutputOptions, Prefix, ranks_of
from musterpoint.core.ready import Understood
from musterpoint.core.report import files
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.runtime import Request, Runtime
from musterpoint.core.supervise.context import RankTerminal, SupervisorContext
from musterpoint.core.supervise.state import SHORTEST_START, Outcome, Rules
from musterpoint.core.supervise.supervisor import Supervisor

if TYPE_CHECKING:
    from musterpoint.core.started_per_rank.leader import Leader


class Attempt(NamedTuple):
    """What the attempts of a job have in common. ``refusal``: why this host can't run its part."""

    runtime: Runtime
    asked: Understood
    host: PreparedHost | None
    refusal: Failure | None
    others: "Leader | None"

    def run(self, roster: Roster, peers: Peers) -> tuple[Supervisor, Outcome]:
        """Plans this host's part and runs it until nothing of it is left."""
        runtime, others, (request, options, job) = self.runtime, self.others, self.asked
        plan, refusal = self._plan(roster)
        if plan is not None:
            runtime.masker.know_named((setting.name, setting.value) for setting in plan.environment)
            for text in plan.notes:
                runtime.console.say(text)
        for hook in _HOOKS:
            hook(_Started(runtime, self.asked, self.host, plan, roster))
        try:
            pump = _pump(job, options, plan, settings.SHOW_RANKS in request.environ)
        except MusterError as error:  # --log-dir: the other hosts are told why this one can't run its part
            plan, refusal = None, refusal or runtime.failure_of(error)
            pump = _pump(job, options._replace(log_dir=""), None, False)
        for rank, (out, err) in others.outlets.items() if others is not None else ():
            pump.give(rank, out, err)
        context = _context(runtime, job, pump)._replace(
            others=others,
            about_job=lambda: _facts(job, plan, request),
            ssh=runtime.ssh,
            terminal=RankTerminal.from_variable(request.environ.get(settings.TERMINAL, "")),
            code_copy_of=request.environ.get(settings.CODE_COPY_OF, ""),
            stopping=lambda: _tell_of_stop(runtime, rank_grace(job.grace, options.stop_grace)),
            token=self._token(roster),
            lend=partial(self._lend, roster),
        )
        supervisor = Supervisor(context, _rules(job, options, plan, request.loan is not None), peers, roster)
        runtime.console.write_through(pump.write_message)  # from here on it is written, whatever happens
        runtime.masker.know(supervisor.token)
        runtime.signals.route_to(supervisor.on_signal)
        outcome = supervisor.run(plan, settings.without_own(request.environ), refusal)
        pump.close()
        return supervisor, outcome

    def _lend(self, roster: Roster, number: int, running: tuple[int, ...]) -> Mapping[str, Any]:
        from musterpoint.core.supervise.loan import lend

        (request, options, job), masked = self.asked, tuple(self.runtime.masker.secrets)
        return lend(job, options, request.environ, roster, masked, number, running)

    def _token(self, roster: Roster) -> str:
        """The control socket's: of the token that this host's entry points share, or of the job's secret. Empty: there
        is neither.
        """
        purpose = f"control socket {roster.session} {roster.me}"
        if self.others is not None:
            return self.others.token_for(purpose)
        if not self.asked.options.secret:
            return ""
        from musterpoint.core.channel.secret import derived

        return derived(self.asked.options.secret, purpose)

    def _plan(self, roster: Roster) -> tuple[LaunchPlan | None, Failure | None]:
        """This host's plan, if it has a part; and why it can't run it."""
        if self.host is None:
            return None, self.refusal
        try:
            request, options, job = self.asked
            launcher, environ = find(self.host.choice.launcher), request.environ
            if launcher.needs_temporary and not temporary.place_of(environ):
                raise LauncherError(temporary.missing(f"launcher {launcher.name}", environ))
            return plan_host(job, options, self.host, roster, environ), self.refusal
        except MusterError as error:
            return None, self.runtime.failure_of(error)


def _tell_of_stop(runtime: Runtime, seconds: float) -> None:
    """Ranks that ask for it are told how long they have."""
    if runtime.keeping is not None:
        runtime.keeping.stopping(seconds)


def _pump(job: Job, options: Settings, plan: LaunchPlan | None, show_ranks: bool) -> Pump:
    """``show_ranks``: each line has its rank where this host has several, unless the job's options say otherwise."""
    ranks = ranks_of(options.log_ranks, plan.first_rank if plan else 0)
    several: Prefix = "rank" if show_ranks and plan is not None and plan.local_ranks > 1 else "none"
    first = plan.first_rank if plan is not None and plan.local_ranks else None
    chatter = find(plan.launcher).chatter if plan is not None else None
    output = OutputOptions(
        options.log_prefix or several, job.current_host, ranks, options.log_dir, first, job.outside, chatter
    )
    return Pump(output, streams=plan.local_ranks if plan else 1)


def _as_service(record: Callable[..., None], name: str) -> Callable[..., None]:
    """``record`` for a host outside the group: its program is no rank, though it is looked after as one."""

    def add(event: str, **facts: Any) -> None:
        if event.startswith("rank-") or event == "ranks-signalled":
            facts.update(name=name, rank=None)
            event = f"service-{event.partition('-')[2]}"
        record(event, **facts)

    return add


def _context(runtime: Runtime, job: Job, pump: Pump) -> SupervisorContext:
    mask = runtime.masker.mask_user  # failures quote the user's program
    return SupervisorContext(
        runtime.loop,
        pump,
        runtime.sidecars,
        lambda text: runtime.console.say(text, mask),
        _as_service(runtime.timeline.add, job.outside) if job.outside else runtime.timeline.add,
        job.current_host,
        mask,
        job.paths.code,
        keep=lambda name, content: _keep(job, name, content),
    )


def _facts(job: Job, plan: LaunchPlan | None, request: Request) -> "JobFacts":
    """What a failure's hint depends on."""
    local = bool(request.environ.get(settings.LOCAL)) or ":local:" in job.arn
    channels = tuple(channel.name for channel in job.channels)
    platform = platforms.load(job.platform)
    several = job.started is not None and job.started.local_size > 1  # there any launcher that starts more is refused
    return JobFacts(
        platform.missing_channel,
        local,
        channels,
        plan.launcher if plan else "",
        plan.local_ranks if plan else 0,
        python=request.python,
        debugged=bool(request.environ.get(settings.TERMINAL)),
        program=job.entry_point.program,
        once_per_host=platform.once_per_host if several else "--launcher script",
        outside=job.outside,
    )


def _keep(job: Job, name: str, content: str | bytes) -> str:
    """Keeps what tells of a failure with the job's output data; returns where, empty where the job has no place."""
    if not job.paths.output_data:
        return ""
    return files.keep(job.paths.output_data, job.current_host, name, content)


def _rules(job: Job, options: Settings, plan: LaunchPlan | None, lent: bool) -> Rules:
    return Rules(
        host=job.current_host,
        grace=rank_grace(job.grace, options.stop_grace),
        stop_signal=getattr(signal, "SIG" + options.stop_signal),
        stop_code=options.stop_exit_code,
        finish_on_failure=options.on_failure == "finish",
        outside=not job.in_group,
        outside_stops=options.outside == "stop",
        tolerates_lost_peers=plan.independent if plan else False,
        stall_timeout=options.stall_timeout,
        stall_ends=options.on_stall == "end",
        start_timeout=max(options.rollcall_timeout, SHORTEST_START),
        lent=lent,
    )


class _Started(NamedTuple):
    """An attempt whose ranks are about to be started. ``host`` and ``plan``: None where this host has no part."""

    runtime: Runtime
    asked: Understood
    host: PreparedHost | None
    plan: LaunchPlan | None
    roster: Roster


def _uploads(started: _Started) -> None:
    """Intermediate outputs, where the job names a place for them."""
    (request, options, job), runtime = started.asked, started.runtime
    planned = started.host is not None and started.plan is not None and request.loan is None
    if planned and runtime.sync is None and text_value(job.hyperparameters, "sagemaker_s3_output"):
        assert started.host is not None
        from musterpoint.core.data.mover import Access  # 9 ms with the next, for jobs with outputs to send
        from musterpoint.core.outputs.sync import Sync, sync_plan

        whole, say = whole_grace(job.grace, options.stop_grace), runtime.console.say
        access = Access(settings.without_own(request.environ), (started.host.workspace.interpreter,), job.region)
        plan = sync_plan(job, access, whole, say, below_toolkit=runtime.request.program is not None)
        if plan is not None:  # the upload begins when ranks run
            runtime.use_sync(Sync(plan, runtime.loop, runtime.sidecars, say, runtime.timeline.add))


def _checkpoints(started: _Started) -> None:
    """Whole checkpoints, where the job keeps them at a place of its own."""
    keeping, plan = started.runtime.keeping, started.plan
    if keeping is not None and plan is not None and started.asked.job.in_group:
        ranks = plan.world_size, plan.first_rank, plan.local_ranks
        hosts = tuple(seat.name for seat in started.roster.group)
        attempt = started.roster.attempt
        started.runtime.loop.call_later(0, lambda: keeping.begin(ranks, hosts, attempt))  # the ranks have been started


def _build_locks(started: _Started) -> None:
    """Stale locks on builds of torch's extensions. They are looked for when the ranks have been started, which the
    search would delay; the warning still comes in time.
    """
    runtime, environ = started.runtime, started.asked.request.environ

    def look() -> None:
        for text in build_locks.warnings(environ):
            runtime.console.say(f"warning: {text}")

    runtime.loop.call_later(0, look)


_HOOKS: tuple[Callable[[_Started], None], ...] = (_uploads, _checkpoints, _build_locks)
"""Called before the ranks of an attempt start, in this order."""


def check_results(runtime: Runtime, asked: Understood, launcher: str) -> None:
    """Looks at what a job that ended well has left, where its launcher knows what to expect; the leader says it."""
    job, look = asked.job, find(launcher).afterwards
    if look is not None and job.in_group and job.current_host == job.leader and (warning := look(job.paths)):
        runtime.console.say(f"warning: {warning}")
