"""Ranks that write their stacks when a signal comes: several tasks and a sitecustomize of the user's side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.cli.bundle import archive
from musterpoint.core.launch.inputs import STARTUP, TASKS
from musterpoint.embedded.programs import stack_sampler

PROGRAM = """
import threading, time

def waits():
    print("ready", flush=True)
    time.sleep(60)

threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
waits()
"""


@pytest.mark.parametrize("packed", [False, True])
def test_the_stacks_of_a_rank(tmp_path: Path, environ: dict[str, str], packed: bool) -> None:
    folder = STARTUP
    if packed:
        (tmp_path / "launcher.zip").write_bytes(archive(str(Path(STARTUP).parents[3])))
        folder = f"{tmp_path}/launcher.zip/musterpoint/embedded/startup/path"
    (tmp_path / "sitecustomize.py").write_text("print('theirs', flush=True)")
    environ |= {"PYTHONPATH": os.pathsep.join([folder, str(tmp_path)]), TASKS: "jax_cluster,stack_dumps"}
    rank = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environ, stdout=subprocess.PIPE)
    assert rank.stdout is not None
    assert [rank.stdout.readline() for _ in range(2)] == [b"theirs\n", b"ready\n"]
    for _ in range(2):
        threads = stack_sampler.by_signal(rank.pid) or []
        main = next(thread for thread in threads if thread["name"] == "MainThread")
        assert [frame[0] for frame in main["frames"]] == ["waits", "<module>"]
        assert len(threads) == 2
    rank.kill()
    rank.communicate()


def test_a_process_without_a_handler_is_not_signalled() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert stack_sampler.by_signal(process.pid) is None
        process.communicate(b"\n")
    assert process.returncode == 0


def test_both_sides_mean_the_same(root: Path) -> None:
    text = (root / "src/musterpoint/embedded/startup/stack_dumps.py").read_text()
    assert f"SIGNAL = {stack_sampler.SIGNAL}\n" in text
    assert f'FILE = "{stack_sampler.STACKS_FILE}"\n' in text
