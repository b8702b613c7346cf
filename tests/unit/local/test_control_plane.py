"""A whole local job with a small entry point in the place of ``train``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.console import Console
from musterpoint.base.errors import UsageError
from musterpoint.local import control_plane
from musterpoint.local.control_plane import RunContext, run
from musterpoint.local.job_request import LocalJob, host_names
from musterpoint.local.process_hosts import ProcessHosts
from musterpoint.local.tree import Layout

WORK = """
import json, os, signal, sys, time
base = os.environ["SAGEMAKER_BASE_DIR"]
host = json.load(open(base + "/input/config/resourceconfig.json"))["current_host"]
def say(text):
    os.write(1, text.encode() + b"\\n")
def leave(name, text):
    open(os.path.join(base, name), "w").write(text)
"""


class Bench:
    """A job on hosts of the ``process`` backend, what is said of it, and what it leaves."""

    def __init__(self, directory: Path, hosts: int = 2, **changes: Any) -> None:
        self.layout = Layout(str(directory))
        self.job = LocalJob("a-job", host_names(hosts), "train.py", "/code", **changes)
        self.said: list[bytes] = []

    def run(self, work: str, out: int = -1) -> dict[str, Any]:
        backend = ProcessHosts(self.layout, self.job.hosts, one_address=True)
        entry = [sys.executable, "-c", WORK + work]
        console = Console(sink=self.said.append)
        return run(self.job, RunContext(self.layout, backend, console, os.environ, out, entry))

    def run_and_stop(self, work: str) -> dict[str, Any]:
        """Stops the job (SIGTERM) once every host has said ``ready``."""
        read, write = os.pipe()

        def stop() -> None:
            with open(read, "rb") as shown:
                ready = (line for line in shown if line.endswith(b"ready\n"))
                if len(list(islice(ready, len(self.job.hosts)))) == len(self.job.hosts):
                    os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=stop)
        thread.start()
        try:
            return self.run(work, write)
        finally:
            os.close(write)
            thread.join()

    def log(self, host: str) -> bytes:
        return Path(self.layout.log(host)).read_bytes()

    def file(self, name: str) -> Any:
        return json.loads(Path(self.layout.artifact(name)).read_text())


def test_a_job_from_its_trees_to_its_description(tmp_path: Path) -> None:
    bench = Bench(tmp_path, arguments=("--epochs", "3"))
    with open(tmp_path / "shown", "wb") as shown:
        description = bench.run(
            "say('hello'); say(os.environ['MUSTER_PROGRAM_ARGS']); os.write(1, b'\\xff no end')\n"
            "if host == 'algo-1': leave('model/model.pt', 'weights')\n"
            "leave('output/timeline.json', json.dumps([{'host': host, 'at': time.time(), 'event': 'ran'}]))",
            shown.fileno(),
        )
    assert bench.log("algo-1") == bench.log("algo-2") == b'hello\n["--epochs", "3"]\n\xff no end'
    lines = (tmp_path / "shown").read_bytes().splitlines()
    assert sorted(lines)[:3] == [b'algo-1 | ["--epochs", "3"]', b"algo-1 | hello", b"algo-1 | \xff no end"]
    assert description == bench.file("job.json")
    assert (description["TrainingJobStatus"], description["ExitCode"]) == ("Completed", 0)
    phases = [phase["Status"] for phase in description["SecondaryStatusTransitions"]]
    assert phases == ["Starting", "Training", "Uploading", "Completed"]
    with tarfile.open(bench.layout.artifact("model.tar.gz")) as tar:
        assert tar.getnames() == ["model.pt"]
    events = [(moment["host"], moment["event"]) for moment in bench.file("timeline.json")]
    assert {("algo-1", "ran"), ("algo-2", "ran"), ("control plane", "host-ended")} <= set(events)
    assert b"".join(bench.said).count(b"musterpoint: ") == 6


@pytest.mark.parametrize(("inherited", "seen"), [("", "none"), ("pip", "pip")])
def test_my_python_is_left_alone_unless_i_say_so(
    inherited: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MUSTER_INSTALLER", raising=False)
    if inherited:
        monkeypatch.setenv("MUSTER_INSTALLER", inherited)
    bench = Bench(tmp_path, 1)
    bench.run("say(os.environ['MUSTER_INSTALLER'])")
    assert bench.log("algo-1").decode().strip() == seen


def test_a_failing_host_fails_the_job_with_its_words(tmp_path: Path) -> None:
    description = Bench(tmp_path).run("if host == 'algo-2': leave('output/failure', 'ValueError: no'); sys.exit(7)")
    assert (description["TrainingJobStatus"], description["ExitCode"]) == ("Failed", 7)
    assert description["FailureReason"] == "AlgorithmError: ValueError: no\nexit code 7"
    assert [host["ExitCode"] for host in description["Hosts"]] == [0, 7]


def test_a_stop_lets_hosts_save(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    description = bench.run_and_stop(
        "def stop(*_):\n    leave('model/' + host, host)\n    sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, stop); say('ready')\nwhile True: time.sleep(0.05)"
    )
    with tarfile.open(bench.layout.artifact("model.tar.gz")) as tar:
        assert sorted(tar.getnames()) == ["algo-1", "algo-2"]
    assert (description["TrainingJobStatus"], description["ExitCode"]) == ("Stopped", 143)
    assert "FailureReason" not in description
    assert "Stopping" in [phase["Status"] for phase in description["SecondaryStatusTransitions"]]


def test_who_does_not_stop_is_killed_after_the_grace(tmp_path: Path) -> None:
    description = Bench(tmp_path, grace=0.2).run_and_stop(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); say('ready'); time.sleep(3600)"
    )
    assert (description["TrainingJobStatus"], description["ExitCode"]) == ("Stopped", 137)


def test_a_stop_after_some_time(tmp_path: Path) -> None:
    description = Bench(tmp_path, stop_after=0.2).run("time.sleep(3600)")
    assert (description["TrainingJobStatus"], description["ExitCode"]) == ("Stopped", 143)


def test_hosts_that_go_on_after_a_failure_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("musterpoint.local.control_plane._PATIENCE", 0.3)
    description = Bench(tmp_path).run("if host == 'algo-1': sys.exit(64)\ntime.sleep(3600)")
    assert (description["TrainingJobStatus"], description["ExitCode"]) == ("Failed", 64)
    assert [host["ExitCode"] for host in description["Hosts"]] == [64, 143]


def test_a_stop_that_comes_too_late_changes_nothing(tmp_path: Path) -> None:
    assert Bench(tmp_path, stop_after=3600.0).run("")["TrainingJobStatus"] == "Completed"


class Broken(ProcessHosts):
    def start(self, host: str, *rest: Any) -> subprocess.Popen[bytes]:
        if host == "algo-2":
            raise UsageError("no second host")
        return super().start(host, *rest)


def test_an_error_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    backend = Broken(bench.layout, bench.job.hosts)
    context = RunContext(
        bench.layout, backend, Console(sink=bench.said.append), {}, -1, [sys.executable, "-c", "input()"]
    )
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UsageError, match="no second host"):
        run(bench.job, context)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)] == handlers


def test_the_fallback_is_said_loudly_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cpu_fallback=True)
    bench.run("say(os.environ['MUSTER_CPU_FALLBACK'] + os.environ['PYTHONPATH'].partition(':')[0][-8:])")
    assert bench.log("algo-1") == b"1/patches\n"
    assert b"".join(bench.said).count(b"--cpu-fallback") == 1


def test_a_job_that_says_much_ends_though_nobody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_plane, "_ABSENT", 0.4)
    bench = Bench(tmp_path, hosts=1)
    read, write = os.pipe()
    try:
        described = bench.run("for n in range(20_000): os.write(1, b'x' * 999 + b'\\n')\nsys.exit(7)", write)
    finally:
        os.close(read)
        os.close(write)
    assert described["ExitCode"] == 7
    assert Path(bench.layout.log("algo-1")).read_bytes().count(b"\n") == 20_000
    assert any(b"nobody reads our output" in said for said in bench.said)
