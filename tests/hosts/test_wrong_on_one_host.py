"""What is wrong on one host only ends all hosts at once: an option, a variable, a port."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from ..ports import free_port
from .by_hand import Processes, leaving_none
from .conftest import finished

STEP = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NNODES": "2", "SLURM_NTASKS": "2",
    "SLURM_STEP_NODELIST": "127.0.0.1,127.0.0.2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}  # fmt: skip


class Hosts(Processes):
    """Two processes that take themselves for two hosts, each with words and variables of its own."""

    def __init__(self, python: str, environ: dict[str, str], folder: Path) -> None:
        super().__init__(python, {**environ, "MUSTER_ROLLCALL_PORT": str(free_port())}, folder)
        (folder / "t.py").write_text("import time; print('a rank has started', flush=True); time.sleep(60)")

    def start(self, place: int, command: str, *words: str, **environ: str) -> None:
        """``muster launch`` in a step of Slurm's, or ``muster torchrun`` with node ranks."""
        if command == "launch":
            own = {"SLURMD_NODENAME": f"127.0.0.{place + 1}", "SLURM_NODEID": str(place), "SLURM_PROCID": str(place)}
            environ = {**STEP, **own, **environ}
        else:
            words = ("--nnodes=2", f"--node-rank={place}", "--master-addr=127.0.0.1", *words)
        run = (self.python, "-m", "musterpoint", command, *words, "t.py")
        self.popen(*run, environ=environ, stderr=subprocess.PIPE)

    def refuse(self, said: str) -> None:
        """All end with 64 and ``said``, and no rank starts, but beside a host that can't make its folder of logs.

        The roll call would wait for a quarter of an hour.
        """
        for done in [finished(process, 120) for process in self.started]:
            assert (done.returncode, said in done.stderr) == (64, True), done.stderr
            assert not done.stdout or "--log-dir" in said


hosts = leaving_none(Hosts)


MORE = pytest.mark.lane("hosts")
WRONG = [
    ("launch", ("--launcher", "nonsense"), {}, "--launcher='nonsense'"),
    ("launch", ("--launcher", "ranks"), {"MUSTER_SLOTS": "x"}, "MUSTER_SLOTS='x'"),
    ("launch", ("--lancher", "ranks"), {}, "--lancher"),
    ("launch", ("--slots", "1", "--job-name"), {}, "no PROGRAM"),
    pytest.param("launch", ("--launcher", "ranks", "--log-dir", "/proc/logs"), {}, "--log-dir /proc/logs", marks=MORE),
    pytest.param("torchrun", ("--nproc-per-node", "many"), {}, "'many'", marks=MORE),
    pytest.param("torchrun", ("--nope", "3"), {}, "--nope", marks=MORE),
    pytest.param("torchrun", ("--muster-slots", "x"), {}, "--muster-slots='x'", marks=MORE),
    pytest.param("torchrun", ("--max-restarts",), {}, "no PROGRAM", marks=MORE),
]


@pytest.mark.lane("suite")
@pytest.mark.parametrize(("command", "words", "environ", "said"), WRONG)
@pytest.mark.parametrize("where", [0, 1], ids=["leader", "worker"])
def test_what_is_wrong_on_one_host(
    hosts: Hosts, command: str, words: tuple[str, ...], environ: dict[str, str], said: str, where: int
) -> None:
    right = ("--launcher", "ranks") if command == "launch" else ()
    for place in range(2):
        hosts.start(place, command, *(words if place == where else right), **(environ if place == where else {}))
    hosts.refuse(said)


def test_a_port_that_somebody_has_ends_all_hosts(hosts: Hosts) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        master = str(other.getsockname()[1])
        for place in range(2):
            hosts.start(place, "torchrun", "--master-port", master)
        hosts.refuse(f"--master-port {master}: something listens")


def test_what_is_wrong_about_the_meeting_ends_that_host_at_once(hosts: Hosts) -> None:
    hosts.start(1, "launch", "--launcher", "ranks", "--rollcall-port", "abc")
    hosts.refuse("--rollcall-port='abc'")
