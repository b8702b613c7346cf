"""One local job from its trees to its description: the control plane's side, told as one story."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from musterpoint import exit_codes
from musterpoint.console import Console
from musterpoint.fabric.survey import survey
from musterpoint.local import collect, tree
from musterpoint.local.backend import Backend, Running
from musterpoint.local.description import HostEnd, Phase, describe, judge
from musterpoint.local.environment import host_environment, threads
from musterpoint.local.job import LocalJob, masker_of
from musterpoint.local.stream import Pump, prefixes
from musterpoint.local.tree import Layout
from musterpoint.loop import Loop, Timer
from musterpoint.supervise.signals import STOPPING, Signals
from musterpoint.timeline import Timeline

ENTRY = (sys.executable, "-m", "musterpoint.cli.train")
"""What the platform's ``train`` is here."""

CPU_FALLBACK = (
    "warning: --cpu-fallback: in this job CUDA is the CPU and nccl is gloo, mixed precision is off; "
    "its speed and memory say nothing about a GPU"
)
CONTROL_PLANE = "control plane"
_LATE_OUTPUT = 5.0
_PATIENCE = 60.0
"""Seconds after a host's failure in which the others should have ended too; then the platform ends the job."""


class Ground(NamedTuple):
    """Where a job runs. Logs go to descriptor ``out``; ``inherited`` is the caller's environment."""

    layout: Layout
    backend: Backend
    console: Console
    inherited: Mapping[str, str]
    out: int = 1
    entry: Sequence[str] = ENTRY


def run(job: LocalJob, ground: Ground) -> dict[str, Any]:
    """Runs ``job`` to its end and returns its description, which also lies in ``job.json``.

    Must be called from the main thread. Nothing is left running, whatever happens.
    """
    phases = Phases(ground.console)
    phases.enter("Starting", f"{_hosts(job)}, {ground.backend.name}: {ground.backend.about}")
    if job.cpu_fallback:
        ground.console.say(CPU_FALLBACK)
    hosts = Hosts(job, ground, phases)
    try:
        for host in job.hosts:
            tree.write(job, host, ground.layout)
        ground.backend.open()
        hosts.start()
        hosts.wait()
    finally:
        hosts.close()
    phases.enter("Uploading", "collecting what the hosts left")
    for warning in collect.archive(ground.layout, job.hosts):
        ground.console.say(f"warning: {warning}")
    left = {host: collect.read(ground.layout, host) for host in job.hosts}
    verdict = judge(hosts.ends, left, hosts.stopped)
    mask = masker_of(job, ground.inherited).mask_user  # the reason may be the user's own words
    verdict = verdict._replace(reason=mask(verdict.reason))
    phases.enter(verdict.status, verdict.reason or f"exit code {verdict.code}", mask)
    ground.console.say(f"model: {ground.layout.artifact('model.tar.gz')}; everything: {ground.layout.output}")
    description = describe(job, ground.layout, ground.backend.name, phases.passed, hosts.ends, verdict)
    collect.timeline(ground.layout, job.hosts, phases.timeline.to_json())
    tree.write_text(ground.layout.artifact("job.json"), json.dumps(description, indent=1) + "\n")
    return description


def _hosts(job: LocalJob) -> str:
    return f"{len(job.hosts)} host{'s' if len(job.hosts) > 1 else ''}"


