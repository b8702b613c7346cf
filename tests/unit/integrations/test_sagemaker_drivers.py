"""Whose driver a Python was started for, and which launcher of ours stands in for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.integrations.sagemaker_drivers import launcher_of

FOLDER = "/opt/ml/input/data/sm_drivers/distributed_drivers/"
JOB = {"SM_ENTRY_SCRIPT": "train.py"}


@pytest.mark.parametrize(
    ("driver", "more", "launcher"),
    [
        ("mpi_driver.py", {"SM_DISTRIBUTED_CONFIG": '{"process_count_per_node": 2}'}, "mpi"),
        ("torchrun_driver.py", {"SM_DISTRIBUTED_CONFIG": '{"smp": null}'}, "torchrun"),
        ("torchrun_driver.py", {"SM_DISTRIBUTED_CONFIG": '{"smp": {"random_seed": 1}}'}, ""),
        ("torchrun_driver.py", {"SM_DISTRIBUTED_CONFIG": "no JSON"}, ""),
        ("basic_script_driver.py", {}, "script"),
        ("basic_script_driver.py", {"MUSTER_SDK_DRIVERS": "off"}, ""),
        ("basic_script_driver.py", {"SM_ENTRY_SCRIPT": ""}, ""),
        ("my_own_driver.py", {}, ""),
    ],
)
def test_drivers(driver: str, more: dict[str, str], launcher: str) -> None:
    assert launcher_of(["python3", FOLDER + driver], {**JOB, **more}) == launcher


def test_no_program_at_all() -> None:
    assert launcher_of([], JOB) == ""


def test_the_line_of_the_image_is_one_that_python_runs(root: Path) -> None:
    (line,) = (root / "container" / "sagemaker_drivers.pth").read_text().splitlines()
    assert line.startswith("import sys; ") and FOLDER in line
    exec(line, {})  # this Python was started for something else
