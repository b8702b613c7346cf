"""A stop reaches every rank on every host, leaves it its time, and is no failure."""

from __future__ import annotations

import re
import signal

import pytest

from ..ports import free_port

LAUNCHERS = ["script", "ranks", "torchrun"]

CHECKPOINT = """
import os, pathlib, signal, sys, time

where = os.environ.get("RANK", os.environ.get("NODE_RANK"))
seconds = float(sys.argv[1])

def save(signo, frame):
    began = time.time()
    time.sleep(seconds)
    folder = pathlib.Path(os.environ["SM_MODEL_DIR"])
    (folder / f"checkpoint-{where}").write_text(f"{signo} {began}")
    print(f"rank {where} saved", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print(f"rank {where} trains", flush=True)
while True:
    time.sleep(0.05)
"""


def checkpoints(ran) -> list[str]:  # type: ignore[no-untyped-def]
    found = (ran.output / "hosts").glob("*/opt/ml/model/checkpoint-*")
    return sorted(path.name for path in found)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_rank_saves_its_checkpoint(local, launcher: str) -> None:  # type: ignore[no-untyped-def]
    ran = local.stop("--hosts", "2", "--backend", "process", "--launcher", launcher, local.program(CHECKPOINT), "2",
                     when="trains", lines=2)  # fmt: skip
    assert ran.code == 143, ran.stderr
    assert ran.job["TrainingJobStatus"] == "Stopped"
    assert checkpoints(ran) == ["checkpoint-0", "checkpoint-1"]
    assert not (ran.output / "hosts/algo-1/opt/ml/output/failure").exists(), "a stop is no failure"
    assert ran.outcome("algo-1")["class"] == "stopped"


def test_a_stop_on_one_host_stops_all(local) -> None:  # type: ignore[no-untyped-def]
    """As a spot interruption or a pod's eviction does: only the second host's entry point hears of it."""
    program = local.program(
        CHECKPOINT.replace(
            'print(f"rank {where} trains", flush=True)',
            "ready = pathlib.Path(sys.argv[2])\n"
            'if where == "0":\n    ready.touch()\n'
            "while not ready.exists():\n    time.sleep(0.05)\n"
            'if where == "1":\n    os.kill(os.getppid(), signal.SIGTERM)',
        )
    )
    ran = local.run("--hosts", "2", "--backend", "process", "--launcher", "ranks", program, "1",
                    local.folder / "ready")  # fmt: skip
    assert [ran.outcome(host)["code"] for host in ("algo-1", "algo-2")] == [143, 143], ran.stderr
    assert ran.outcome("algo-1")["host"] == "algo-2"
    assert checkpoints(ran) == ["checkpoint-0", "checkpoint-1"]


@pytest.mark.timeout(240)
def test_a_long_checkpoint_survives_a_stop_under_torchrun(local) -> None:  # type: ignore[no-untyped-def]
    """torchrun alone would kill the rank after 30 s."""
    ran = local.stop("--hosts", "2", "--backend", "process", "--launcher", "torchrun", local.program(CHECKPOINT), "34",
                     when="trains", lines=2)  # fmt: skip
    assert ran.code == 143, ran.stderr
    assert checkpoints(ran) == ["checkpoint-0", "checkpoint-1"]


def test_the_grace_is_kept(local) -> None:  # type: ignore[no-untyped-def]
    ran = local.stop("--hosts", "2", "--backend", "process", "--launcher", "ranks", "--stop-grace", "2",
                     local.program(CHECKPOINT), "100", when="trains", lines=2)  # fmt: skip
    assert ran.code == 143, ran.stderr
    assert checkpoints(ran) == []
    assert ran.seconds < 80, "from the stop on"
    assert re.search("had not ended by the end of their grace", ran.stdout + ran.stderr)


def test_a_stop_during_the_roll_call(local) -> None:  # type: ignore[no-untyped-def]
    """One host never comes up; the other is told to stop while it waits."""
    local.environ.update(
        SM_HOSTS='["algo-1", "algo-2"]', SM_CURRENT_HOST="algo-1", MUSTER_HOSTS_FILE=str(local.folder / "hosts"),
        MUSTER_ROLLCALL_PORT=str(free_port()), MUSTER_SECRET="s3cret-for-this-test",
    )  # fmt: skip
    (local.folder / "hosts").write_text("127.0.0.11 algo-1\n127.0.0.12 algo-2\n")
    program = local.program("print('never')")
    local.command = lambda *words, output=None: [local.python, "-m", "musterpoint", "launch", *map(str, words)]
    process = local.start(program)
    assert process.stderr is not None
    while "waiting for" not in (line := process.stderr.readline()):
        assert line, "it says whom it waits for"
    process.send_signal(signal.SIGTERM)
    ran = local.finish(process)
    assert ran.code == 143, ran.stderr
    assert "never" not in ran.stdout
