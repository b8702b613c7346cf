"""The one-file launcher: it is text, the same each time, and runs on every Python of this machine."""

from __future__ import annotations

import ast
import io
import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from musterpoint.cli.bundle import OLDEST, archive, bundle

from ..running import result_of

PYENV = Path.home() / ".pyenv" / "versions"
PROGRAM = """
import json, os, sys
print(json.dumps({
    "arguments": sys.argv[1:], "version": list(sys.version_info[:2]), "pythonpath": os.environ.get("PYTHONPATH", ""),
    "path": sys.path, "rank": os.environ.get("RANK"),
}))
sys.exit(int(sys.argv[2]) if "--code" in sys.argv else 0)
"""


def interpreters() -> dict[str, str]:
    """Every Python that is here, by version; the one that runs the tests is always among them."""
    found = {".".join(map(str, sys.version_info[:3])): sys.executable}
    if PYENV.is_dir():
        found.update({path.name: str(path / "bin" / "python") for path in sorted(PYENV.iterdir())})
    return {name: path for name, path in found.items() if name.startswith("3.") and os.access(path, os.X_OK)}


def number(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


NEW = {name: path for name, path in interpreters().items() if number(name) >= OLDEST}
OLD = {name: path for name, path in interpreters().items() if (3, 6) <= number(name) < OLDEST}


@pytest.fixture(scope="session")
def launcher_text() -> str:
    return bundle()


@pytest.fixture(scope="session")
def compiled_text() -> str:
    return bundle(compiled=True)


@pytest.fixture
def folder(tmp_path: Path, launcher_text: str) -> Path:
    """A source directory: launcher.py beside train.py."""
    (tmp_path / "launcher.py").write_text(launcher_text)
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def run(folder: Path, environ: dict[str, str], words: list[str], **changed: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in environ.items() if name != "PYTHONPATH"}
    clean["SAGEMAKER_BASE_DIR"] = str(folder / "none")
    return result_of(words, {**clean, **changed}, cwd=folder)


def test_it_is_text_with_a_readable_head(launcher_text: str) -> None:
    assert launcher_text.isascii() and bundle() == launcher_text, "the same package gives the same bytes"
    assert "\r" not in launcher_text
    assert max(map(len, launcher_text.splitlines())) <= 125
    assert "Apache" in (ast.get_docstring(ast.parse(launcher_text, feature_version=(3, 6))) or "")
    assert "@" not in launcher_text.partition("ARCHIVE =")[0]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="marshal writes sets in any order before Python 3.11")
