"""A job's file: its keys, and the lines where they stand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.job_text import JobText, found_file, read_job_text

TOML = """\
slots = 2

[[roles]]  # the first
name = "a"

[env]
name = "no role's"

 [[ roles ]]
"name" = "b"
env = { name = "x" }
"""


def test_a_key_of_a_role_has_a_line() -> None:
    text = JobText("job.toml", {}, tuple(TOML.splitlines()))
    places = [text.place(at, key) for at, key in ((0, "name"), (0, ""), (0, "slots"), (1, "name"), (1, "env"))]
    assert places == [f"job.toml, line {line}" for line in (4, 3, 3, 10, 11)]
    assert text.place(2, "name") == "job.toml, role 3"


def test_json_has_roles_by_number() -> None:
    text = read_job_text(json.dumps({"roles": [{"name": "a"}]}), "job.json")
    assert text.values == {"roles": [{"name": "a"}]} and text.place(0, "name") == "job.json, role 1"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("job.json", "[1]", "a JSON list, expected an object of options"),
        ("job.json", "{", "it is no JSON"),
        ("job.json", '{"a":' * 5000 + "1" + "}" * 5000, "nested too deeply"),
        ("job.toml", "a = [", "it is no TOML"),
        ("job.toml", "a = '\udcff'", "it is no TOML"),
        ("gone.toml", None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: str | None, words: str) -> None:
    if name.endswith(".toml") and sys.version_info < (3, 11) and content is not None:
        words = "can't read TOML: install tomli"
    if content is not None:
        (tmp_path / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=words) as error:
        read_job_text(str(tmp_path / name), "--job-file x")
    assert str(error.value).startswith("--job-file x: ")


def test_the_first_folder_that_has_the_file_wins(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "job.toml").touch()
    folders = [str(tmp_path / folder) for folder in ("none", "b", "a")]
    assert found_file("job.toml", "", *folders) == str(tmp_path / "b" / "job.toml")
    assert found_file("other.toml", *folders) == ""
