from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any, Callable

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job import fields
from musterpoint.core.job.model import Counted, EntryPoint
from musterpoint.core.job.platforms.plain import alone
from musterpoint.core.job.read import masker_of, masker_of_files, read_job

HOSTS = {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2"}


def test_the_tree_of_the_base_directory(write_tree: Callable[..., str]) -> None:
    base = write_tree(hyperparameters={"sagemaker_program": "t.py", "lr": "1"})
    for job in (read_job({"SAGEMAKER_BASE_DIR": base}, Settings()), read_job({}, Settings(), base)):
        assert (job.platform, job.entry_point.program, job.arguments) == ("sagemaker", "t.py", ("--lr", "1"))


def test_variables_alone_and_below_a_tree(write_tree: Callable[..., str], tmp_path: Path) -> None:
    job = read_job(HOSTS, Settings(), str(tmp_path))
    assert (job.platform, job.current_host) == ("sagemaker", "algo-2")
    assert read_job(HOSTS, Settings(), write_tree()).current_host == "algo-1"


def test_a_launched_program_is_run_where_it_was_launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {**HOSTS, "SM_USER_ENTRY_POINT": "launcher.py", "SM_USER_ARGS": '["--train-script", "t.py"]'}
    job = read_job(environ, Settings(), str(tmp_path / "ml"), "t.py", ("--lr", "1"))
    assert (job.entry_point, job.arguments) == (EntryPoint("t.py"), ("--lr", "1"))
    assert (job.paths.code, job.paths.model) == (os.getcwd(), str(tmp_path / "ml" / "model"))
    assert job.current_host == "algo-2"


def test_whose_count_of_accelerators_holds(write_tree: Callable[..., str], tmp_path: Path) -> None:
    """A launched program is below something that counted them; ``train`` is what counts."""
    environ, nowhere = {"SM_NUM_GPUS": "4"}, str(tmp_path / "none")
    four = Counted(4, "SM_NUM_GPUS")
    assert read_job(environ, Settings(), nowhere, "t.py").counted == four
    assert read_job(environ, Settings(), write_tree(), "t.py").counted == four
    assert read_job({**HOSTS, **environ}, Settings(), nowhere).counted == four
    assert read_job(environ, Settings(), write_tree()).counted == Counted()


def test_without_arguments_of_its_own_a_launched_program_gets_the_hyperparameters(
    write_tree: Callable[..., str],
) -> None:
    """All of them, and as SDK v3's drivers spell them, unless the job says otherwise."""
    base = write_tree(hyperparameters={"t": "true", "none": "null", "sagemaker_recipe_local_path": "r.yaml"})

    def arguments(*more: Any, **options: Any) -> tuple[str, ...]:
        return read_job({}, Settings(**options), base, *more).arguments

    everything = ("--t", "true", "--none", "null", "--sagemaker_recipe_local_path", "r.yaml")
    assert arguments("t.py", None) == arguments("t.py", None, args="json") == everything
    assert arguments("t.py", None, args="sagemaker") == arguments() == ("-t", "True", "--none", "")
    assert arguments("t.py") == ()


V3 = ("--t", "true", "--list", '[1, "a"]', "--none", "null")
V2 = ("-t", "True", "--list", "[1, 'a']", "--none", "")
SENT = {"t": "true", "list": '[1, "a"]', "none": "null", "sagemaker_program": "t.py"}


@pytest.mark.parametrize(
    ("channels", "drivers", "asked", "spelled"),
    [
        (["train"], False, "", V2),
        (["code", "sm_drivers"], False, "", V3),
        ([], True, "", V3),
        (["sm_drivers"], True, "sagemaker", V2),
        (["train"], False, "json", V3),
    ],
)
def test_a_job_of_sdk_v3_has_its_spelling(
    write_tree: Callable[..., str], channels: list[str], drivers: bool, asked: str, spelled: tuple[str, ...]
) -> None:
    """From the tree (``train``), and from variables alone (``launcher.py`` below another toolkit)."""
    base = write_tree(hyperparameters=SENT, inputdataconfig={name: {"TrainingInputMode": "File"} for name in channels})
    if drivers:
        Path(base, "input/data/sm_drivers").mkdir(parents=True)
    assert read_job({}, Settings(args=asked), base).arguments == spelled
    variables = {**HOSTS, "SM_HPS": '{"t": true, "list": [1, "a"], "none": null}', "SM_CHANNELS": json.dumps(channels)}
    os.unlink(os.path.join(base, "input/config/resourceconfig.json"))
    assert read_job(variables, Settings(args=asked), base).arguments == spelled


def test_no_platform(tmp_path: Path) -> None:
    job = read_job({}, Settings(), str(tmp_path), "pkg.train", ("-x",), module=True)
    assert (job.platform, job.name, job.entry_point) == ("plain", "pkg", EntryPoint("pkg.train", module=True))


def test_train_without_a_tree_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{tmp_path}/input/config/resourceconfig.json"):
        read_job({}, Settings(), str(tmp_path))


def test_half_a_tree_is_not_no_platform(tmp_path: Path) -> None:
    (tmp_path / "input" / "config").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"resourceconfig.json is missing"):
        read_job({}, Settings(), str(tmp_path), "t.py")


