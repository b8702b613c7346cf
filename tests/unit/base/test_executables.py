"""Commands found on PATH, and what is too long for the system, compared with the system itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from musterpoint.base.executables import LONGEST_WORD, find_command, over_limit, size_of
from musterpoint.core.processes.process import CannotStart, Streams, spawn


@pytest.fixture
def folders(tmp_path: Path) -> str:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "tool").write_text("not executable")
    (tmp_path / "a" / "folder").mkdir()
    tool = tmp_path / "b" / "tool"
    tool.write_text("")
    tool.chmod(0o755)
    return f"{tmp_path}/a:{tmp_path}/b"


def test_the_first_executable_file(folders: str, tmp_path: Path) -> None:
    assert find_command("tool", {"PATH": folders}) == str(tmp_path / "b" / "tool")
    assert find_command("sh", {}).endswith("/sh"), "on the system's own path"


@pytest.mark.parametrize("command", ["", "folder", "none", "a/tool", "nul\0"])
def test_nothing_to_start(folders: str, command: str) -> None:
    assert find_command(command, {"PATH": folders}) == ""


def starts(argv: list[str], environment: dict[str, str]) -> bool:
    try:
        pid = spawn(argv, environment, "/", Streams(0, 1, 2))
    except CannotStart as error:
        assert error.error.errno == errno.E2BIG
        return False
    assert os.waitpid(pid, 0)[1] == 0
    return True


@pytest.mark.parametrize("letter", ["x", "é"])
def test_the_longest_word(letter: str) -> None:
    word = letter * (LONGEST_WORD // size_of(letter))
    for more in ("", letter):
        assert starts(["/bin/true", word + more], {}) is (size_of(word + more) <= LONGEST_WORD)
    name = "N=" + "x" * (LONGEST_WORD - 2)
    assert starts(["/bin/true"], {"N": name[2:]})
    assert not starts(["/bin/true"], {"N": name[2:] + "x"})


def test_all_together() -> None:
    """What we refuse, the system refuses; a few pages less, both take."""
    words = ["/bin/true"]
    while (exceeded := over_limit(words)) is None:
        words.append("x" * 20_000)
    assert not starts(words, {})
    taken, limit = exceeded
    fits = words[: -1 - (taken - limit + 65536) // 20_000]
    assert over_limit(fits) is None
    assert starts(fits, {})
