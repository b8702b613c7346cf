"""Versions: of the Python that is asked, and of libraries and drivers by their files."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import distributions
from pathlib import Path

from musterpoint import __version__
from musterpoint.base import probe
from musterpoint.tools.check.facts import survey_versions

from ...core.fabric.trees import unpack

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
