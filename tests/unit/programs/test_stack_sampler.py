"""The program that looks at quiet ranks, on real processes: their stacks, and whether they did anything meanwhile."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from musterpoint.programs import stack_sampler

PROGRAM = """
import subprocess, sys, time

def asleep():
    time.sleep(60)

def busy():
    while True:
        pass

def writes():
    with open("/dev/null", "wb") as file:
        while True:
            file.write(b"x" * 100_000)
            time.sleep(0.01)

def by_a_child():
    subprocess.run([sys.executable, "-c", "while True: pass"])

print("ready", flush=True)
globals()[sys.argv[1]]()
"""
Started = dict[str, "subprocess.Popen[bytes]"]


def py_spy() -> str:
    """The program of the package py-spy, wherever the test environment has it."""
    files = importlib.metadata.distribution("py-spy").files or []
    return str(next(file for file in files if file.name == "py-spy").locate())


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Started]:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    started = {
        name: subprocess.Popen([sys.executable, str(file), name], stdout=subprocess.PIPE, start_new_session=True)
        for name in ("asleep", "busy", "writes", "by_a_child")
    }
    for process in started.values():
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    yield started
    for process in started.values():
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def sample(tmp_path: Path, ranks: Started, reader: str) -> dict[str, Any]:
    result = tmp_path / "result.json"
    words = [f"{number}={process.pid}" for number, process in enumerate(ranks.values())]
    sampler = subprocess.Popen(
        [sys.executable, "-I", "-S", stack_sampler.__file__, "1", reader, str(result), *words], stdin=subprocess.PIPE
    )
    assert sampler.wait(60) == 0
    assert sampler.stdin is not None
    sampler.stdin.close()
    found = json.loads(result.read_text())
    return {name: found[str(number)] for number, name in enumerate(ranks)}


def test_what_each_rank_does(tmp_path: Path, ranks: Started) -> None:
    found = sample(tmp_path, ranks, py_spy())
    assert {name: facts["moving"] for name, facts in found.items()} == {
        "asleep": False, "busy": True, "writes": True, "by_a_child": True,
    }  # fmt: skip
    asleep = found["asleep"]
    assert asleep["state"] == "S"
    assert asleep["source"] == "time.sleep(60)"
    main = next(thread for thread in asleep["threads"] if thread["name"] == "MainThread")
    assert [frame[0] for frame in main["frames"]] == ["asleep", "<module>"]
    assert len(found["by_a_child"]["children"]) == 1


def test_without_a_reader_of_stacks(tmp_path: Path, ranks: Started) -> None:
    found = sample(tmp_path, ranks, "-")
    assert {name: facts["moving"] for name, facts in found.items()} == {
        "asleep": False, "busy": True, "writes": True, "by_a_child": True,
    }  # fmt: skip
    assert found["asleep"]["error"] == "py-spy isn't installed"


@pytest.mark.parametrize(
    ("reader", "error"),
    [("/nowhere/py-spy", "FileNotFoundError from py-spy"), ("/bin/false", "py-spy failed"), ("/bin/true", "JSON")],
)
def test_a_reader_that_fails_is_named(tmp_path: Path, ranks: Started, reader: str, error: str) -> None:
    assert error in sample(tmp_path, {"asleep": ranks["asleep"]}, reader)["asleep"]["error"]


def test_it_ends_with_its_stdin(tmp_path: Path) -> None:
    sampler = subprocess.Popen(
        [sys.executable, "-I", "-S", stack_sampler.__file__, "600", "-", str(tmp_path / "result")],
        stdin=subprocess.PIPE,
    )
    sampler.communicate(timeout=60)
    assert sampler.returncode == 1
