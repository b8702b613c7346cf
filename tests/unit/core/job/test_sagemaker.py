from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.hyperparameters import decode
from musterpoint.core.job.model import Channel, EntryPoint, Job
from musterpoint.core.job.sagemaker_files import entry_point, has_tree, read_tree

WriteTree = Callable[..., str]

SDK_V2 = {
    "epochs": "3",
    "name": '"abc"',
    "sagemaker_submit_directory": '"s3://bkt/JOB/source/sourcedir.tar.gz"',
    "sagemaker_program": '"train.py"',
    "sagemaker_container_log_level": "10",
    "sagemaker_job_name": '"JOB"',
    "sagemaker_region": '"us-west-2"',
}


def read(base: str, **environ: str) -> Job:
    return read_tree(base, environ, Settings())


def test_an_estimator_job(write_tree: WriteTree) -> None:
    channel = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
    base = write_tree(hyperparameters=SDK_V2, inputdataconfig={"train": channel, "pipe": {"TrainingInputMode": "Pipe"}})
    job = read(base, TRAINING_JOB_NAME="JOB-2", TRAINING_JOB_ARN="arn:aws:sagemaker:us-west-2:1:training-job/job-2")
    assert job[:2] == ("sagemaker", "JOB-2")
    assert (job.region, job.log_level, job.grace) == ("us-west-2", 10, 120)
    assert job.hosts == job.group_hosts == ("algo-1", "algo-2")
    assert job.current_host == job.leader == "algo-1"
    assert job.entry_point == EntryPoint("train.py", "s3://bkt/JOB/source/sourcedir.tar.gz")
    assert job.arguments == ("--epochs", "3", "--name", "abc")
    assert job.channels == (
        Channel("train", "File", f"{base}/input/data/train", channel),
        Channel("pipe", "Pipe", f"{base}/input/data/pipe", {"TrainingInputMode": "Pipe"}),
    )
    assert job.paths.failure == f"{base}/output/failure"
    assert job.paths.checkpoints == f"{base}/checkpoints"
    assert job.notes == ()


def test_raw_strings_of_a_tuning_job(write_tree: WriteTree) -> None:
    base = write_tree(hyperparameters={"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://b/k"})
    assert read(base).entry_point == EntryPoint("train.py", "s3://b/k")


def test_an_image_that_names_its_program(write_tree: WriteTree) -> None:
    base = write_tree(hyperparameters=SDK_V2)
    job = read(base, SAGEMAKER_PROGRAM="image.py", SAGEMAKER_SUBMIT_DIRECTORY="/src")
    assert job.entry_point == EntryPoint("image.py", "s3://bkt/JOB/source/sourcedir.tar.gz")
    assert read(write_tree(), SAGEMAKER_SUBMIT_DIRECTORY="/src").entry_point == EntryPoint("", "/src")


@pytest.mark.parametrize(
    ("hyperparameters", "environ", "name", "region"),
    [
        ({}, {}, "training-job", ""),
        ({"sagemaker_job_name": '"J"'}, {}, "J", ""),
        ({"sagemaker_job_name": '"J"'}, {"TRAINING_JOB_NAME": "T"}, "T", ""),
        ({}, {"TRAINING_JOB_ARN": "arn:aws:sagemaker:eu-west-1:1:training-job/a"}, "a", "eu-west-1"),
        ({}, {"AWS_REGION": "r1", "AWS_DEFAULT_REGION": "r2"}, "training-job", "r1"),
        ({"sagemaker_region": "r0"}, {"AWS_REGION": "r1"}, "training-job", "r0"),
    ],
)
def test_name_and_region(
    write_tree: WriteTree, hyperparameters: dict[str, str], environ: dict[str, str], name: str, region: str
) -> None:
    job = read(write_tree(hyperparameters=hyperparameters), **environ)
    assert (job.name, job.region) == (name, region)


def test_other_files_are_kept_and_never_fatal(write_tree: WriteTree) -> None:
    base = write_tree(
        init_config={"inputMode": "FILE"},
        trainingjobconfig={"TrainingJobName": "from-file", "TrainingJobArn": "arn:aws:sagemaker:r9:1:training-job/x"},
        profilerconfig=b"{broken",
        upstreamoutputdataconfig=[],
        checkpointconfig={"LocalPath": "/state/"},
    )
    job = read(base)
    assert job.files["init_config.json"] == {"inputMode": "FILE"}
    assert job.files["upstreamoutputdataconfig.json"] == []
    assert (job.name, job.region, job.paths.checkpoints) == ("from-file", "r9", "/state")
    (note,) = job.notes
    assert "profilerconfig.json isn't valid JSON" in note.text
    assert note.text.endswith("it is ignored")


