from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job import platforms
from musterpoint.core.job.directories import NAMES, forget_others, lock, made, with_directories
from musterpoint.core.job.exports import sagemaker_exports
from musterpoint.core.job.model import Counted, EntryPoint, Hyperparameter, Job, Paths
from musterpoint.core.job.opt_ml import BASE, VARIABLES, paths_of
from musterpoint.core.job.platform import Platform
from musterpoint.core.job.toolkit_env import counted, has_variables, read_variables

HOSTS = {"SM_HOSTS": '["algo-2", "algo-1"]', "SM_CURRENT_HOST": "algo-2"}
TRAINING = {
    **HOSTS,
    "SM_CURRENT_INSTANCE_TYPE": "ml.g5.xlarge",
    "SM_CURRENT_INSTANCE_GROUP": "homogeneousCluster",
    "SM_NETWORK_INTERFACE_NAME": "eth0",
    "SM_RESOURCE_CONFIG": json.dumps({
        "hosts": ["algo-1", "algo-2"],
        "instance_groups": [
            {"instance_group_name": "homogeneousCluster", "instance_type": "g", "hosts": ["algo-1", "algo-2"]}
        ],
    }),
    "SM_HPS": '{"lr": 0.1, "version": "1.10"}',
    "SM_FRAMEWORK_PARAMS": '{"sagemaker_torch_distributed_enabled": true}',
    "SM_USER_ARGS": '["--lr", "0.1"]',
    "SM_USER_ENTRY_POINT": "launcher.py",
    "SM_MODULE_DIR": "s3://b/k",
    "SM_CHANNELS": '["train", "a-b"]',
    "SM_CHANNEL_TRAIN": "/data/train",
    "SM_MODEL_DIR": "/m",
    "SAGEMAKER_JOB_NAME": "JOB",
    "SAGEMAKER_REGION": "us-west-2",
}  # fmt: skip


def test_what_sagemaker_training_exports() -> None:
    job = read_variables(TRAINING, Settings(), "/base")
    assert (job.platform, job.name, job.region) == ("sagemaker", "JOB", "us-west-2")
    assert (job.hosts, job.current_host, job.current_group) == (("algo-1", "algo-2"), "algo-2", "homogeneousCluster")
    assert (job.instance_type, job.network_interface) == ("ml.g5.xlarge", "eth0")
    assert [group.hosts for group in job.groups] == [("algo-1", "algo-2")]
    assert {entry.name: entry.value for entry in job.hyperparameters} == {
        "lr": 0.1, "version": "1.10", "sagemaker_torch_distributed_enabled": True,
    }  # fmt: skip
    assert job.distribution.kind == "torch_distributed"
    assert (job.entry_point, job.arguments) == (EntryPoint("launcher.py", "s3://b/k"), ("--lr", "0.1"))
    assert {channel.name: channel.path for channel in job.channels} == {
        "train": "/data/train", "a-b": "/base/input/data/a-b",
    }  # fmt: skip
    assert (job.paths.model, job.paths.failure, job.grace) == ("/m", "/base/output/failure", 120)


def test_what_the_sdk_v3_scripts_export() -> None:
    """They filter nothing out of ``SM_HPS`` and have neither arguments nor groups."""
    environ = {
        **HOSTS,
        "SM_HPS": '{"epochs": 3, "sagemaker_program": "t.py"}',
        "SM_INPUT_DATA_CONFIG": '{"code": {"TrainingInputMode": "File"}}',
        "TRAINING_JOB_NAME": "JOB-3",
    }
    job = read_variables(environ, Settings(), "/opt/ml")
    assert (job.name, job.arguments, job.entry_point.program) == ("JOB-3", ("--epochs", "3"), "t.py")
    assert job.channels[0].path == "/opt/ml/input/data/code"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SM_NUM_GPUS": "4"}, Counted(4, "SM_NUM_GPUS")),
        ({"SM_NUM_GPUS": "4", "SM_NUM_NEURONS": "2", "SM_NUM_CPUS": "96"}, Counted(4, "SM_NUM_GPUS")),
        ({"SM_NUM_GPUS": "0", "SM_NUM_NEURONS": "32"}, Counted(32, "SM_NUM_NEURONS")),
        ({"SM_NUM_GPUS": "0", "SM_NUM_NEURONS": "0", "SM_NUM_CPUS": "96"}, Counted(0, "SM_NUM_GPUS")),
        ({"SM_NUM_GPUS": "", "SM_NUM_CPUS": "96"}, Counted()),
    ],
)
def test_accelerators_that_somebody_counted(variables: dict[str, str], expected: Counted) -> None:
    """In the order of sagemaker-training's ``runner.py``; processors are no slots there either."""
    assert counted(variables) == expected
    assert read_variables({**HOSTS, **variables}, Settings()).counted == expected