def test_the_setting_decides(write_tree: Callable[..., str], tmp_path: Path) -> None:
    base = write_tree()
    assert read_job(HOSTS, Settings(platform="plain"), base, "t.py").platform == "plain"
    with pytest.raises(UsageError, match="input/config can't be read"):
        read_job({}, Settings(platform="sagemaker"), str(tmp_path / "none"), "t.py")


@pytest.mark.parametrize(("program", "arguments"), [("a\0", ()), ("a", ("b\0",))])
def test_nul_in_the_command(tmp_path: Path, program: str, arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="without NUL"):
        read_job({}, Settings(), str(tmp_path), program, arguments)


def test_one_host_by_the_machines_name() -> None:
    job = alone()
    assert (job.platform, job.hosts, job.leader) == ("plain", (platform.node(),), platform.node())
    assert (job.grace, job.paths.base, job.distribution.kind) == (30.0, "", "none")
    assert alone("here").current_host == "here"


def test_everything_that_the_job_was_told(write_tree: Callable[..., str]) -> None:
    base = write_tree(
        hyperparameters={"sagemaker_program": "t.py", "api_key": "00123456", "x": '{"token": "deep-token"}'},
        trainingjobconfig={"vault": {"secret": "filed-secret"}},
    )
    environ = {"SAGEMAKER_BASE_DIR": base, "A_TOKEN": "variable-1", "MUSTER_PROGRAM_ARGS": '["--password", "typed-1"]'}
    masker = masker_of(environ, read_job(environ, Settings()))
    text = "variable-1 00123456 deep-token filed-secret typed-1 t.py"
    assert masker.mask_user(text) == "*** *** *** *** *** t.py"


def test_files_of_a_job_that_cannot_be_read(tmp_path: Path) -> None:
    config = tmp_path / "input/config"
    config.mkdir(parents=True)
    (config / "hyperparameters.json").write_text('{"api_key": "broken-key-1", }')
    (config / "other.json").write_text('{"password": "other-word-2"}')
    masker = masker_of_files({"SAGEMAKER_BASE_DIR": str(tmp_path)}, ["--token", "given-3"])
    assert masker.mask_user("broken-key-1 other-word-2 given-3") == "*** *** ***"
    assert masker_of_files({"SAGEMAKER_BASE_DIR": "/none/such", "A_TOKEN": "a-token-4"}).mask_user("a-token-4") == "***"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "isn't valid JSON"),
        (b'{"a": ', "isn't valid JSON"),
        (b"\xff\xfe", "isn't UTF-8: invalid start byte at byte 0"),
        (b"[" * 100_000, "isn't valid JSON"),
    ],
)
def test_load_names_the_file_and_what_is_wrong(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "resourceconfig.json"
    path.write_bytes(data)
    with pytest.raises(UsageError) as error:
        fields.load(str(path))
    assert str(error.value).startswith(str(path))
    assert says in str(error.value)


def test_load_takes_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "hyperparameters.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": "1"}')
    assert fields.load(str(path)) == {"a": "1"}


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (fields.mapping, {"a": 1}, {"a": 1}),
        (fields.text, "x", "x"),
        (fields.text, None, ""),
        (fields.host, "algo-1-w8w6m", "algo-1-w8w6m"),
        (fields.host, "fe80::1", "fe80::1"),
        (fields.host_list, ["b", "a"], ("b", "a")),
        (fields.count, 8, 8),
        (fields.count, "8", 8),
        (fields.flag, True, True),
        (fields.flag, "True", True),
        (fields.flag, "False", False),
        (fields.flag, 1, True),
        (fields.flag, None, False),
    ],
)
def test_values_that_are_right(read: Callable[[Any, str], Any], value: Any, expected: Any) -> None:
    assert read(value, "here") == expected


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (fields.mapping, [], "an object"),
        (fields.text, 1, "a string"),
        (fields.text, "a\0", "a string without NUL characters"),
        (fields.host, "", "a host name such as algo-1"),
        (fields.host, "a b", "a host name such as algo-1"),
        (fields.host, "-a", "a host name such as algo-1"),
        (fields.host, None, "a host name such as algo-1"),
        (fields.host_list, "algo-1", 'a list of host names such as ["algo-1", "algo-2"]'),
        (fields.count, 0, "a whole number, 1 to 65536"),
        (fields.count, True, "a whole number, 1 to 65536"),
        (fields.count, "eight", "a whole number, 1 to 65536"),
        (fields.count, 1.5, "a whole number, 1 to 65536"),
        (fields.flag, "maybe", "true or false"),
        (fields.flag, [], "true or false"),
    ],
)
def test_the_message_has_place_value_and_expectation(
    read: Callable[[Any, str], Any], value: Any, expected: str
) -> None:
    with pytest.raises(UsageError) as error:
        read(value, "file.json: key")
    assert str(error.value) == f"file.json: key is {fields.shown(value)}, expected {expected}"


def test_long_values_are_shortened() -> None:
    assert fields.shown("x" * 500).endswith("...")
    assert len(fields.shown("x" * 500)) == 80
