"""What is wrong on one host only ends all hosts at once: an option, a variable, a node rank."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..ports import free_port
from .conftest import end, finished

RANKS = ("--launcher", "ranks")
ADDRESSES = ("127.0.0.1", "127.0.0.2")
STEP = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NNODES": "2", "SLURM_NTASKS": "2",
    "SLURM_STEP_NODELIST": ",".join(ADDRESSES), "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}  # fmt: skip


class Hosts:
    """Two processes that take themselves for two hosts, each with words and variables of its own."""

    def __init__(self, python: str, environ: dict[str, str], folder: Path) -> None:
        self.python, self.environ, self.folder = python, environ, folder
        self.started: list[subprocess.Popen[str]] = []
        (folder / "t.py").write_text("import time; print('a rank has started', flush=True); time.sleep(60)")

    def start(self, *words: str, **environ: str) -> None:
        self.started.append(
            subprocess.Popen(
                [self.python, "-m", "musterpoint", *words], cwd=self.folder, env={**self.environ, **environ},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip

    def ends(self) -> list[tuple[int, str]]:
        """The code and the messages of each; the roll call would wait for a quarter of an hour."""
        done = [finished(process, 120) for process in self.started]
        assert [one.stdout for one in done] == [""] * len(done), "nothing of the job starts in a wrong world"
        return [(one.returncode, one.stderr) for one in done]


@pytest.fixture
def hosts(python: str, environ: dict[str, str], tmp_path: Path) -> Iterator[Hosts]:
    hosts = Hosts(python, environ, tmp_path)
    yield hosts
    end(hosts.started)


WRONG: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "value": (("--launcher", "nonsense"), {}, "--launcher='nonsense': expected one of"),
    "variable": (RANKS, {"MUSTER_SLOTS": "x"}, "MUSTER_SLOTS='x': expected"),
    "unknown": (("--lancher", "ranks"), {}, "unknown option --lancher (did you mean --launcher?)"),
    "program": (("--slots", "1", "--job-name"), {}, "no PROGRAM given"),
}


@pytest.mark.lane("suite")
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("where", [0, 1], ids=["leader", "worker"])
def test_an_option_that_is_wrong_on_one_host(hosts: Hosts, wrong: str, where: int) -> None:
    words, environ, said = WRONG[wrong]
    port = str(free_port())
    for place, address in enumerate(ADDRESSES):
        step = {**STEP, "SLURMD_NODENAME": address, "SLURM_NODEID": str(place), "SLURM_PROCID": str(place)}
        own = (words, environ) if place == where else (RANKS, {})
        hosts.start("launch", *own[0], "t.py", **step, **own[1], MUSTER_ROLLCALL_PORT=port)
    for code, text in hosts.ends():
        assert (code, said in text) == (64, True), text


@pytest.mark.parametrize("where", [0, 1], ids=["leader", "worker"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("--nproc-per-node many", "'many'"),
        ("--nope", "unknown option --nope"),
        ("--nope 3", "unknown option --nope"),
        ("--muster-slots x", "--muster-slots='x': expected"),
        ("--max-restarts", "no PROGRAM given"),
    ],
)
def test_a_torchrun_line_that_is_wrong_on_one_host(hosts: Hosts, where: int, wrong: str, said: str) -> None:
    port = str(free_port())
    for place in range(2):
        words = ("--nnodes", "2", "--node-rank", str(place), "--master-addr", "127.0.0.1")
        words += tuple(wrong.split()) if place == where else ()
        hosts.start("torchrun", *words, "t.py", MUSTER_ROLLCALL_PORT=port)
    for code, text in hosts.ends():
        assert (code, said in text) == (64, True), text


@pytest.mark.parametrize("where", [0, 1], ids=["leader", "worker"])
def test_a_log_directory_that_cannot_be_made_on_one_host(hosts: Hosts, where: int) -> None:
    port = str(free_port())
    for place, address in enumerate(ADDRESSES):
        step = {**STEP, "SLURMD_NODENAME": address, "SLURM_NODEID": str(place), "SLURM_PROCID": str(place)}
        more = ("--log-dir", "/proc/logs") if place == where else ()
        hosts.start("launch", *RANKS, *more, "t.py", **step, MUSTER_ROLLCALL_PORT=port)
    done = [finished(process, 120) for process in hosts.started]
    for one in done:
        assert (one.returncode, "--log-dir /proc/logs: can't make" in one.stderr) == (64, True), one.stderr


def test_a_port_that_somebody_has_ends_all_hosts(hosts: Hosts) -> None:
    port = str(free_port())
    with socket.create_server(("127.0.0.1", 0)) as other:
        master = other.getsockname()[1]
        words = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(master))
        for place in range(2):
            hosts.start("torchrun", *words, "--node-rank", str(place), "t.py", MUSTER_ROLLCALL_PORT=port)
        for code, text in hosts.ends():
            assert (code, f"--master-port {master}: something listens" in text) == (64, True), text


def test_what_is_wrong_about_the_meeting_ends_that_host_at_once(hosts: Hosts) -> None:
    step = {**STEP, "SLURMD_NODENAME": "127.0.0.2", "SLURM_NODEID": "1", "SLURM_PROCID": "1"}
    hosts.start("launch", *RANKS, "--rollcall-port", "abc", "t.py", **step)
    ((code, text),) = hosts.ends()
    assert (code, "--rollcall-port='abc': expected a port number" in text) == (64, True)