def test_two_variables_are_enough() -> None:
    assert has_variables(HOSTS)
    assert not has_variables({"SM_HOSTS": "[]"})
    assert read_variables(HOSTS, Settings()).paths.base == "/opt/ml"
    assert read_variables(HOSTS, Settings(), "/no/file/is/read").paths.base == "/no/file/is/read"


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"SM_HOSTS": "algo-1"}, "the variable SM_HOSTS isn't valid JSON"),
        ({"SM_HOSTS": "[]"}, "the variable SM_HOSTS is [], expected at least one host name"),
        ({"SM_CURRENT_HOST": "x"}, 'the variable SM_CURRENT_HOST is "x", expected one of the hosts'),
        ({"SM_HPS": "[]"}, "the variable SM_HPS is [], expected an object"),
        ({"SM_RESOURCE_CONFIG": '{"instance_groups": 1}'}, "the variable SM_RESOURCE_CONFIG: instance_groups is 1"),
        ({"SM_USER_ARGS": "--x"}, "the variable SM_USER_ARGS isn't valid JSON"),
        ({"SM_NUM_GPUS": "four"}, 'the variable SM_NUM_GPUS is "four", expected a whole number, 0 to 65536'),
        ({"SM_NUM_NEURONS": "-1"}, 'the variable SM_NUM_NEURONS is "-1", expected a whole number, 0 to 65536'),
        ({"SM_FRAMEWORK_PARAMS": '{"sagemaker_mpi_enabled": 3}'}, "sagemaker_mpi_enabled is 3, expected true or false"),
    ],
)
def test_wrong_variables(variables: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        read_variables({**HOSTS, **variables}, Settings())


PLATFORMS: list[tuple[str, str]] = [
    ("plain", "work/muster-jobs/my-job"), ("slurm", "work/muster-jobs/my-job"), ("azureml", "work/outputs"),
    ("kubernetes", "opt/ml"), ("kubeflow", "opt/ml"), ("vertex", "opt/ml"),
]  # fmt: skip


def job(platform: str, name: str = "my job", paths: Paths = Paths()) -> Job:  # noqa: B008
    return Job(platform, name, ("a",), "a", ("a",), EntryPoint("t.py"), paths=paths)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    load, base = platforms.load, str(tmp_path / "opt" / "ml")

    def moved(name: str) -> Platform:
        """The platform with its directories below the test's own."""
        platform = load(name)
        return platform._replace(folder=base) if platform.folder == BASE else platform

    monkeypatch.setattr(platforms, "load", moved)
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.mark.parametrize(("platform", "place"), PLATFORMS)
def test_every_platform_has_them(platform: str, place: str, work: Path) -> None:
    planned = job(platform)
    planned = planned._replace(paths=with_directories(planned, {}, str(work)))
    assert os.listdir(work) == [], "muster plan makes nothing"
    ready, said, *_ = made(planned)
    folders = [getattr(ready.paths, field) for field in NAMES]
    assert folders == [str(work.parent / place / name) for name in NAMES.values()]
    assert all(map(os.path.isdir, folders))
    assert ("muster-jobs" in said) == ("muster-jobs" in place), "a directory in the user's own is made known"
    assert made(planned) == (ready, "", (), ""), "once"


def test_machines_of_ones_own_keep_reports_apart_by_host(work: Path) -> None:
    paths = with_directories(job("plain"), {}, str(work))
    assert paths.failure == str(work / "muster-jobs/my-job/hosts/a/failure")
    assert paths.success == str(work / "muster-jobs/my-job/hosts/a/success")
    given = job("slurm", paths=Paths(failure="/mnt/output/failure", success="/mnt/output/success"))
    assert with_directories(given, {}, str(work)).failure == "/mnt/output/failure"
    assert with_directories(job("azureml"), {}, str(work)).failure == ""


def test_what_the_platform_gives_stays(work: Path) -> None:
    given = job("azureml", paths=Paths(model="/mnt/model"))
    assert with_directories(given, {}, str(work)).model == "/mnt/model"
    sagemaker = job("sagemaker")
    assert with_directories(sagemaker, {}, str(work)) == sagemaker.paths
    assert made(sagemaker) == (sagemaker, "", (), "")


def test_where_none_can_be_made_there_is_no_variable(work: Path) -> None:
    (work / "muster-jobs").write_text("a file")
    planned = job("plain")
    ready = made(planned._replace(paths=with_directories(planned, {}, str(work))))
    assert ready.job.paths == Paths()
    assert ready.unset == ("SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR", "SM_CHECKPOINT_DIR")
    assert ready.why == f"not set: {', '.join(ready.unset)} ({work}/muster-jobs/my-job: Not a directory)"


def test_sagemaker_s_are_made_where_a_person_has_started_the_container(work: Path) -> None:
    """Not the one with the configuration: another job here would be read as SageMaker's."""
    base = work / "opt/ml"
    first = made(job("sagemaker", paths=paths_of(str(base))))
    assert (first.said, first.why) == ("", "")
    named = dict(sagemaker_exports(first.job, {}))
    assert {name for name in VARIABLES.values() if os.path.isdir(named.get(name, ""))} == {*VARIABLES.values()} - {
        "SM_INPUT_CONFIG_DIR"
    }
    assert "SM_INPUT_CONFIG_DIR" not in named
    assert platforms.here({}, str(base)).name == "plain"
    (base / "input/config").mkdir()
    second = made(job("sagemaker", paths=paths_of(str(base))))
    assert dict(sagemaker_exports(second.job, {}))["SM_INPUT_CONFIG_DIR"] == str(base / "input/config")


def test_a_platform_s_sync_isn_t_pretended(work: Path) -> None:
    outputs = (Hyperparameter("sagemaker_s3_output", "s3://bucket/here", '"s3://bucket/here"'),)
    made(job("sagemaker", paths=paths_of(str(work)))._replace(hyperparameters=outputs))
    assert sorted(os.listdir(work / "output")) == ["data"]


def test_what_can_t_be_made_of_sagemaker_s_is_no_variable(work: Path) -> None:
    (work / "output").write_text("a file")
    (work / "input/config").mkdir(parents=True)
    ready = made(job("sagemaker", paths=paths_of(str(work))))
    gone = ("SM_OUTPUT_DIR", "SM_OUTPUT_DATA_DIR", "SM_OUTPUT_INTERMEDIATE_DIR")
    assert ready.unset == gone
    assert ready.why == (
        f"not set: SM_OUTPUT_DIR ({work}/output is no directory), SM_OUTPUT_DATA_DIR ({work}/output/data: Not a "
        f"directory), SM_OUTPUT_INTERMEDIATE_DIR ({work}/output/intermediate: Not a directory)"
    )
    assert {*VARIABLES.values()} - {name for name, _ in sagemaker_exports(ready.job, {})} == {*gone}


def test_hosts_that_are_there_and_places_that_aren_t(work: Path) -> None:
    """A directory whose host has just locked it stays, though nothing is in it yet."""
    planned = job("plain")
    ready = made(planned._replace(paths=with_directories(planned, {}, str(work))))
    forget_others(ready.job)  # none could be made
    hosts = work / "muster-jobs/my-job/hosts"
    (hosts / "empty").mkdir(parents=True)
    locks = lock({str(hosts / "another"): fcntl.LOCK_EX})
    forget_others(ready.job)
    assert os.listdir(hosts) == ["another"]
    os.close(locks[0])


def test_links_and_uris(work: Path) -> None:
    """A link to nothing is none; a URI is the program's own."""
    (work / "model").symlink_to("/nowhere/at/all")
    ready = made(job("sagemaker", paths=paths_of(str(work))))
    assert ready.why == f"not set: SM_MODEL_DIR ({work}/model is a link to nothing)"
    seen = with_directories(job("plain"), {"SM_MODEL_DIR": "s3://bucket/model"}, str(work))
    assert "s3:" not in seen.model


@pytest.mark.parametrize("at", ["muster-jobs/mine", "muster-jobs/mine/hosts/a", "elsewhere"])
def test_only_reports_of_earlier_hosts_are_removed(at: str, work: Path) -> None:
    """Not what lies beside a platform's own output, wherever that is."""
    base = work / at
    for name in ("checkpoints/outcome.json", "model/failure", "old/timeline.json", "hosts/b/failure"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("the user's")
    ready = made(job("sagemaker", paths=paths_of(str(base))))
    forget_others(ready.job)
    assert (base / "checkpoints/outcome.json").exists() and (base / "model").is_dir()
    assert (base / "hosts/b/failure").exists()
    planned = job("plain")
    ready = made(planned._replace(paths=with_directories(planned, {}, str(work))))
    hosts = work / "muster-jobs/my-job/hosts"
    for name in ("a/failure", "b/failure", "c/failure", "c/users.txt"):
        (hosts / name).parent.mkdir(parents=True, exist_ok=True)
        (hosts / name).write_text("an earlier start's")
    forget_others(ready.job)
    assert sorted(str(path.relative_to(hosts)) for path in hosts.rglob("*")) == ["a", "a/failure", "c", "c/users.txt"]


@pytest.mark.parametrize("name", ["../../etc", "..", ".", "a/b"])
def test_no_name_of_a_job_leads_elsewhere(name: str, work: Path) -> None:
    paths = with_directories(job("plain", name), {}, str(work))
    assert Path(os.path.normpath(paths.model)).parent.parent == work / "muster-jobs"
