"""Each host's own code: what it has, that the user's files stay as they are, and what is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import CODE_COPY, CODE_COPY_OF
from musterpoint.local import private_code, tree
from musterpoint.local.host_environment import PATCHES
from musterpoint.local.job_request import Container, LocalJob
from musterpoint.local.private_code import PrivateCode, can_mount
from musterpoint.local.tree import Layout

from ..running import result_of

HOSTS = ("algo-1", "algo-2")


def _mounts_here() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return can_mount(folder)


needs_mounts = pytest.mark.skipif(not _mounts_here(), reason="overlays can be mounted by root only")


class Bench:
    """A job's code in ``source``, and the hosts' copies of it in ``layout``."""

    def __init__(self, folder: Path, output: str = "out", hosts: tuple[str, ...] = HOSTS) -> None:
        self.source = folder / "code"
        (self.source / "pkg").mkdir(parents=True)
        (self.source / "train.py").write_text("the program")
        (self.source / "pkg" / "m.py").write_text("a module")
        self.layout = Layout(str(folder / output))
        self.job = LocalJob("a-job", hosts, "train.py", str(self.source))
        self.said: list[str] = []

    def make(self) -> PrivateCode:
        for host in self.job.hosts:
            tree.write(self.job, host, self.layout)
        code = PrivateCode(self.job, self.layout, self.said.append)
        code.make()
        return code

    def place(self, host: str) -> Path:
        return Path(self.layout.tree(host)) / "code"

    def run(self, code: PrivateCode, host: str, work: str) -> None:
        """Runs ``work``, Python, in the code of ``host`` as the host sees it."""
        words = [sys.executable, "-c", f"import os; os.chdir({str(self.place(host))!r})\n{work}"]
        subprocess.run(code.command(host, self.layout.tree(host), words), check=True)


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


CHANGES = (
    "open('train.py', 'a').write('!'); open('snap.pt', 'w').write('s'); os.remove('pkg/m.py'); os.mkdir('runs')\n"
    "open('runs/log', 'w').write('l')"
)


@pytest.mark.parametrize("much", [False, pytest.param(True, marks=needs_mounts)])
def test_hosts_write_to_files_of_their_own(tmp_path: Path, much: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In copies, and where a directory has much in it, on an overlay."""
    if much:
        monkeypatch.setattr(private_code, "MANY", 0)
    bench = Bench(tmp_path)
    before = files(bench.source)
    code = bench.make()
    for host in HOSTS:
        bench.run(code, host, CHANGES)
        assert bool(much) is (not (bench.place(host) / "train.py").exists()), "an overlay is seen by its host alone"
    assert files(bench.source) == before
    said = code.settle()
    for host in HOSTS:
        assert files(bench.place(host)) == {"train.py": "the program!", "snap.pt": "s", "runs/log": "l"}
        assert not os.path.exists(os.path.join(bench.layout.host(host), "layers"))
    assert "snap.pt (every host)" in said
    assert said.endswith(f"kept in {bench.layout.hosts}/*/opt/ml/code, not in {bench.source}")
    assert files(bench.source) == before


