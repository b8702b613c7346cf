"""Our own programs for other processes: readable and, where they are scripts, executable for as long as needed."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from musterpoint.embedded.programs import registry
from musterpoint.embedded.programs.registry import Texts, text_of

from ...running import result_of


@pytest.mark.parametrize("name", registry.PROGRAMS)
def test_the_text_is_the_modules(root: Path, name: registry.Program) -> None:
    ours = Texts()
    text = (root / "src" / f"{registry.module_of(name).replace('.', '/')}.py").read_text()
    assert Path(ours.path(name)).read_text().removeprefix(f"#!{sys.executable} -IS\n") == text
    ours.close()


TOGETHER = (registry.UPLOADER, registry.MOVER, registry.CODE_ARTIFACT, registry.KEEPER, registry.SAMPLER)
ALONE = tuple((name,) for name in registry.PROGRAMS if not any(name in parts for parts in TOGETHER))


@pytest.mark.parametrize("parts", [*TOGETHER, *ALONE], ids=lambda parts: parts[-1])
def test_a_python_without_musterpoint_has_all_that_a_program_imports(parts: tuple[registry.Program, ...]) -> None:
    """The package of this Python would hide what is missing."""
    for at, name in enumerate(parts):
        nodes = [*ast.walk(ast.parse(text_of(name)))]
        wanted = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        wanted |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        ours = {module for module in wanted if module.partition(".")[0] == "musterpoint"}
        assert ours <= {*map(registry.module_of, parts[:at])}, name


@pytest.mark.parametrize("memfd", [True, False])
def test_a_text_takes_the_place_of_the_last_of_its_name(
    memfd: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not memfd:
        without_memfd(monkeypatch, tmp_path)
    held = Texts()
    before = len(os.listdir("/proc/self/fd"))
    for text in ("a longer one", "two", ""):
        assert Path(held.hold("notes", text)).read_text() == text
    commands = [held.own_command(("process_files", "transfer"), {"number": number}) for number in range(5)]
    assert '"number": 4' in Path(commands[0][-1]).read_text()
    assert len(os.listdir("/proc/self/fd")) == before + 4 * memfd, "the notes, two parts and the request"
    held.close()


def test_a_program_that_is_missing_is_named() -> None:
    name: Any = "no_such"
    with pytest.raises(FileNotFoundError, match=r"programs\.no_such is missing from the package"):
        Texts().path(name)


def without_memfd(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)


@pytest.mark.parametrize("memfd", [True, False])
def test_another_process_can_read_it_until_it_is_closed(
    memfd: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not memfd:
        without_memfd(monkeypatch, tmp_path)
    ours = Texts()
    path = ours.path("rank_stub")
    assert ours.path("rank_stub") == path, "written once"
    read = subprocess.run(["cat", path], capture_output=True, text=True, check=True)
    assert read.stdout == text_of("rank_stub")
    ours.close()
    ours.close()
    assert not os.path.exists(path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_unless_somebody_asks() -> None:
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    Texts().close()
    assert (os.listdir("/proc/self/fd") if before else []) == before


def call(path: str) -> str:
    """What the agent says when it is called by its path with nothing to do."""
    done = subprocess.run([path], capture_output=True, text=True, timeout=500)
    assert done.returncode == 255, done.stderr
    return done.stderr


PLACES = {"as it is": "python3", "with a blank": "my python/python3", "deep": "/".join(["d" * 40] * 4) + "/python3"}


@pytest.mark.parametrize("memfd", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_the_agent_runs_by_its_path(place: str, memfd: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever our interpreter is called: a ``#!`` line knows neither blanks nor more than 127 bytes."""
    python = tmp_path / PLACES[place]
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    if not memfd:
        (tmp_path / "scratch").mkdir()
        without_memfd(monkeypatch, tmp_path / "scratch")
    monkeypatch.setattr(sys, "executable", str(python))
    ours = Texts()
    assert "expected [options] HOST COMMAND" in call(ours.path("launch_agent"))
    ours.close()


STRICT = """
import sys
sys.path.insert(0, sys.argv[1])
from musterpoint.embedded.programs.registry import Texts
import subprocess
with open("/proc/sys/vm/memfd_noexec", "w") as file:
    file.write(sys.argv[2])
ours = Texts()
done = subprocess.run([ours.path("launch_agent")], capture_output=True, text=True)
print(ours.path("launch_agent").startswith("/proc/"), "expected [options]" in done.stderr)
"""


@pytest.mark.netns
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="sets a system control of its own")
@pytest.mark.parametrize(("level", "memfd"), [("1", "True"), ("2", "False")])
def test_where_memfds_are_not_to_be_executed(root: Path, level: str, memfd: str, tmp_path: Path) -> None:
    """``vm.memfd_noexec`` 1 asks for a flag, 2 forbids it; the control is one of a PID namespace's."""
    if not os.path.exists("/proc/sys/vm/memfd_noexec"):
        assert os.uname().release < "6.3"
        return
    words = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", STRICT, str(root / "src"), level]
    done = result_of(words, {"TMPDIR": str(tmp_path), "PATH": os.environ["PATH"]})
    assert done.stdout.split() == [memfd, "True"], done.stderr


def test_a_flag_that_the_kernel_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux before 6.3."""
    real = os.memfd_create

    def old(name: str, flags: int) -> int:
        if flags != 1:
            raise OSError(22, "Invalid argument")
        return real(name, flags)

    monkeypatch.setattr(os, "memfd_create", old)
    ours = Texts()
    assert ours.path("launch_agent").startswith("/proc/")
    assert "expected [options]" in call(ours.path("launch_agent"))
    ours.close()
