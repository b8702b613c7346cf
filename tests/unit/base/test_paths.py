"""Every option that is a path is found where it was typed."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import OPTIONS, Option
from musterpoint.cli.local_command_line import job_from, parser
from musterpoint.cli.options import split

PATHS = [option for option in OPTIONS if option.path]


def options_of(cwd: Path, *words: str) -> Mapping[str, str]:
    """The variables of the hosts' entry points, for a command that was typed in ``cwd``."""
    options = parser()
    command = split(options, words)
    return job_from(command, options.parse_args(command.head), str(cwd), {}).options


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
    found = options_of(here, "--hosts", "1", option.flag, "below/file.json", "../code/train.py")[option.variable]
    assert found == str(here / "below" / "file.json")


def test_a_file_among_the_code_is_named_from_there(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    for name in ("train.py", "fsdp.yaml"):
        (tmp_path / "code" / name).touch()
    for cwd, given in ((tmp_path, "code/fsdp.yaml"), (tmp_path / "code", "fsdp.yaml"), (tmp_path, "fsdp.yaml")):
        program = "code/train.py" if cwd == tmp_path else "train.py"
        found = options_of(cwd, "--accelerate-config", given, program)["MUSTER_ACCELERATE_CONFIG"]
        assert found == "fsdp.yaml", "so that it is in every host's copy"


def test_containers_do_not_have_a_file_of_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    for name in ("code/train.py", "fsdp.yaml"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"the containers don't have .*: put it beside the program"):
        options_of(tmp_path, "--image", "x", "--accelerate-config", "fsdp.yaml", "code/train.py")


def test_the_name_of_a_command_stays_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    assert options_of(tmp_path, "--python", "python3", "train.py")["MUSTER_PYTHON"] == "python3"
