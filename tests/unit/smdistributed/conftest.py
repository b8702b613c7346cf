"""Ranks as a launcher starts them: real processes, on this machine."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, Callable, Iterator, Mapping

import pytest

import musterpoint

from ...conftest import clean
from ...ports import free_port

SMDISTRIBUTED = Path(musterpoint.__file__).parents[1] / "musterpoint_smdistributed"
STARTUP = str(SMDISTRIBUTED / "startup")
PROGRAMS = Path(__file__).parent / "programs"

LARGEST = 1 << 24
"""Bytes that are read of what a rank printed."""

RunRanks = Callable[..., "list[dict[str, Any]]"]
Modules = Callable[[str], Any]


def by_torchrun(rank: int, world_size: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1"}  # fmt: skip


class Parent:
    """A process that has imported torch, and is forked for each rank: that import costs more than most tests do."""

    def __init__(self) -> None:
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.settimeout(1100)
        environ = {**clean(os.environ), "OMP_NUM_THREADS": "1", "PYTHONPATH": STARTUP}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("torch_parent.py")), str(theirs.fileno())],
            env=environ, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
        )  # fmt: skip
        theirs.close()
        self._ended: dict[int, int] = {}

    def fork(self, words: list[str], environ: dict[str, str], cwd: Path, out: BinaryIO, err: BinaryIO) -> int:
        """The pid of the rank that runs the program ``words[0]``."""
        asked = {"argv": words, "environ": environ, "cwd": str(cwd)}
        socket.send_fds(self._door, [json.dumps(asked).encode()], [out.fileno(), err.fileno()])
        while not isinstance(said := self._answer(), int):
            self._ended[said[0]] = said[1]
        return said

    def _answer(self) -> Any:
        text = self._door.recv(4096)
        assert text, f"the parent of ranks has ended: {self._process.wait()}"
        return json.loads(text)

    def wait(self, pid: int) -> int:
        """The rank's exit code, as subprocess has it."""
        while pid not in self._ended:
            ended, code = self._answer()
            self._ended[ended] = code
        return self._ended.pop(pid)

    def kill(self, pid: int) -> None:
        self._door.send(json.dumps(pid).encode())
        self.wait(pid)

    def close(self) -> None:
        self._door.close()
        self._process.wait(1100)


@pytest.fixture(scope="session")
def parents() -> Iterator[tuple[Parent, Parent]]:
    """Two, since the ranks of one parent order a set of names alike, which ranks of a job don't."""
    made = Parent(), Parent()
    yield made
    for each in made:
        each.close()


@pytest.fixture
def run_ranks(environ: dict[str, str], tmp_path: Path, parents: tuple[Parent, Parent]) -> RunRanks:
    """Runs a program of ``programs/`` as some ranks and returns the JSON object that each one printed last.

    With ``fails``: the exit code and stderr of each.
    """

    def run(
        program: str,
        count: int,
        launched: Callable[[int, int], dict[str, str]] = by_torchrun,
        arguments: tuple[str, ...] = (),
        fails: bool = False,
        **more: str,
    ) -> list[dict[str, Any]]:
        port = str(free_port())
        running: dict[int, int] = {}
        words = [str(PROGRAMS / program), *arguments]
        with contextlib.ExitStack() as stack:
            files = [[stack.enter_context(tempfile.TemporaryFile()) for _ in "oe"] for _ in range(count)]
            try:
                for rank, (out, err) in enumerate(files):
                    own = {**environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": STARTUP, "MASTER_PORT": port, **more}
                    own.update(launched(rank, count))
                    running[rank] = parents[rank % 2].fork(words, own, tmp_path, out, err)
                said = []
                for rank, (out, err) in enumerate(files):
                    code = parents[rank % 2].wait(running[rank])
                    del running[rank]
                    text, errors = _texts(out, err)
                    if fails:
                        said.append({"code": code, "errors": errors})
                        continue
                    if code != 0:  # another rank's end may be the cause
                        others = (f"-- rank {each} says:\n" + "".join(_texts(*files[each])) for each in range(count))
                        pytest.fail(f"{program}, code {code} of rank {rank}:\n" + "\n".join(others))
                    said.append(json.loads(text.splitlines()[-1]))
            finally:
                for rank, pid in running.items():
                    parents[rank % 2].kill(pid)
        return said

    return run


def are_exact_or_refused(found: Mapping[str, Any], refused: Mapping[str, str]) -> None:
    """Looks at distances and errors of cases by their names; ``refused``: words of the errors of some."""
    for name, said in found.items():
        if name in refused:
            assert refused[name] in str(said), (name, said)
        else:
            assert isinstance(said, float) and said <= 1e-12, (name, said)


def _texts(*files: BinaryIO) -> list[str]:
    return [os.pread(file.fileno(), LARGEST, 0).decode(errors="replace") for file in files]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker has torch and the parents of ranks."""
    for item in items:
        if item.path.parent == PROGRAMS.parent and item.get_closest_marker("torch"):
            item.add_marker(pytest.mark.xdist_group("smdistributed"))


@pytest.fixture
def python_says(environ: dict[str, str], tmp_path: Path) -> Callable[..., str]:
    """Runs code with the finder switched on by PYTHONPATH, and returns what it printed, or the error's last line."""

    def run(code: str, *path: str | Path, **more: str) -> str:
        environ["PYTHONPATH"] = os.pathsep.join([STARTUP, *map(str, path)])
        done = subprocess.run(
            [sys.executable, "-c", code], env={**environ, **more}, cwd=tmp_path, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]

    return run


@pytest.fixture(scope="session")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture(scope="session")
def nn(torch: Any) -> Any:
    return torch.nn


@pytest.fixture(scope="session")
def modelparallel() -> Iterator[Modules]:
    """A module of ``smdistributed.modelparallel`` by its name there, in this process."""
    finder = importlib.import_module("musterpoint_smdistributed.finder")
    before = list(sys.meta_path)
    finder.install()
    yield lambda name: importlib.import_module(f"smdistributed.modelparallel.{name}")
    sys.meta_path[:] = before
