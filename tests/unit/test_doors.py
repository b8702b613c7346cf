"""Imports stand on top of a file. Where they don't, there is a door: what is behind it, most jobs never enter."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from typing import Iterator

import pytest

from .sources import IN_ONE_WORKER, PACKAGE, files, nodes

pytestmark = IN_ONE_WORKER
ELSEWHERE = ("embedded", "local/patches")
"""What runs in another Python: its imports are that one's frameworks."""
MOST = 40
"""Doors and rooms together."""

DOORS = {
    # of the standard library: what costs more at import than everything that most jobs need of it
    "base/errors.py: similar": "difflib; a name was wrong",
    "base/plugins.py: _installed": "importlib.metadata; a launcher or platform of another package is asked for",
    "base/probe.py: ask": "subprocess; a program of this host is asked something",
    "core/attempts.py: _token": "hashlib; the job has a secret",
    "core/launch/smdistributed.py: token": "hashlib; the job imports smdistributed",
    "core/processes/process.py: _prepare": "termios; a rank has a terminal of its own",
    "core/processes/pump.py: start": "threading; the user's program runs by then",
    "core/processes/tree.py: _prctl": "ctypes; this process isn't PID 1",
    "core/supervise/temporary_directory.py: remove": "shutil; a launcher left files in its temporary directory",
    # of other packages
    "tools/check/gpus.py: survey_gpus": "pynvml; it is installed",
    "tools/check/show.py: _show_rich": "rich; it is installed",
    # ours, before the ranks start
    "cli/train.py: main": "everything, without searching it for garbage",
    "core/entrypoint.py: _meet": "the platform has started several entry points on this host",
    "core/job/read.py: _read": "options or variables tell of hosts",
    "core/launch/build.py: _with_mpi_options": "options of mpirun are given",
    "core/ready.py: prepare_this_host": "something was asked for that might have no effect",
    "core/rollcall/roll_call.py: _gathering": "there are several hosts",
    "core/runtime.py: __init__": "somebody watches the events of this host",
    "core/runtime.py: open_door": "hosts call each other by ssh",
    "cli/job.py: _check": "hosts are checked before the ranks start",
    # ours, while ranks run
    "core/supervise/host_processes.py: start": "ranks meet, which is watched",
    "core/supervise/supervisor.py: _start": "there is a server for ssh",
    "core/supervise/supervisor.py: _daemons": "there are daemons of an MPI",
    "core/supervise/context.py: diagnosis": "something failed",
    "core/channel/lone.py: failed": "something failed on the only host",
    "core/entrypoint.py: _attempts": "the job may be started again",
    # ours, outside of a job
    "cli/plan.py: _run_local": "the plan is of a local job, which the one-file launcher hasn't",
    "cli/plan.py: parsers": "options are completed",
    "local/__init__.py: __getattr__": "local jobs are started from Python",
    "local/backend.py: choose_backend": "hosts are containers",
}
"""Functions with an import inside of them: what they open, or when they are called."""

ROOMS = {
    "core/code": "code is fetched, packages are installed, an interpreter is asked",
    "core/fabric": "there are accelerators, or hosts call each other by ssh",
    "core/launch": "there are accelerators, several hosts, words with variables in them, or a word that is no command",
    "core/diagnosis": "something failed",
    "core/report": "the job is over",
    "core/job_data": "the job has channels, checkpoints, uploads or intermediate outputs",
}
"""Packages whose modules are imported when one of them is first used (``base/doors.py``), and when that is."""

TABLES = {
    "base/doors.py: open_module": "the rooms above",
    "cli/completion.py: _command_line": "commands, for their options",
    "cli/main.py: _run": "commands",
    "cli/main.py: run_file": "commands, by the name of the one file",
    "cli/serve.py: _run": "the server, which the one-file launcher hasn't",
    "cli/serve_faults.py: run": "what asks a running server",
    "serve/__init__.py: __getattr__": "the server, started from Python",
    "serve/instance_types.py: _types": "moto's list of instances",
    "integrations/pytest_plugin.py: muster_serve": "the server, for tests that use it",
    "core/code/install.py: _import_all": "all of ours, before an installer replaces them",
    "core/job/platforms/__init__.py: load": "platforms",
    "core/launch/table.py: find": "launchers",
    "core/supervise/watcher.py: open": "watchers",
    "local/docker_engine.py: load": "Docker's SDK, which may be missing",
    "local/docker_engine.py: _errors": "its errors",
    "local/docker_engine.py: _socket": "its contexts",
    "local/platforms/table.py: played": "platforms that are played",
}
"""Functions that import by a name: each is the one place where the things of a table are opened."""


def _functions() -> Iterator[tuple[str, ast.AST]]:
    """Every function of the sources, innermost last, by its file and name."""
    for path in files():
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(ELSEWHERE):
            for node in nodes(path):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield f"{name}: {node.name}", node


@cache
def _imports_inside() -> tuple[tuple[str, ast.AST], ...]:
    """What stands in a function and imports something, by the function: statements, and calls with a name."""
    return tuple(
        (name, node)
        for name, function in _functions()
        for node in _own(function)
        if isinstance(node, (ast.Import, ast.ImportFrom)) or _imports_by_name(node)
    )


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function itself, and in no function inside of it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _own(node)


def _imports_by_name(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("import_module", "__import__")
    )


def test_imports_stand_on_top() -> None:
    found = [name for name, node in _imports_inside() if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert sorted(found) == sorted(DOORS), "a door has one import; the table above says what it opens"


def test_rooms_that_open_when_used_are_listed() -> None:
    found = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py")
             if "opened_when_used(" in path.read_text(encoding="utf-8")}  # fmt: skip
    assert found == set(ROOMS)


def test_doors_are_few() -> None:
    assert len(DOORS) + len(ROOMS) <= MOST


def test_imports_by_name_are_those_of_tables() -> None:
    found = {name for name, node in _imports_inside() if _imports_by_name(node)}
    assert found == set(TABLES)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_what_it_names_and_no_more(room: str) -> None:
    package = importlib.import_module("musterpoint." + room.replace("/", "."))
    for name in package.__all__:
        assert getattr(package, name).__name__ == f"{package.__name__}.{name}"
    with pytest.raises(AttributeError, match="no_such_module"):
        _ = package.no_such_module
