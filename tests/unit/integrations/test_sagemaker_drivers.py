"""Whose driver a Python was started for, and which launcher of ours stands in for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.integrations.sagemaker_drivers import launcher_of, quote_file, quoted

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
    assert launcher_of(["python3", FOLDER + driver], {**JOB, **more}, lambda: True) == launcher


def test_model_parallelism_is_ours_where_aws_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("raise ImportError('imported before the job has started')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    asked = {**JOB, "SM_DISTRIBUTED_CONFIG": '{"smp": {"hybrid_shard_degree": 2}, "process_count_per_node": 2}'}
    assert launcher_of(["python3", FOLDER + "torchrun_driver.py"], asked) == "torchrun"
    (torch / "sagemaker").mkdir()
    assert launcher_of(["python3", FOLDER + "torchrun_driver.py"], asked) == ""


def test_no_program_at_all() -> None:
    assert launcher_of([], JOB) == ""


def test_the_line_of_the_image_is_one_that_python_runs(root: Path) -> None:
    (line,) = (root / "container" / "sagemaker_drivers.pth").read_text().splitlines()
    place = line.partition('startswith("')[2].partition('"')[0]
    assert line.startswith("import sys; ") and place and FOLDER.startswith(place)
    exec(line, {})  # this Python was started for something else


def test_what_the_sdk_writes_for_a_shell(tmp_path: Path) -> None:
    """Its script's own form (``export NAME='VALUE'``, nothing quoted), sourced by the shell that its job runs in."""
    values = {
        "SM_HP_TEXT": "it's 'two' lines\nexport A='b'; $(false) `false` \\", "SM_HPS": '{"text": "it\'s"}',
        "SM_CHANNEL_VAL.X-1": "/val.x-1", "SM_CHANNEL_A-B": "/a-b", "SM_CHANNEL_A_B": "/a_b",
        "SM_HP_A B": "c", "SM_HP_É": "é", "SM_HP_EMPTY": "",
        "SM_HP_LAST": "ends in 'quotes'",
    }  # fmt: skip
    path = tmp_path / "sm_training.env"
    path.write_text("".join(f"export {name}='{value}'\n" for name, value in values.items()), encoding="utf-8")
    quote_file(str(path))
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    done = subprocess.run(
        ["/bin/bash", "-ec", f"source {path}; {sys.executable} -c '{show}'"],
        env={"PYTHONUTF8": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    seen = json.loads(done.stdout)
    assert seen["SM_CHANNEL_A_B"] == values.pop("SM_CHANNEL_A_B") != values.pop("SM_CHANNEL_A-B")
    assert {name: seen.get(name.translate({32: 95, 45: 95, 46: 95, 201: 95})) for name in values} == values
    quote_file(str(tmp_path / "none"))
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "text",
    ["export A=5\nexport B='a b'\n", "export A='it'\\''s'\n", "export A='it'\"'\"'s'\n", "export A='a'\r\n", "A='b'\n"],
    ids=["not quoted", "escaped", "escaped as shlex does", "of another system", "no export"],
)
def test_what_another_sdk_wrote_stays(text: str) -> None:
    assert quoted(text) == text
