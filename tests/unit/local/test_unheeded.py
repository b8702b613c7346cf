"""Options of ``muster local`` that have no effect are named; every option is known to have one, or not."""

from __future__ import annotations

import pytest

from musterpoint.base.settings import OPTIONS
from musterpoint.cli.local_options import parser
from musterpoint.local.job import LocalJob
from musterpoint.local.unheeded import ALWAYS, CONDITIONS, Given, without_effect

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


def test_every_option_is_in_the_table() -> None:
    ofjob = {flag for option in OPTIONS for flag in (option.flag, *option.aliases)}
    own = set(parser().flags) - {"-h", "--help"}
    assert own - ofjob == (ALWAYS | set(CONDITIONS)) - ofjob
    assert not ALWAYS & set(CONDITIONS)
