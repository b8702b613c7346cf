"""Runs one local job, as the platform's control plane would: from the hosts' trees to the job description."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import time
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from musterpoint.base import exit_codes
from musterpoint.base.console import Console
from musterpoint.base.errors import UsageError
from musterpoint.base.event_pipe import FILE
from musterpoint.base.loop import Loop, Timer
from musterpoint.base.settings import EVENTS, SHOW_RANKS, SHOWN, TERMINAL
from musterpoint.base.terminal import colours
from musterpoint.base.timeline import CONTROL_PLANE, Timeline
from musterpoint.core.job.model import Paths
from musterpoint.core.processes.received_signals import STOPPING, Signals
from musterpoint.core.report.files import write_file
from musterpoint.core.report.output_directory import OutputDirectory
from musterpoint.local import results
from musterpoint.local.advice import advice
from musterpoint.local.backend import Backend, Running
from musterpoint.local.debug_terminal import NAME, DebugTerminal
from musterpoint.local.host_environment import host_environment, threads_of
from musterpoint.local.job_request import LocalJob, masker_of
from musterpoint.local.job_status import Phase, Status
from musterpoint.local.live import LiveView, can_be_shown
from musterpoint.local.metric_points import MetricLog
from musterpoint.local.observer import Observer, Unobserved
from musterpoint.local.output import Pump, prefixes
from musterpoint.local.platforms import played, start
from musterpoint.local.platforms.local_platform import LocalPlatform, PlayedHost
from musterpoint.local.private_code import PrivateCode
from musterpoint.local.results import HostEnd
from musterpoint.local.tree import Layout

CPU_FALLBACK = (
    "warning: --cpu-fallback: in this job CUDA is the CPU and nccl is gloo, mixed precision is off; "
    "its speed and memory say nothing about a GPU"
)
_LATE_OUTPUT = 5.0
"""Seconds after the last host's end to wait for its output."""
_READER = 5.0
"""Seconds after a stop, or after the last host's end, after which a reader that takes no output is given up."""
_ABSENT = 60.0
"""Seconds after which a reader that takes no output, and so blocks a running job, is given up."""
_LONGEST_READING = 60.0
"""Seconds that a slow reader gets after all hosts have ended."""
_DESCRIPTION, _PER_HOST = 8192, 512
"""Bytes reserved for job.json, because the job may fill the disk."""
_PATIENCE = 60.0
"""Seconds after a host's failure after which the platform ends the other hosts."""


class RunContext(NamedTuple):
    """Where a job runs and where its output goes.

    ``layout``: the paths of the job's files.
    ``backend``: how the hosts are made; not opened yet.
    ``console``: shows our own messages.
    ``inherited``: the caller's environment.
    ``out``: the descriptor that the hosts' output goes to; -1: nowhere.
    ``live``: whether a terminal shows a line of each host below the log.
    ``cwd``: where the command was typed.
    ``entry``: a command in the place of what the platform starts on each host; empty: none.
    ``platform``: how the job's platform is played; None: as ``muster local`` does.
    ``observer``: hears of the job's statuses, and may end hosts.
    """

    layout: Layout
    backend: Backend
    console: Console
    inherited: Mapping[str, str]
    out: int = 1
    entry: Sequence[str] = ()
    live: bool = False
    cwd: str = "/"
    platform: LocalPlatform | None = None
    observer: Observer = Unobserved()

    def played(self, job: LocalJob) -> LocalPlatform:
        return self.platform or played(job.platform)


def run(job: LocalJob, context: RunContext) -> dict[str, Any]:
    """Runs ``job`` to its end and returns its description, which is also written to ``job.json``.

    Must be called from the main thread. Leaves nothing running, also after an error.
    """
    with contextlib.closing(OutputDirectory(Paths(output=context.layout.output), shared=True)) as output:
        output.set_aside("job.json", _DESCRIPTION + _PER_HOST * (len(job.hosts) + len(job.metrics)))
        return _run(job, context, output)


