"""Packages that an install made older than musterpoint's extras need them."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from musterpoint.code.installer_output import NEEDS, sentences


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ["Successfully installed boto3-1.20.5 rich-13.9 docker_py-1.5 a-b-2.0"],
            ["warning: boto3 1.20.5 was installed; code from S3 and packages from CodeArtifact needs 1.34 or newer"],
        ),
        (
            ["  Attempting uninstall: nvidia-ml-py", "    Found existing installation: nvidia-ml-py 13.580.82",
             "Successfully installed nvidia_ml_py-11.5"],
            ["warning: nvidia_ml_py 11.5 was installed in place of 13.580.82; watching the GPUs needs 12 or newer"],
        ),
        (
            ["    Found existing installation: boto3 1.40.1", "Successfully installed boto3-1.34.0 torch-2.13.0+cpu"],
            ["boto3 1.34.0 was installed in place of 1.40.1, which is older; it is new enough for code from S3 and "
             "packages from CodeArtifact (1.34)"],
        ),
        ([" - rich==14.0", " + rich==9.0"],
         ["warning: rich 9.0 was installed in place of 14.0; the tables and pictures of muster needs 13 or newer"]),
        (["    Found existing installation: rich 13.1", "Successfully installed rich-14.0"], []),
        ([" - rich==9.0"], []),
        (["Requirement already satisfied: rich==9.0", "Successfully installed", "", "- a == b"], []),
    ],
)  # fmt: skip
def test_what_is_told(lines: list[str], told: list[str]) -> None:
    assert sentences(lines) == told


def test_the_oldest_versions_are_those_of_the_extras(root: Path) -> None:
    extras = configparser.ConfigParser()
    extras.read(root / "setup.cfg")
    listed = {}
    for name, text in extras["options.extras_require"].items():
        if name not in ("all", "dev", "sagemaker-training"):  # whichever calls us will do
            listed.update(line.strip().split(">=") for line in text.splitlines() if ">=" in line)
    assert listed == {name: need.version for name, need in NEEDS.items()}