@pytest.mark.parametrize("much", [False, pytest.param(True, marks=needs_mounts)])
def test_what_no_host_changed_is_not_kept(tmp_path: Path, much: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if much:
        monkeypatch.setattr(private_code, "MANY", 0)
    bench = Bench(tmp_path)
    (bench.source / "link.py").symlink_to("train.py")
    code = bench.make()
    for host in HOSTS:
        bench.run(code, host, "assert open('pkg/m.py').read() == 'a module'; os.utime('train.py', None) if 0 else None")
    assert code.settle() == ""
    assert files(bench.place("algo-1")) == {}


@needs_mounts
def test_a_directory_with_the_output_in_it_is_no_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default output is below the code: then what lies beside it is mounted, each directory for itself."""
    monkeypatch.setattr(private_code, "MANY", 0)
    bench = Bench(tmp_path, "code/muster-jobs/j")
    code = bench.make()
    words = code.command("algo-1", "/opt/ml", ["true"])
    assert [word for word in words if word.startswith("/opt/ml")] == ["/opt/ml/code/pkg"]
    assert files(bench.place("algo-1")) == {"train.py": "the program"}
    bench.run(code, "algo-1", "open('pkg/new', 'w').write('n')")
    assert code.settle().startswith("written beside the code: pkg/new (algo-1); kept in ")


def test_what_is_left_out_and_where_links_lead(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for name in (".git", ".venv", "cache", "muster-jobs", "__pycache__"):
        (bench.source / name).mkdir()
        (bench.source / name / "file").write_text("x")
    (bench.source / ".venv" / "pyvenv.cfg").write_text("")
    (bench.source / "cache" / "CACHEDIR.TAG").write_text("")
    (tmp_path / "data").mkdir()
    (bench.source / "data").symlink_to("../data")
    (bench.source / "same.py").symlink_to("pkg/m.py")
    os.mkfifo(bench.source / "pipe")
    bench.make()
    place = bench.place("algo-1")
    assert sorted(os.listdir(place)) == ["data", "pkg", "same.py", "train.py"]
    assert os.readlink(place / "data") == str(tmp_path / "data")
    assert os.readlink(place / "same.py") == "pkg/m.py"


def test_entries_of_a_working_directory(tmp_path: Path) -> None:
    """Platforms that run commands prepare a directory with a link to each entry of the code, and others of its own."""
    bench = Bench(tmp_path, hosts=("node1",))
    folder = Path(bench.layout.host("node1")) / "wd"
    (folder / "outputs").mkdir(parents=True)
    for name in ("train.py", "pkg"):
        (folder / name).symlink_to(bench.source / name)
    code = PrivateCode(bench.job, bench.layout, bench.said.append)
    code.make()
    assert not any(path.is_symlink() for path in folder.iterdir())
    (folder / "pkg" / "m.py").write_text("changed")
    assert (bench.source / "pkg" / "m.py").read_text() == "a module"
    assert code.environment("node1", "/opt/ml") == {CODE_COPY: str(folder), CODE_COPY_OF: str(bench.source)}
    assert code.settle().endswith(f"kept in {folder}, not in {bench.source}")


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    monkeypatch.setattr(private_code, "_clone", lambda *_: False)
    with pytest.raises(UsageError, match=r"each host gets a copy of .*no space is left.*--source-dir"):
        Bench(tmp_path).make()


def test_containers_have_theirs_read_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.job = bench.job._replace(container=Container("an-image"))
    code = bench.make()
    assert (code.environment("algo-1", "/opt/ml"), code.command("algo-1", "/opt/ml", ["a"])) == ({}, ["a"])
    place = bench.place("algo-1")
    (place / "pkg").mkdir(parents=True)
    for name in ("train.py", "requirements.txt"):
        (place / name).touch()  # where files are mounted
    assert code.settle() == ""
    (place / "snapshot.pt").write_text("s")
    assert code.settle().startswith("written beside the code: snapshot.pt (algo-1); kept in ")


MAIN = "import sys, pkg.m\npkg.m.f()\n"
SPAWN = """
import multiprocessing, pkg.m
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=pkg.m.f)
    process.start()
    process.join()
"""
NAMED: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "the main program": (MAIN, lambda own: [f'File "{own}/train.py", line 2', f'File "{own}/pkg/m.py", line 2, in f']),
    "another process": (SPAWN, lambda own: [f'File "{own}/pkg/m.py", line 2, in f']),
    "a syntax error": ("x = (", lambda own: [f'File "{own}/train.py", line 1']),
    "what has no original": ("open('made.py', 'w').write('1/0')\nimport made",
     lambda own: [f'File "{own}/train.py", line 2', '/copy/made.py"']),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED)
def test_python_names_the_users_own_files(tmp_path: Path, environ: dict[str, str], case: str) -> None:
    text, expected = NAMED[case]
    for folder in ("own", "copy"):
        (tmp_path / folder / "pkg").mkdir(parents=True)
        (tmp_path / folder / "train.py").write_text(text)
        (tmp_path / folder / "pkg" / "m.py").write_text("def f():\n    1 / 0\n")
    variables = {CODE_COPY: str(tmp_path / "copy"), CODE_COPY_OF: str(tmp_path / "own"), "PYTHONPATH": PATCHES}
    done = result_of([sys.executable, "train.py"], {**environ, **variables}, cwd=tmp_path / "copy")
    for words in expected(str(tmp_path / "own")):
        assert words in done.stderr