def _run(job: LocalJob, context: RunContext, output: OutputDirectory) -> dict[str, Any]:
    phases = _Phases(context.console, context.observer)
    count = f"{len(job.hosts)} host{'s' if len(job.hosts) > 1 else ''}"
    phases.enter("Starting", f"{count}, {context.backend.name}: {context.backend.about}")
    if job.cpu_fallback:
        context.console.say(CPU_FALLBACK)
    for host in job.hosts:
        _make_tree(job, host, context)
    code = PrivateCode(job, context.layout, context.console.say)
    code.make()
    metrics = MetricLog(job.metrics, context.layout.output, context.console.say, context.observer.measured)
    hosts = Hosts(job, context, phases, code, metrics)
    try:
        context.observer.opened(hosts)
        hosts.start()
        hosts.wait()
    finally:
        hosts.close()
        metrics.close()
    phases.enter("Uploading", "collecting what the hosts left")
    for warning in results.write_archives(context.layout, job.hosts):
        context.console.say(f"warning: {warning}")
    left = {host: results.read_host_files(context.layout, host) for host in job.hosts}
    mask = masker_of(job, context.inherited).mask_user  # the reason may be the user's own words
    head = context.played(job).failure_head
    end = results.job_end(hosts.ends, left, hosts.stopped, head)
    end = end._replace(reason=mask(end.reason))
    if hosts.interrupted and end.code == exit_codes.STOPPED:  # by a person, whom no platform's code tells anything
        end = end._replace(code=exit_codes.of_signal(signal.SIGINT))
    phases.enter(end.status, end.reason or f"exit code {end.code}", mask)
    for text in advice(end.reason, job, context.layout, context.backend.isolated, context.cwd) if end.code else ():
        context.console.say(text)
    if text := code.settle():
        context.console.say(text)
    for text in metrics.lines():
        context.console.say(text)
    model = (
        f"model: {context.layout.artifact('model.tar.gz')}; " if results.has_model(context.layout, job.hosts) else ""
    )
    context.console.say(f"{model}everything: {context.layout.output}")
    context.console.say(f"where the time went: muster report {shlex.quote(context.layout.output)}")
    description = results.describe(job, context.layout, context.backend.name, phases.passed, hosts.ends, end)
    description |= metrics.described()
    for problem in (
        write_file(output, "job.json", (json.dumps(description, indent=1) + "\n").encode()),
        results.write_timeline(context.layout, job.hosts, phases.timeline.to_json(), output),
    ):
        if problem:
            context.console.say(f"warning: {problem}")
    return description


def _make_tree(job: LocalJob, host: str, context: RunContext) -> None:
    try:
        context.played(job).prepare(job, host, context.layout)
    except OSError as error:
        raise UsageError(
            f"--output={context.layout.output}: {error.filename or host} can't be made: {error.strerror}"
        ) from None