def test_compiled_bytes_depend_on_nothing_else(root: Path) -> None:
    code = "import zlib; from musterpoint.cli.bundle import bundle; print(zlib.crc32(bundle(True).encode()))"
    environments = [{"PYTHONPATH": str(root / "src"), "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    outputs = {subprocess.check_output([sys.executable, "-c", code], env=environ) for environ in environments}
    assert len(outputs) == 1


@pytest.mark.lane("pythons")
@pytest.mark.parametrize("python", NEW.values(), ids=NEW)
def test_compiled_for_one_python_it_runs_on_all(
    python: str, folder: Path, compiled_text: str, environ: dict[str, str]
) -> None:
    (folder / "launcher.py").write_text(compiled_text)
    words = [python, "-I", "-S", "launcher.py", "train.py", "--code", "7"]
    assert run(folder, environ, words).returncode == 7


def test_the_archive_has_the_launcher_and_not_the_platform(root: Path) -> None:
    names = zipfile.ZipFile(io.BytesIO(archive(str(root / "src")))).namelist()
    assert names == sorted(names, key=lambda name: (name.count("/") > 1, name)) or len(names) == len(set(names))
    assert "musterpoint/core/entrypoint.py" in names
    assert "musterpoint/embedded/programs/rank_stub.py" in names
    assert not [name for name in names if "/local" in name or not name.endswith(".py")]


@pytest.mark.parametrize("python", NEW.values(), ids=NEW)
def test_a_script_with_its_flags(python: str, folder: Path, environ: dict[str, str]) -> None:
    words = [python, "-I", "-S", "launcher.py", "--train-script", "train.py", "--epochs", "3", "--slots", "many"]
    done = run(folder, environ, words)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["arguments"] == ["--epochs", "3", "--slots", "many"]
    startup, code = seen["pythonpath"].split(os.pathsep)
    assert code == str(folder)
    ours = [entry for entry in seen["path"] if "/proc/" in entry or "musterpoint" in entry]
    assert ours == [startup], "all else of ours is hidden from the program"


def test_as_a_module_with_the_programs_code(folder: Path, environ: dict[str, str], python: str) -> None:
    done = run(folder, environ, [python, "-m", "launcher", "train.py", "--code", "7"])
    assert done.returncode == 7, done.stderr


@pytest.mark.parametrize("name", ["types", "json", "socket", "signal", "operator", "musterpoint"])
def test_modules_beside_it_are_the_program_s(folder: Path, environ: dict[str, str], python: str, name: str) -> None:
    (folder / f"{name}.py").write_text("")
    (folder / "prog.sh").write_text("exit 7\n")  # a Python program would meet that module itself
    done = run(folder, environ, [python, "launcher.py", "prog.sh"])
    assert done.returncode == 7, done.stderr


def test_without_a_memory_file(folder: Path, environ: dict[str, str], python: str) -> None:
    code = "import os, runpy, sys; del os.memfd_create; sys.argv = ['launcher.py', 'train.py', '--code', '3']; "
    done = run(folder, environ, [python, "-c", code + "runpy.run_path('launcher.py', run_name='__main__')"],
               TMPDIR=str(folder))  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert not list(folder.glob("musterpoint-*"))


def test_the_folder_for_it_is_made(folder: Path, environ: dict[str, str], python: str, launcher_text: str) -> None:
    (folder / "launcher.py").rename(folder / "muster")
    done = run(folder, environ, [python, "muster", "bundle", "-o", "new/container/train"])
    assert done.returncode == 0, done.stderr
    assert (folder / "new" / "container" / "train").read_text() == launcher_text
    (folder / "file").write_text("")
    done = run(folder, environ, [python, "muster", "bundle", "-o", "file/launcher.py"])
    assert (done.returncode, done.stderr.count("\n")) == (64, 1), done.stderr
    assert "--output=file/launcher.py: can't be written" in done.stderr
    assert run(folder, environ, [python, "new/container/train", "--help"]).stdout.startswith("usage: train")


def test_named_muster_it_copies_itself(folder: Path, environ: dict[str, str], python: str, launcher_text: str) -> None:
    (folder / "launcher.py").rename(folder / "muster")
    done = run(folder, environ, [python, "muster", "bundle", "-o", "copy.py"])
    assert done.returncode == 0, done.stderr
    assert (folder / "copy.py").read_text() == launcher_text
    assert stat.S_IMODE((folder / "copy.py").stat().st_mode) == 0o755
    assert run(folder, environ, [python, "muster", "plan", "train.py"]).returncode == 0
    for words in (["local", "train.py"], ["plan", "--hosts", "2", "train.py"]):
        local = run(folder, environ, [python, "muster", *words])
        assert local.returncode == 64
        assert "one-file launcher" in local.stderr
        assert "Traceback" not in local.stderr


@pytest.mark.lane("pythons")
@pytest.mark.skipif(not OLD, reason="no Python older than 3.10 is here")
@pytest.mark.parametrize("python", OLD.values(), ids=OLD)
def test_an_old_python_runs_the_program_and_a_newer_one_the_rest(
    python: str, folder: Path, environ: dict[str, str]
) -> None:
    newer = folder / "bin"
    newer.mkdir()
    broken = newer / "python3.19"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    (newer / f"python3.{sys.version_info[1]}").symlink_to(sys.executable)
    done = run(folder, environ, [python, "launcher.py", "--train-script", "train.py"], PATH=str(newer))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert tuple(seen["version"]) < OLDEST
    alone = run(folder, environ, [python, "launcher.py", "--train-script", "train.py"], PATH=str(folder))
    assert alone.returncode == 64
    assert "needs Python 3.10" in alone.stderr
    assert python in alone.stderr
