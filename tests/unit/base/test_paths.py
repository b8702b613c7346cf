"""Every option that is a path is found where it was typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import OPTIONS, Option
from musterpoint.cli.local_options import job_from, parser
from musterpoint.cli.options import split

PATHS = [option for option in OPTIONS if option.path]


def test_every_option_that_takes_a_file_says_where_a_relative_path_begins() -> None:
    named = {option.field for option in OPTIONS if option.metavar in ("FILE", "DIR", "PATH")}
    assert named == {option.field for option in PATHS if option.path != "place"}  # those may be a URI, too


@pytest.mark.parametrize("option", PATHS, ids=lambda option: option.field)
def test_muster_local_finds_it_where_it_was_typed(tmp_path: Path, option: Option) -> None:
    """The program is elsewhere, and the hosts start elsewhere."""
    code, here = tmp_path / "code", tmp_path / "here"
    for folder in (code, here / "below"):
        folder.mkdir(parents=True)
    (code / "train.py").touch()
    (here / "below" / "file.json").touch()
    (here / "below" / "file.json").chmod(0o755)
    options = parser()
    command = split(options, ["--hosts", "1", option.flag, "below/file.json", "../code/train.py"])
    found = job_from(command, options.parse_args(command.head), str(here), {}).options[option.variable]
    assert found == str(here / "below" / "file.json")


def test_a_file_among_the_code_is_named_from_there(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    for name in ("train.py", "fsdp.yaml"):
        (tmp_path / "code" / name).touch()
    options = parser()
    for cwd, given in ((tmp_path, "code/fsdp.yaml"), (tmp_path / "code", "fsdp.yaml"), (tmp_path, "fsdp.yaml")):
        program = "code/train.py" if cwd == tmp_path else "train.py"
        command = split(options, ["--accelerate-config", given, program])
        found = job_from(command, options.parse_args(command.head), str(cwd), {})
        assert found.options["MUSTER_ACCELERATE_CONFIG"] == "fsdp.yaml", "so that it is in every host's copy"


def test_containers_do_not_have_a_file_of_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    for name in ("code/train.py", "fsdp.yaml"):
        (tmp_path / name).touch()
    options = parser()
    command = split(options, ["--image", "x", "--accelerate-config", "fsdp.yaml", "code/train.py"])
    with pytest.raises(UsageError, match=r"the containers don't have .*: put it beside the program"):
        job_from(command, options.parse_args(command.head), str(tmp_path), {})


def test_the_name_of_a_command_stays_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    options = parser()
    command = split(options, ["--python", "python3", "train.py"])
    found = job_from(command, options.parse_args(command.head), str(tmp_path), {})
    assert found.options["MUSTER_PYTHON"] == "python3"
