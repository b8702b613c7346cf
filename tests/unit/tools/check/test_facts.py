"""What a check finds on recorded machines, and how long the quick part takes on this one."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib.metadata import distributions
from pathlib import Path

import pytest

from musterpoint import __version__
from musterpoint.base import probe
from musterpoint.core.fabric.devices import survey
from musterpoint.core.job.model import Paths
from musterpoint.tools.check.facts import Asked, HostFacts, survey_host, survey_versions
from musterpoint.tools.check.host_rules import host_findings
from musterpoint.tools.check.system import Space, System

from ...core.fabric.trees import NAMES, unpack
from .test_machine import Recorded

GIB = 1 << 30
OF_TREES = {
    "dgx_roce": {("rdma-down", "warn")},
    "nd96isr_h100_v5": {("rdma-down", "warn")},
    "p4d_container": {("rdma-hidden", "warn")},
}
"""Findings beside those of machines with GPUs, whose driver isn't on the machine that runs this."""


def facts_of(root: Path, limits: dict[str, int]) -> HostFacts:
    system = Recorded(root, limits, {"/dev/shm": Space(64 * GIB, 64 * GIB)})
    devices = survey({}, str(root))._replace(cpus=256)
    return survey_host(Asked("algo-1", None, "eth0"), devices, Paths(code="/w"), {}, probe.ask, system)


@pytest.mark.parametrize("name", NAMES)
def test_recorded_machines(name: str, tmp_path: Path) -> None:
    unpack(name, tmp_path)
    facts = facts_of(tmp_path, {})
    found = {(each.code, each.severity) for each in host_findings(facts) if each.severity != "ok"}
    assert found - {("gpus-unchecked", "warn")} == OF_TREES.get(name, set())
    assert (("gpus-unchecked", "warn") in found) == bool(facts.gpus)


@pytest.mark.parametrize("name", ["p4d", "nd40rs_v2", "trn1"])
def test_machines_with_rdma_need_locked_memory(name: str, tmp_path: Path) -> None:
    unpack(name, tmp_path)
    found = host_findings(facts_of(tmp_path, {"MEMLOCK": 65536}))
    assert ("memlock-low", "fail") in [(each.code, each.severity) for each in found]


def test_the_quick_part_is_quick() -> None:
    """Its promise is half a second; processor time doesn't count what else this machine does."""
    environ, system = dict(os.environ), System()
    begun = time.process_time()
    facts = survey_host(Asked("algo-1", None), survey(environ), Paths(code="/tmp"), environ, probe.ask, system)
    host_findings(facts)
    assert time.process_time() - begun < 0.25


OF_P4D = {
    "musterpoint": __version__, "NCCL": "2.16.2", "libfabric": "1.16.1amzn3.0", "aws-ofi-nccl": "1.5.0",
    "the EFA driver": "2.1.0", "GDRCopy": "2.3", "Linux": "5.10.199-190.747.amzn2.x86_64",
}  # fmt: skip


def test_versions_of_a_recorded_host(tmp_path: Path) -> None:
    root = unpack("p4d", tmp_path)
    found = survey_versions(sys.executable, dict(os.environ), probe.ask, root)
    installed = {each.metadata["Name"].lower(): each.version for each in distributions()}
    packages = {"torch", "tensorflow", "jax", "deepspeed", "mpi4py"} & installed.keys()
    asked = {"python": platform.python_version(), **{name: installed[name] for name in packages}}
    assert dict(found) == {**OF_P4D, **asked}
    assert dict(survey_versions("", {}, probe.ask, root)) == OF_P4D, "no Python is asked"


def test_a_python_that_does_not_answer_has_no_versions(tmp_path: Path) -> None:
    for interpreter in ("/no/python", "/bin/echo"):
        assert dict(survey_versions(interpreter, {}, probe.ask, str(tmp_path))) == {"musterpoint": __version__}