@pytest.mark.parametrize("checkpoints", [[], {"LocalPath": 3}, "x"])
def test_a_wrong_checkpoint_file_is_a_note(write_tree: WriteTree, checkpoints: Any) -> None:
    job = read(write_tree(checkpointconfig=checkpoints))
    assert job.paths.checkpoints == f"{job.paths.base}/checkpoints"
    assert "checkpointconfig.json" in job.notes[0].text


def test_missing_files_that_other_toolkits_need(write_tree: WriteTree) -> None:
    job = read(write_tree(hyperparameters=None, inputdataconfig=None))
    assert (job.hyperparameters, job.channels) == ((), ())
    assert [note.level for note in job.notes] == ["warning", "warning"]


def test_instance_groups_choose_the_hosts(write_tree: WriteTree) -> None:
    base = write_tree(
        hyperparameters={"sagemaker_torch_distributed_enabled": "true"},
        resourceconfig={
            "current_host": "algo-1",
            "hosts": ["algo-1", "algo-2", "algo-3"],
            "instance_groups": [
                {"instance_group_name": "cpu", "instance_type": "ml.m5.xlarge", "hosts": ["algo-1"]},
                {"instance_group_name": "gpu", "instance_type": "ml.g5.xlarge", "hosts": ["algo-3", "algo-2"]},
            ],
        },
    )
    job = read(base)
    assert (job.distribution.groups, job.group_hosts, job.leader) == (("gpu",), ("algo-2", "algo-3"), "algo-2")
    assert not job.in_group
    assert job.rank_of_host == 0
    assert read_tree(base, {}, Settings(group="cpu")).group_hosts == ("algo-1",)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"resourceconfig": None}, "resourceconfig.json is missing, expected the file that names the job's hosts"),
        ({"resourceconfig": b""}, "resourceconfig.json isn't valid JSON"),
        ({"resourceconfig": b"\xff"}, "resourceconfig.json isn't UTF-8"),
        ({"resourceconfig": []}, "resourceconfig.json is [], expected an object"),
        ({"resourceconfig": {}}, "resourceconfig.json: hosts is null, expected a list of host names"),
        ({"resourceconfig": {"hosts": ["a"], "current_host": "b"}}, 'resourceconfig.json: current_host is "b"'),
        ({"hyperparameters": b"nonsense"}, "hyperparameters.json isn't valid JSON"),
        ({"hyperparameters": "x"}, 'hyperparameters.json is "x", expected an object'),
        ({"hyperparameters": {"sagemaker_container_log_level": "-1"}},
         'hyperparameters.json: sagemaker_container_log_level is -1, expected a whole number, 0 to 65536'),
        ({"hyperparameters": {"sagemaker_mpi_enabled": "maybe"}},
         'hyperparameters.json: sagemaker_mpi_enabled is "maybe", expected true or false'),
        ({"hyperparameters": {"sagemaker_program": "a\0b"}}, "sagemaker_program is"),
        ({"hyperparameters": {"big": "x" * 200_000}}, 'the hyperparameter "big" is 200,000 bytes long'),
        ({"hyperparameters": {"sagemaker_program": "x" * 200_000}}, "sagemaker_program is 200,000 bytes long"),
        ({"resourceconfig": {"hosts": ["a" * 300], "current_host": "a"}}, "expected a host name such as algo-1"),
        ({"inputdataconfig": []}, "inputdataconfig.json is [], expected an object"),
        ({"inputdataconfig": {"train": 1}}, "inputdataconfig.json: train is 1, expected an object"),
        ({"inputdataconfig": {"../x": {}}}, 'inputdataconfig.json: a channel name is "../x", expected letters'),
        ({"inputdataconfig": {"x" * 256: {}}}, "a channel name is"),
        ({"inputdataconfig": {"train": {"TrainingInputMode": 1}}}, "train.TrainingInputMode is 1, expected a string"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(write_tree: WriteTree, files: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as error:
        read(write_tree(**files))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("named", ["input/config can't be read", "hyperparameters.json can't be read"])
def test_what_cannot_be_read_is_named(write_tree: WriteTree, tmp_path: Path, named: str) -> None:
    assert not has_tree(str(tmp_path))
    if "json" in named:
        (Path(write_tree(hyperparameters=None)) / "input" / "config" / "hyperparameters.json").mkdir()
    with pytest.raises(UsageError, match=named):
        read(str(tmp_path))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["algo-1", "algo-2"])
ANY_JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6)