class Hosts:
    """The running hosts: starts them, copies their output, and handles their ends and signals to the job."""

    def __init__(
        self, job: LocalJob, context: RunContext, phases: _Phases, code: PrivateCode, metrics: MetricLog
    ) -> None:
        self.job = job
        self.code = code
        self.metrics = metrics
        self.context = context
        self.phases = phases
        self.ends: dict[str, HostEnd] = {}
        self.stopped = self.interrupted = False
        self._ending = False
        self._handles: dict[str, Running] = {}
        self._output_ended: set[str] = set()
        self._loop = Loop()
        self._loop.prepare_posts()
        self._pump = Pump(
            context.out,
            lambda host: self._loop.post(lambda: self._output_has_ended(host)),
            lambda error, log: self._loop.post(lambda: self._no_log(error, log)),
            lambda: self._loop.post(self._look_for_ends),
            self._wrote,
        )
        self._terminal: DebugTerminal | None = None
        if job.debug is not None:
            self._terminal = DebugTerminal(job.debug, self._loop, lambda: self._on_signal(signal.SIGINT))
        self._live: LiveView | None = None
        if context.live and self._terminal is None and can_be_shown(context.out, context.inherited):
            self._live = LiveView(self._loop, self._pump, context.console, context.out, context.inherited)
        self._over_at: float | None = None
        self._signals = Signals(self._loop, self._on_signal)
        self._timers: list[Timer] = []

    def start(self) -> None:
        """Makes every host and starts the platform's entry point on it."""
        backend = self.context.backend
        backend.open(lambda: self._loop.post(self._look_for_ends))
        inherited = backend.inherited(self.context.inherited)
        platform = self.context.played(self.job)
        own = {"MUSTER_SECRET": secrets.token_hex(16), **threads_of(self.job, inherited)}
        if backend.shares_python and "MUSTER_INSTALLER" not in inherited:
            own["MUSTER_INSTALLER"] = "none"  # the hosts use this Python: leave its packages to the user
        own[SHOW_RANKS] = "1"
        if self._terminal is not None:
            own[TERMINAL] = self._terminal.variable
            log = os.path.join(self.context.layout.output, "terminal.log")
            self._pump.add(NAME, self._terminal.take_over(), log, b"")
        marks = prefixes(self.job.hosts, colours(self.context.out, self.context.inherited), self.job.role_of)
        alone = len(self.job.hosts) == 1 and self._terminal is None
        stdin = 0 if alone and os.isatty(0) else subprocess.DEVNULL
        self.phases.enter("Training", f"job {self.job.name}")
        for host in self.job.hosts:
            tree = backend.tree(host)
            here = PlayedHost(
                self.job,
                host,
                self.context.layout,
                backend.addresses,
                tree,
                {
                    **own,
                    **backend.environment(host),
                    **self.code.environment(host, tree),
                    **self._show(host),
                    **self._shown(host),
                },
            )
            environment = host_environment(self.job, host, inherited, platform.environment(here), here.own)
            argv = self.code.command(host, tree, self.context.entry or start.command(platform.processes(here)))
            read, write = os.pipe()
            self._pump.add(host, read, self.context.layout.log(host), marks[host])
            try:
                self._handles[host] = backend.start(host, argv, environment, stdin, write)
            finally:
                os.close(write)
        self._pump.start()
        if self._live is not None:
            self._live.begin()
        self._watch_absent_reader()
        if self.job.stop_after is not None:
            self._timers.append(self._loop.call_later(self.job.stop_after, self._stop_on_time))

    def _shown(self, host: str) -> dict[str, str]:
        """What ``host`` calls its tree, and where it is for people: the paths that they are told exist there."""
        inside, outside = self.context.backend.tree(host), self.context.layout.tree(host)
        return {SHOWN: f"{inside}={outside}"} if inside != outside else {}

    def _show(self, host: str) -> dict[str, str]:
        """Gives ``host`` its line, and returns the variable by which it tells its events."""
        if self._live is None:
            return {}
        self._live.add(host, self.context.layout.ranks(host))
        folder = self.context.backend.environment(host)["MUSTER_LOG_DIR"]
        return {EVENTS: os.path.join(folder, FILE)}

    def post(self, action: Callable[[], None]) -> None:
        """Calls ``action`` in the thread that looks after the hosts; may be called from any."""
        self._loop.post(action)

    def wait(self) -> None:
        """Returns when every host has ended and its output is written."""
        self._look_for_ends()
        if len(self._handles) > len(self.ends) or self._output_ended < set(self.ends) or self._over_at is not None:
            self._loop.run()

    def close(self) -> None:
        """Kills what still runs; safe at any point."""
        if self._live is not None:
            self._live.close()
        self._signals.close()
        self.context.backend.close()
        self._pump.close()
        if self._terminal is not None:
            self._terminal.close()
        self._loop.close()

    def _look_for_ends(self) -> None:
        for host, handle in self._handles.items():
            code = None if host in self.ends else handle.poll()
            if code is not None:
                out_of_memory = self.context.backend.out_of_memory(host)
                self.ends[host] = HostEnd(exit_codes.of_status(code), time.time(), out_of_memory)
                self.phases.timeline.add("host-ended", of=host, code=self.ends[host].code)
                if self._live is not None:
                    self._live.end(host, self.ends[host].code)
                if self.ends[host].code:
                    self._end_the_rest_after(host)
        if len(self.ends) == len(self._handles):
            streams = set(self._handles)
            if self._terminal is not None:
                self._terminal.release()
                streams.add(NAME)
            if self._output_ended == streams and self._pump.out.waiting_since is None:
                self._loop.stop()
            elif self._over_at is None:
                self._over_at = self._loop.clock()
                self._watch_reader()
                self._timers.append(self._loop.call_later(_LATE_OUTPUT, self._end_late))

    def _end_late(self) -> None:
        """Ends the wait for output: a stray process may keep the pipe open. A slow reader gets more time."""
        assert self._over_at is not None
        waits = self._pump.out.waiting_since is not None
        if waits and self._loop.clock() < self._over_at + _LONGEST_READING:
            self._timers.append(self._loop.call_later(_LATE_OUTPUT, self._end_late))
        else:
            self._loop.stop()

    def _watch_reader(self) -> None:
        """After a stop, or when all hosts have ended, gives up a reader that takes no output."""
        if self._waited >= _READER:
            self._give_up()
        else:
            self._timers.append(self._loop.call_later(_READER - self._waited, self._watch_reader))

    def _watch_absent_reader(self) -> None:
        """Gives up a reader that takes nothing while output waits: the job would never end."""
        if self._pump.out.is_full and self._waited >= _ABSENT:
            self._give_up()
        else:
            self._timers.append(self._loop.call_later(_ABSENT / 4, self._watch_absent_reader))

    @property
    def _waited(self) -> float:
        """Seconds since the reader last took output; 0 if no output waits."""
        since = self._pump.out.waiting_since
        return 0.0 if since is None else self._loop.clock() - since

    def _give_up(self) -> None:
        self._pump.out.give_up()
        self.context.console.say(f"nobody reads our output: what is missing stands in {self.context.layout.hosts}")

    def _no_log(self, error: OSError, log: str) -> None:
        self.context.console.say(f"warning: {log}: {error.strerror}; output is missing there")

    def _wrote(self, host: str, data: bytes) -> None:
        """Called in the pump's thread when a host has written something."""
        self.context.observer.wrote(host, data)
        self.metrics.feed(host, data)

    def _output_has_ended(self, host: str) -> None:
        self._output_ended.add(host)
        self._look_for_ends()

    def _on_signal(self, signo: int) -> None:
        if signo == signal.SIGCHLD:
            self._look_for_ends()
            return
        if signo not in STOPPING:
            return
        name = "Ctrl-C" if signo == signal.SIGINT else signal.Signals(signo).name
        if self.stopped:
            self.context.console.say(f"{name} again: killing every host")
            self.kill()
        else:
            self.interrupted = signo == signal.SIGINT
            self.stop(name)

    def _stop_on_time(self) -> None:
        if not self.stopped:
            self.stop(f"--stop-after {self.job.stop_after:g}")

    def _end_the_rest_after(self, host: str) -> None:
        """``host`` has failed: the others get time to notice; none where they can't, as they never met it."""
        if results.failed_before_the_roll_call(self.context.layout, host):
            self.end_the_rest(f"{host} has ended before it met the others")
        elif self.job.options.get("MUSTER_ON_FAILURE") != "finish":
            why = f"a host failed {_PATIENCE:g} s ago"
            self._timers.append(self._loop.call_later(_PATIENCE, lambda: self.end_the_rest(why)))

    def end_the_rest(self, why: str) -> None:
        """Ends the hosts that still run after another host failed: the job has failed anyway."""
        if self._running and not self._ending:
            self.context.console.say(f"{why}: ending {', '.join(self._running)} too")
            self._terminate()

    def stop(self, why: str) -> None:
        """Stops the job, as StopTrainingJob does."""
        self.stopped = True
        self.phases.enter("Stopping", f"{why}; the hosts have {self.job.grace:g} s, a second Ctrl-C kills them at once")
        self._terminate()

    def _terminate(self) -> None:
        """Sends SIGTERM to every host, and kills them after the platform's grace."""
        if not self._ending:
            self._watch_reader()
        self._ending = True
        for host in self._running:
            self.context.backend.signal(host, signal.SIGTERM)
        self._timers.append(self._loop.call_later(self.job.grace, self.kill))

    def kill(self, host: str = "") -> None:
        """Kills what still runs of ``host``, of all hosts where none is named."""
        for running in self._running:
            if host in ("", running):
                self.context.backend.kill(running)

    @property
    def _running(self) -> list[str]:
        return [host for host in self._handles if host not in self.ends]


class _Phases:
    """The job's statuses; each is logged when it begins, and kept."""

    def __init__(self, console: Console, observer: Observer) -> None:
        self.console = console
        self.observer = observer
        self.passed: list[Phase] = []
        self.timeline = Timeline(CONTROL_PLANE)

    def enter(self, status: Status, message: str, mask: Callable[[str], str] | None = None) -> None:
        self.passed.append(Phase(status, time.time(), message))
        self.timeline.add("phase", status=status)
        self.observer.entered(self.passed[-1])
        took = f" after {self.passed[-1].start - self.passed[0].start:.1f} s" if len(self.passed) > 1 else ""
        self.console.say(f"{status}{took}: {message}", mask)
