"""Versions: of the Python that is asked, and of libraries by their files' names."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import distributions
from pathlib import Path

from musterpoint import __version__, probe
from musterpoint.check.versions import library_version, survey_versions

from .test_machine import tree


def test_versions_of_a_host(tmp_path: Path) -> None:
    files = {
        "opt/amazon/efa/lib/libfabric.so.1.9.0": "", "opt/amazon/efa/lib/libfabric.so.1.24.0": "",
        "opt/amazon/efa/lib/libfabric.so.1": "", "usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5": "",
        "opt/amazon/efa_installed_packages": "# EFA installer version: 1.38.0\n# Debug packages: no\n",
        "sys/module/nvidia/version": "550.54.15\n", "sys/module/mlx5_core/version": "24.04-0.6.6\n",
        "proc/sys/kernel/osrelease": "6.1.0\n",
    }  # fmt: skip
    found = dict(survey_versions(sys.executable, dict(os.environ), probe.ask, str(tree(tmp_path, files))))
    assert found.pop("nccl") == "2.21.5"
    assert found["python"] == platform.python_version()
    installed = {each.metadata["Name"].lower(): each.version for each in distributions()}
    assert found.get("torch") == installed.get("torch")
    assert {name: found[name] for name in ("musterpoint", "libfabric", "efa", "nvidia-driver", "ofed", "kernel")} == {
        "musterpoint": __version__, "libfabric": "1.24.0", "efa": "1.38.0", "nvidia-driver": "550.54.15",
        "ofed": "24.04-0.6.6", "kernel": "6.1.0",
    }  # fmt: skip


def test_a_python_that_does_not_answer_has_no_versions(tmp_path: Path) -> None:
    assert dict(survey_versions("/no/python", {}, probe.ask, str(tmp_path))) == {"musterpoint": __version__}
    assert dict(survey_versions("/bin/echo", {}, probe.ask, str(tmp_path))) == {"musterpoint": __version__}


def test_a_library_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert library_version("libnccl.so", str(tmp_path)) == ""