def objects(*keys: str) -> st.SearchStrategy[Any]:
    """Objects with known keys and any values; sometimes anything else."""
    return ANY_JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(keys, ANY_JSON))


HOST_LISTS = st.lists(st.sampled_from(["algo-1", "algo-2", "algo-10"])) | ANY_JSON
GROUPS = st.lists(
    st.fixed_dictionaries(
        {"instance_group_name": st.sampled_from(["a", "b"]) | ANY_JSON, "hosts": HOST_LISTS},
        optional={"instance_type": st.sampled_from(["ml.p4d.24xlarge", "ml.m5.large"]) | ANY_JSON},
    )
)
RESOURCES = st.fixed_dictionaries(
    {"hosts": HOST_LISTS, "current_host": st.just("algo-1") | SCALARS},
    optional={
        "instance_groups": GROUPS | ANY_JSON,
        **dict.fromkeys((f"current_{name}" for name in ("group_name", "instance_group", "instance_type")), ANY_JSON),
        **dict.fromkeys(("network_interface_name", "topology"), ANY_JSON),
    },
)
SWITCHES = st.sampled_from(["true", "false", '"x"', "1", "null"]) | ANY_JSON
SWITCHED = [f"sagemaker_{name}_enabled" for name in ("torch_distributed", "mpi", "distributed_dataparallel")] + [
    "sagemaker_parameter_server_enabled", "sagemaker_mpi_num_of_processes_per_host",
]  # fmt: skip
OTHERS = [
    "sagemaker_mpi_custom_mpi_options", "sagemaker_distribution_instance_groups", "sagemaker_container_log_level",
    "sagemaker_program", "sagemaker_job_name", "mp_parameters", "lr",
]  # fmt: skip
HYPERPARAMETERS = st.fixed_dictionaries(
    {}, optional={**dict.fromkeys(SWITCHED, SWITCHES), **dict.fromkeys(OTHERS, ANY_JSON)}
)


@limits(max_examples=3 * limits.default.max_examples)
@given(
    resources=RESOURCES | objects("hosts", "current_host"),
    hyperparameters=HYPERPARAMETERS | ANY_JSON,
    inputs=st.dictionaries(st.text(), objects("TrainingInputMode")) | ANY_JSON,
    checkpoints=objects("LocalPath"),
    training_job=objects("TrainingJobName", "TrainingJobArn"),
)
def test_whatever_the_files_hold_only_usage_errors_come_out(
    resources: Any, hyperparameters: Any, inputs: Any, checkpoints: Any, training_job: Any
) -> None:
    files = {
        "resourceconfig": resources, "hyperparameters": hyperparameters, "inputdataconfig": inputs,
        "checkpointconfig": checkpoints, "trainingjobconfig": training_job,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "input" / "config"
        folder.mkdir(parents=True)
        for stem, content in files.items():
            (folder / f"{stem}.json").write_text(json.dumps(content))
        try:
            job = read(base)
        except UsageError as error:
            assert str(error)
            return
    assert job.current_host in job.hosts
    assert job.leader in job.hosts


@limits(max_examples=2 * limits.default.max_examples)
@given(data=st.binary(), stem=st.sampled_from(["resourceconfig", "hyperparameters", "inputdataconfig", "other"]))
def test_whatever_bytes_a_file_holds(data: bytes, stem: str) -> None:
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "input" / "config"
        folder.mkdir(parents=True)
        (folder / "resourceconfig.json").write_text('{"hosts": ["a"], "current_host": "a"}')
        (folder / f"{stem}.json").write_bytes(data)
        try:
            read(base)
        except UsageError as error:
            assert f"{stem}.json" in str(error)


@pytest.mark.parametrize("program", ["-m pkg.mod", "python -m pkg.mod", "python3  -m pkg.mod "])
def test_a_program_that_is_a_module(program: str) -> None:
    hyperparameters = decode({"sagemaker_program": json.dumps(program)}, "hyperparameters.json")
    assert entry_point(hyperparameters, {}) == EntryPoint("pkg.mod", module=True)
    assert entry_point((), {"SAGEMAKER_PROGRAM": program}) == EntryPoint("pkg.mod", module=True)
    assert not entry_point((), {"SAGEMAKER_PROGRAM": "pkg/-m.py"}).module
