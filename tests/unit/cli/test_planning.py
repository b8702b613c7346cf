"""The job as its other hosts see it."""

from __future__ import annotations

import sys
from pathlib import Path

from musterpoint.cli.plan_local import moved
from musterpoint.cli.planning import plan_views, seen_from, views_of
from musterpoint.fabric.setting import EnvSetting
from musterpoint.job.model import EntryPoint, InstanceGroup, Job
from musterpoint.job.read import read_job
from musterpoint.launch.plan import Argument
from musterpoint.settings import Settings

GROUPS = (InstanceGroup("gpu", "ml.p4d.24xlarge", ("algo-1",)), InstanceGroup("data", "ml.c5.xlarge", ("algo-2",)))


def test_another_host_has_its_own_name_group_and_type() -> None:
    files = {"resourceconfig.json": {"current_host": "algo-1", "current_group_name": "gpu", "extra": 1}}
    job = Job(
        "sagemaker", "j", ("algo-1", "algo-2"), "algo-1", ("algo-1",), EntryPoint("t.py"), groups=GROUPS,
        current_group="gpu", instance_type="ml.p4d.24xlarge", files=files,
    )  # fmt: skip
    other = seen_from(job, "algo-2")
    assert (other.current_host, other.current_group, other.instance_type) == ("algo-2", "data", "ml.c5.xlarge")
    assert other.files["resourceconfig.json"] == {
        "current_host": "algo-2",
        "current_group_name": "data",
        "current_instance_type": "ml.c5.xlarge",
        "extra": 1,
    }
    assert not other.in_group
    assert job.files["resourceconfig.json"]["current_host"] == "algo-1"
    assert seen_from(job, "algo-1") is job


def test_a_path_is_moved_at_any_depth() -> None:
    value = (Argument("/tmp/x/train.py"), (EnvSetting("A", "b:/tmp/x", "r"),), 3, None)
    assert moved(value, "/tmp/x", "/out") == (Argument("/out/train.py"), (EnvSetting("A", "b:/out", "r"),), 3, None)


def test_a_plan_names_the_python_of_the_conda_environment(tmp_path: Path) -> None:
    python = tmp_path / "envs/training/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "train.py").write_text("")
    environ = {
        "SAGEMAKER_JOB_CONDA_ENV": "training",
        "CONDA_ENVS_DIRS": str(tmp_path / "envs"),
        "PATH": "/usr/bin:/bin",
    }
    options = Settings(launcher="script")
    job = read_job(environ, options, str(tmp_path / "none"), str(tmp_path / "train.py"))
    planned = plan_views(views_of(job, options, environ), typed=True)
    assert planned.plans[0].processes[0].words[0] == str(python)
