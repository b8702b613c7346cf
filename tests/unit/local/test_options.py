"""The options of local jobs: their types, and those that have no effect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.base.settings import removed_options
from musterpoint.cli.local_command_line import flags_taken, parser
from musterpoint.local.job_request import LocalJob
from musterpoint.local.options import Options
from musterpoint.local.unheeded import CONDITIONS, Given, without_effect

NAMED = {"--hosts", "--slots", "--launcher"}
"""Arguments of the function itself."""


GONE = {flag for _field, flag, _reader in removed_options()}


def test_every_option_has_a_type() -> None:
    flags = set(flags_taken()) - NAMED - {"--json", "--demo"} - GONE
    assert set(Options.__annotations__) == {flag.removeprefix("--").replace("-", "_") for flag in flags}
    switches = {name for name, kind in Options.__annotations__.items() if kind is bool}
    unvalued = {name[2:].replace("-", "_") for name, valued in flags_taken().items() if not valued}
    assert switches == unvalued - {"json", "demo"}


PROGRAM = """
from musterpoint import local
local.run("train.py", "--epochs", 3, hosts=2, slots=2, launcher="ranks", channel={"train": "data"}, cpu_fallback=True)
local.run("train.py", nosuch=1)
local.run("train.py", backend="vm")
"""


def test_a_type_checker_refuses_what_there_is_not(tmp_path: Path) -> None:
    pytest.importorskip("mypy")  # not among what other interpreters have
    (tmp_path / "typed.py").write_text(PROGRAM)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", "cache", "typed.py"]
    done = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[1] for line in errors] == ["4", "5"], done.stdout
    assert 'Unexpected keyword argument "nosuch"' in errors[0]
    assert "Literal['vm']" in errors[1]


JOB = LocalJob("j", ("algo-1", "algo-2"), "train.py", "/code")
SLURM = JOB._replace(platform="slurm", hosts=("node1", "node2"))
UNEVEN = JOB._replace(host_slots=(1, 3))
CASES = [
    (Given(JOB, "netns"), ""),
    (Given(JOB, "netns", naming="sdk"), ""),
    (Given(SLURM, "netns", naming="sdk"), "--host-names has no effect: hosts of --platform slurm are called as there"),
    (Given(JOB, "process", one_address=True), ""),
    (Given(JOB, "netns", one_address=True), "--one-address has no effect: every host of --backend netns has"),
    (Given(JOB, "netns", internet=True), ""),
    (Given(JOB, "process", internet=True), "--internet has no effect: hosts of --backend process can reach what this"),
    (Given(UNEVEN, "netns"), ""),
    (Given(UNEVEN._replace(options={"MUSTER_LAUNCHER": "script"}), "netns"),
     "--host-slots has no effect: --launcher script starts the program once per host"),
    (Given(UNEVEN._replace(options={"MUSTER_SLOTS": "2"}), "netns"),
     "--slots has no effect: --host-slots says how many each host has"),
    (Given(JOB._replace(options={"MUSTER_INSTALLER": "pip"}), "netns", requirements="r.txt"), ""),
    (Given(JOB._replace(options={"MUSTER_INSTALLER": "none"}), "netns", requirements="r.txt"),
     "--requirements has no effect: --installer none installs nothing"),
    (Given(JOB._replace(sharded=("train",)), "netns"), ""),
    (Given(JOB._replace(sharded=("train",), hosts=("algo-1",)), "netns"),
     "--sharded has no effect: one host gets every file of a channel"),
    (Given(JOB._replace(debug=9), "netns"), ""),  # the hosts' devices will say how many ranks there are
    (Given(JOB._replace(debug=3, options={"MUSTER_SLOTS": "2"}), "netns"), ""),
    (Given(JOB._replace(debug=4, options={"MUSTER_SLOTS": "2"}), "netns"),
     "--debug has no effect: the job has 4 ranks, counted from 0"),
    (Given(UNEVEN._replace(debug=4), "netns"), "--debug has no effect: the job has 4 ranks"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "words"), CASES)
def test_what_has_no_effect(given: Given, words: str) -> None:
    said = without_effect(given)
    assert len(said) == bool(words)
    assert all(text.startswith(f"warning: {words}") for text in said)


def test_every_condition_is_an_option_s() -> None:
    assert set(CONDITIONS) <= set(parser().flags)