class Phases:
    """The statuses the job goes through, said as they begin and kept."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.passed: list[Phase] = []
        self.timeline = Timeline(CONTROL_PLANE)

    def enter(self, status: str, message: str, mask: Callable[[str], str] | None = None) -> None:
        self.passed.append(Phase(status, time.time(), message))
        self.timeline.add("phase", status=status)
        took = f" after {self.passed[-1].start - self.passed[0].start:.1f} s" if len(self.passed) > 1 else ""
        self.console.say(f"{status}{took}: {message}", mask)


class Hosts:
    """The running hosts: their handles, their output, and the signals people send to the job."""

    def __init__(self, job: LocalJob, ground: Ground, phases: Phases) -> None:
        self.job = job
        self.ground = ground
        self.phases = phases
        self.ends: dict[str, HostEnd] = {}
        self.stopped = False
        self._ending = False
        self._handles: dict[str, Running] = {}
        self._silent: set[str] = set()
        self._loop = Loop()
        self._loop.prepare_posts()
        ground.backend.on_end = lambda: self._loop.post(self._look_for_ends)
        self._pump = Pump(ground.out, lambda host: self._loop.post(lambda: self._fell_silent(host)))
        self._signals = Signals(self._loop, self._on_signal)
        self._timers: list[Timer] = []

    def start(self) -> None:
        """Starts every host with the platform's entry point."""
        backend = self.ground.backend
        inherited = backend.inherited(self.ground.inherited)
        own = {"MUSTER_SECRET": secrets.token_hex(16), "MUSTER_PLATFORM": "sagemaker"}
        if backend.shares_python and "MUSTER_INSTALLER" not in inherited:
            own["MUSTER_INSTALLER"] = "none"  # the hosts' Python is this one, and its packages are its owner's business
        if "OMP_NUM_THREADS" not in inherited:
            own["OMP_NUM_THREADS"] = str(threads(self.job, survey(self.ground.inherited)))
        marks = prefixes(self.job.hosts, colour=self.ground.out >= 0 and os.isatty(self.ground.out))
        stdin = 0 if len(self.job.hosts) == 1 and os.isatty(0) else subprocess.DEVNULL
        self.phases.enter("Training", f"job {self.job.name}")
        for host in self.job.hosts:
            environment = host_environment(self.job, host, inherited, {**own, **backend.environment(host)})
            read, write = os.pipe()
            self._pump.add(host, read, self.ground.layout.log(host), marks[host])
            try:
                self._handles[host] = backend.start(host, self.ground.entry, environment, stdin, write)
            finally:
                os.close(write)
        self._pump.start()
        if self.job.stop_after is not None:
            self._timers.append(self._loop.call_later(self.job.stop_after, self._stop_on_time))

    def wait(self) -> None:
        """Returns when every host has ended and its output is out."""
        self._look_for_ends()
        if len(self._handles) > len(self.ends) or self._silent < set(self.ends):
            self._loop.run()

    def close(self) -> None:
        """Kills what still runs; safe at any point."""
        self._signals.close()
        self.ground.backend.close()
        self._pump.close()
        self._loop.close()

    def _look_for_ends(self) -> None:
        for host, handle in self._handles.items():
            code = None if host in self.ends else handle.poll()
            if code is not None:
                starved = self.ground.backend.out_of_memory(host)
                self.ends[host] = HostEnd(exit_codes.of_status(code), time.time(), starved)
                self.phases.timeline.add("host-ended", of=host, code=self.ends[host].code)
                if self.ends[host].code and self.job.options.get("MUSTER_ON_FAILURE") != "finish":
                    self._timers.append(self._loop.call_later(_PATIENCE, self._end_the_rest))
        if len(self.ends) == len(self._handles):
            if self._silent == set(self._handles):
                self._loop.stop()
            else:
                # a process that got away may hold the pipe for ever
                self._timers.append(self._loop.call_later(_LATE_OUTPUT, self._loop.stop))

    def _fell_silent(self, host: str) -> None:
        self._silent.add(host)
        self._look_for_ends()

    def _on_signal(self, signo: int) -> None:
        if signo == signal.SIGCHLD:
            self._look_for_ends()
        elif signo not in STOPPING:
            return
        elif self.stopped:
            self.ground.console.say(f"{signal.Signals(signo).name} again: killing every host")
            self._kill()
        else:
            self._stop(signal.Signals(signo).name)

    def _stop_on_time(self) -> None:
        if not self.stopped:
            self._stop(f"--stop-after {self.job.stop_after:g}")

    def _end_the_rest(self) -> None:
        """A host failed and others go on as if nothing had happened: the job has failed all the same."""
        if self._running and not self._ending:
            self.ground.console.say(f"a host failed {_PATIENCE:g} s ago: ending {', '.join(self._running)} too")
            self._terminate()

    def _stop(self, why: str) -> None:
        """StopTrainingJob."""
        self.stopped = True
        self.phases.enter("Stopping", f"{why}; the hosts have {self.job.grace:g} s, a second Ctrl-C kills them at once")
        self._terminate()

    def _terminate(self) -> None:
        """SIGTERM to every host, and after the platform's grace the end."""
        self._ending = True
        for host in self._running:
            self.ground.backend.signal(host, signal.SIGTERM)
        self._timers.append(self._loop.call_later(self.job.grace, self._kill))

    def _kill(self) -> None:
        for host in self._running:
            self.ground.backend.kill(host)

    @property
    def _running(self) -> list[str]:
        return [host for host in self._handles if host not in self.ends]
