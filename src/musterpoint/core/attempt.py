"""An attempt of a job on this host, and most have one: its part is planned, started, and waited for."""

import signal
from functools import partial
from typing import Any, Callable, Mapping

from musterpoint.base import settings, temporary
from musterpoint.base.errors import LauncherError, MusterError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.base.stop_budget import rank_grace
from musterpoint.core.channel.peers import Peers
from musterpoint.core.code.program_files import CodeDirectory
from musterpoint.core.diagnosis import DiagnosisContext, JobFacts
from musterpoint.core.job import platforms
from musterpoint.core.job.model import Job
from musterpoint.core.launch.host_plan import PreparedHost, plan_host
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.launch.launchers import find_launcher
from musterpoint.core.part import Excused, JobContext, Part, Ready, Refused, Stopped
from musterpoint.core.processes.pump import Pump
from musterpoint.core.processes.streams import OutputOptions, Prefix, ranks_of
from musterpoint.core.report import files
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.runtime import Request, Runtime
from musterpoint.core.supervise.context import OtherEntryPoints, RankTerminal, SupervisorContext
from musterpoint.core.supervise.state import SHORTEST_START, Outcome, Rules
from musterpoint.core.supervise.supervisor import Supervisor


class Attempt(NamedTuple):
    """A job on this host, which is started once or several times."""

    runtime: Runtime
    context: JobContext
    others: OtherEntryPoints

    def run(self, part: Part, roster: Roster, peers: Peers) -> tuple[Supervisor, Outcome]:
        """Runs this host's part until nothing of it is left."""
        runtime, (request, options, job, _) = self.runtime, self.context
        nothing = LaunchPlan.nothing(job.current_host)
        act: Callable[[Supervisor], Outcome]
        match part:
            case Ready(host=host):
                try:
                    plan = self._plan(host, roster)
                    pump = _pump(job, options, plan, settings.SHOW_RANKS in request.environ)
                except MusterError as error:  # the other hosts are told why this one can't run its part
                    return self.run(Refused(runtime.failure_of(error)), roster, peers)
                found = host.workspace.interpreter, request.program is not None
                runtime.watchers.open("starting", self.context.seen(runtime, found))
                act = partial(Supervisor.run, plan=plan, environ=settings.without_own(request.environ))
            case Refused(failure=failure):
                plan, pump, act = nothing, Pump(), lambda supervisor: supervisor.wait(failure)
            case Excused(why=why):
                runtime.timeline.add("host-excused", why=why)
                plan, pump, act = nothing, Pump(), Supervisor.wait
            case Stopped():  # the signal was kept, and comes as soon as it is waited for
                plan, pump, act = nothing, Pump(), Supervisor.wait
        supervisor = self._supervisor(plan, pump, roster, peers)
        outcome = act(supervisor)
        pump.close()
        if plan.launcher and not outcome.code:
            self._look_at_results(plan.launcher)
        return supervisor, outcome

    def _plan(self, host: PreparedHost, roster: Roster) -> LaunchPlan:
        """This host's plan, and what there is to say of it.

        Raises:
            MusterError: the launcher can't start it.
        """
        request, options, job, _ = self.context
        launcher, environ = find_launcher(host.choice.launcher), request.environ
        if launcher.needs_temporary and not temporary.place_of(environ):
            raise LauncherError(temporary.missing(f"launcher {launcher.name}", environ))
        plan = plan_host(job, options, host, roster, environ)
        self.runtime.masker.know_named((setting.name, setting.value) for setting in plan.environment)
        for text in plan.notes:
            self.runtime.console.say(text)
        return plan

    def _supervisor(self, plan: LaunchPlan, pump: Pump, roster: Roster, peers: Peers) -> Supervisor:
        runtime, (request, options, job, _) = self.runtime, self.context
        for rank, (out, err) in self.others.outlets.items():
            pump.give(rank, out, err)
        rules = _rules(job, options, plan, request.loan is not None)
        supervisor = Supervisor(self._context(plan, pump, roster), rules, peers, roster, runtime.watchers)
        runtime.console.write_through(pump.write_message)  # from here on it is written, whatever happens
        runtime.masker.know(supervisor.token)
        runtime.signals.route_to(supervisor.on_signal)
        return supervisor

    def _context(self, plan: LaunchPlan, pump: Pump, roster: Roster) -> SupervisorContext:
        runtime, (request, _options, job, _) = self.runtime, self.context
        mask = runtime.masker.mask_user  # failures quote the user's program
        return SupervisorContext(
            runtime.loop,
            pump,
            runtime.sidecars,
            lambda text: runtime.console.say(text, mask),
            _recorder(runtime.timeline.add, job),
            job.current_host,
            mask,
            others=self.others,
            keep=lambda name, content: _keep(job, name, content),
            context_of_diagnosis=lambda: DiagnosisContext(
                job.current_host,
                mask,
                CodeDirectory(job.paths.code, request.environ.get(settings.CODE_COPY_OF, "")),
                job=_facts(job, plan, request),
            ),
            terminal=RankTerminal.from_variable(request.environ.get(settings.TERMINAL, "") if job.trains else ""),
            token=self._token(roster),
            lend=partial(self._lend, roster),
        )

    def _look_at_results(self, launcher: str) -> None:
        """Looks at what a job that ended well has left, where its launcher knows what to expect; the leader says it."""
        job, look = self.context.job, find_launcher(launcher).afterwards
        if look is not None and job.in_group and job.current_host == job.leader and (warning := look(job.paths)):
            self.runtime.console.say(f"warning: {warning}")

    def _lend(self, roster: Roster, number: int, running: tuple[int, ...]) -> Mapping[str, Any]:
        from musterpoint.core.supervise.loan import lend

        (request, options, job, _), masked = self.context, tuple(self.runtime.masker.secrets)
        return lend(job, options, request.environ, roster, masked, number, running)

    def _token(self, roster: Roster) -> str:
        """The control socket's: of the token that this host's entry points share, or of the job's secret. Empty: there
        is neither.
        """
        purpose, secret = f"control socket {roster.session} {roster.me}", self.context.options.secret
        if (token := self.others.token_for(purpose)) or not secret:
            return token
        from musterpoint.core.channel.secret import derived

        return derived(secret, purpose)


