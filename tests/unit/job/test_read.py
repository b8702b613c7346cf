from __future__ import annotations

import os
from pathlib import Path
from typing import Callable

import pytest

from musterpoint.errors import UsageError
from musterpoint.job.model import Counted, EntryPoint
from musterpoint.job.read import read_job
from musterpoint.settings import Settings

HOSTS = {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2"}


def test_the_tree_of_the_base_directory(write_tree: Callable[..., str]) -> None:
    base = write_tree(hyperparameters={"sagemaker_program": "t.py", "lr": "1"})
    for job in (read_job({"SAGEMAKER_BASE_DIR": base}, Settings()), read_job({}, Settings(), base)):
        assert (job.platform, job.entry_point.program, job.arguments) == ("sagemaker", "t.py", ("--lr", "1"))


def test_the_tree_goes_before_variables(write_tree: Callable[..., str]) -> None:
    assert read_job(HOSTS, Settings(), write_tree()).current_host == "algo-1"


def test_variables_alone(tmp_path: Path) -> None:
    job = read_job(HOSTS, Settings(), str(tmp_path))
    assert (job.platform, job.current_host) == ("sagemaker", "algo-2")


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
    base = write_tree()
    own = read_job({}, Settings(), base).arguments
    assert read_job({}, Settings(), base, "t.py", None).arguments == own
    assert read_job({}, Settings(), base, "t.py").arguments == ()


def test_no_platform(tmp_path: Path) -> None:
    job = read_job({}, Settings(), str(tmp_path), "pkg.train", ("-x",), module=True)
    assert (job.platform, job.name, job.entry_point) == ("plain", "pkg", EntryPoint("pkg.train", module=True))


def test_train_without_a_tree_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train is what a training platform runs .* `muster local PROGRAM`") as error:
        read_job({}, Settings(), str(tmp_path))
    assert str(tmp_path / "input" / "config" / "resourceconfig.json") in str(error.value)


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