def _pump(job: Job, options: Settings, plan: LaunchPlan, show_ranks: bool) -> Pump:
    """``show_ranks``: each line has its rank where this host has several, unless the job's options say otherwise.

    Raises:
        UsageError: a file of ``--log-dir`` can't be had.
    """
    several: Prefix = "rank" if show_ranks and (plan.local_ranks > 1 or job.beside) else "none"
    output = OutputOptions(
        options.log_prefix or several,
        job.current_host,
        ranks_of(options.log_ranks, plan.first_rank),
        options.log_dir,
        plan.first_rank if plan.local_ranks else None,
        job.outside,
        job.role_name,
        plan.local_ranks == 1,
        find_launcher(plan.launcher).chatter,
    )
    return Pump(output, streams=plan.local_ranks)


def _recorder(record: Callable[..., None], job: Job) -> Callable[..., None]:
    """``record``, which says the role of each program. Outside the group that trains, or the role that leads, programs
    are no ranks of the job, though they are looked after as such.
    """
    role = job.role_name
    name = job.outside or (role if role != job.leads else "")

    def add(event: str, **facts: Any) -> None:
        if name and (event.startswith("rank-") or event == "ranks-signalled"):
            facts.update(name=name, rank=None)
            event = f"service-{event.partition('-')[2]}"
        if role and facts.get("pid") is not None:
            facts["role"] = facts.get("name") if event.startswith("service-") else role
        record(event, **facts)

    return add if name or role else record


def _facts(job: Job, plan: LaunchPlan, request: Request) -> JobFacts:
    """What a failure's hint depends on."""
    local = bool(request.environ.get(settings.LOCAL)) or ":local:" in job.arn
    channels = tuple(channel.name for channel in job.channels)
    platform = platforms.load(job.platform)
    several = job.started is not None and job.started.local_size > 1  # there any launcher that starts more is refused
    return JobFacts(
        platform.missing_channel,
        local,
        channels,
        plan.launcher,
        plan.local_ranks,
        python=request.python,
        debugged=bool(request.environ.get(settings.TERMINAL)),
        program=job.entry_point.program,
        once_per_host=platform.once_per_host if several else "--launcher script",
        outside=job.outside,
        role=job.role_name,
        role_is_one=plan.independent or plan.world_size == 1,
        leads=job.trains,
    )


def _keep(job: Job, name: str, content: str | bytes) -> str:
    """Keeps what tells of a failure with the job's output data; returns where, empty where the job has no place."""
    if not job.paths.output_data:
        return ""
    return files.keep(job.paths.output_data, job.current_host, name, content)


def _rules(job: Job, options: Settings, plan: LaunchPlan, lent: bool) -> Rules:
    return Rules(
        host=job.current_host,
        grace=rank_grace(job.grace, options.stop_grace),
        stop_signal=getattr(signal, "SIG" + options.stop_signal),
        stop_code=options.stop_exit_code,
        finish_on_failure=options.on_failure == "finish",
        outside=not job.in_group,
        ends=job.ends if job.in_group or options.outside != "stop" else "never",
        role=job.role_name,
        job_roles=" and ".join(role.name for role in job.roles if role.ends == "job"),
        tolerates_lost_peers=plan.independent and not job.roles,
        stall_timeout=options.stall_timeout,
        stall_ends=options.on_stall == "end",
        start_timeout=max(options.rollcall_timeout, SHORTEST_START),
        lent=lent,
    )
