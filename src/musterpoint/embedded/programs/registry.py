"""The programs of ours that run as processes of their own: their names, and files with their source text.

Each is a module beside this one. It is started from its text, since the Python that runs it may not have musterpoint.
The text is in a memfd, so that no writable directory is needed.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import sys
from typing import Any, Literal, Mapping, Sequence, get_args

Program = Literal[
    "below",
    "untrusted",
    "rank_stub",
    "launch_agent",
    "tensorflow_server",
    "horovod_rendezvous",
    "pid1_tracer",
    "code_artifact",
    "file_changes",
    "uploader",
    "transfer_s3",
    "transfer",
    "checkpoint_look",
    "checkpoint_kinds",
    "checkpoint_manifest",
    "checkpoint_prune",
    "checkpoint_restore",
    "checkpoint_sights",
    "checkpoint_keeper",
    "mover",
    "process_files",
    "work_done",
    "process_stacks",
    "stack_sampler",
    "ray_node",
    "ray_driver",
    "xgboost_tracker",
    "accelerate_settings",
    "gpu_activity",
    "ssh_session",
]
PROGRAMS: tuple[Program, ...] = get_args(Program)
_OF_BASE: frozenset[Program] = frozenset({"below", "untrusted"})
"""Modules of ``base`` that programs take along."""
_TRANSFER: tuple[Program, ...] = ("below", "transfer_s3", "transfer")
UPLOADER: tuple[Program, ...] = (*_TRANSFER, "file_changes", "uploader")
"""The parts of the uploader, each after those that it imports; the last one is started."""
_CHECKPOINTS: tuple[Program, ...] = ("untrusted", "checkpoint_look", "checkpoint_manifest", "checkpoint_restore")
MOVER: tuple[Program, ...] = (*_TRANSFER, *_CHECKPOINTS, "mover")
"""The parts of the mover of channels, outputs and checkpoints, likewise."""
CODE_ARTIFACT: tuple[Program, ...] = (*_TRANSFER, "code_artifact")
"""The parts of what asks CodeArtifact, likewise."""
KEEPER: tuple[Program, ...] = (
    *_TRANSFER,
    *_CHECKPOINTS,
    "file_changes",
    "checkpoint_kinds",
    "checkpoint_prune",
    "checkpoint_sights",
    "checkpoint_keeper",
)
"""The parts of the keeper of checkpoints, likewise."""
SAMPLER: tuple[Program, ...] = ("process_files", "work_done", "process_stacks", "stack_sampler")
"""The parts of what looks at ranks that stand still, likewise."""
STARTER = """
import json, sys, types
with open(sys.argv[1]) as file:
    texts, request = json.load(file)
for name, path in texts:
    module = sys.modules[name] = types.ModuleType(name)
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), name, "exec"), module.__dict__)
sys.exit(module.main(request))
"""
"""Loads a program's modules from their texts: its Python need not have musterpoint."""
SCRIPTS: frozenset[Program] = frozenset({"launch_agent"})
"""Programs that are executed by path, so they need a ``#!`` line."""

LONGEST_FIRST_LINE = 127
"""Bytes of a ``#!`` line that Linux reads (255 from 5.1 on); it is split at blanks, quoted or not."""

_MFD_CLOEXEC, _MFD_NOEXEC_SEAL, _MFD_EXEC = 1, 8, 16


def fact_of(line: str) -> dict[str, Any] | None:
    """What a program of ours says in a line of its stdout; None: it is no fact, but words for people."""
    try:
        fact = json.loads(line)
    except ValueError:
        return None
    return fact if isinstance(fact, dict) else None


class Texts:
    """Texts as files that other processes of this user can open; each is written at its first use.

    :meth:`close` removes them.
    """

    def __init__(self) -> None:
        self._paths: dict[str, str] = {}
        self._fds: list[int] = []
        self._folder = ""
        self._requests = 0

    def path(self, name: Program) -> str:
        """The file of the program's text; executable if it is one of :data:`SCRIPTS`."""
        if name not in self._paths:
            self._paths[name] = self._script(name) if name in SCRIPTS else self._write(name, text_of(name))
        return self._paths[name]

    def hold(self, name: str, text: str) -> str:
        """Holds any other text, instead of an earlier one of this name; returns its path. A program may write to it."""
        if name in self._paths:
            with open(self._paths[name], "w", encoding="utf-8") as file:
                file.write(text)
        else:
            self._paths[name] = self._write(name, text)
        return self._paths[name]

    def command(self, python: str, parts: Sequence[Program], request: Mapping[str, Any]) -> tuple[str, ...]:
        """What starts a program of several ``parts`` with ``request``; the last part has its ``main``."""
        self._requests += 1
        return (python, "-W", "ignore", *self._start(parts, f"{parts[-1]}-request-{self._requests}", request))

    def own_command(self, parts: Sequence[Program], request: Mapping[str, Any]) -> tuple[str, ...]:
        """The same by musterpoint's own Python, for a program that runs time and again: one at a time, since a request
        takes the place of the last one.
        """
        return (sys.executable, "-I", "-S", *self._start(parts, f"{parts[-1]}-request", request))

    def _start(self, parts: Sequence[Program], held: str, request: Mapping[str, Any]) -> tuple[str, ...]:
        texts = [(module_of(name), self.path(name)) for name in parts]
        return ("-c", STARTER, self.hold(held, json.dumps([texts, request])))

    def _script(self, name: Program) -> str:
        first = f"#!{sys.executable} -IS"
        if len(first.encode()) <= LONGEST_FIRST_LINE and not {" ", "\t", "\n"} & set(sys.executable):
            return self._write(name, f"{first}\n{text_of(name)}", executable=True)
        import shlex

        words = [sys.executable, "-IS", self._write(f"{name}-text", text_of(name))]
        return self._write(name, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', executable=True)

    def _write(self, name: str, text: str, executable: bool = False) -> str:
        fd = _memfd(f"muster-{name}", executable)
        if fd >= 0:
            self._fds.append(fd)
            os.write(fd, text.encode())
            return f"/proc/{os.getpid()}/fd/{fd}"
        import tempfile

        self._folder = self._folder or tempfile.mkdtemp(prefix="muster-")
        path = os.path.join(self._folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o700 if executable else 0o600), "wb") as file:
            file.write(text.encode())
        return path

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        if self._folder:
            import shutil

            shutil.rmtree(self._folder, ignore_errors=True)
        self._fds, self._folder, self._paths = [], "", {}


def _memfd(name: str, executable: bool) -> int:
    """A memfd, -1 where there is none. Linux before 6.3 knows no flag about execution; later ones may insist on it, or
    refuse it (sysctl ``vm.memfd_noexec``).
    """
    if not hasattr(os, "memfd_create"):
        return -1
    for flag in (_MFD_EXEC if executable else _MFD_NOEXEC_SEAL, 0):
        try:
            return os.memfd_create(name, _MFD_CLOEXEC | flag)
        except OSError as error:
            if error.errno != errno.EINVAL:
                return -1
    return -1


def module_of(name: Program) -> str:
    """The full name of the program's module."""
    return f"musterpoint.base.{name}" if name in _OF_BASE else f"{__package__}.{name}"


@functools.cache
def text_of(name: Program) -> str:
    """The program's source, from a directory or from the one-file launcher's archive. It is read once.

    Raises:
        FileNotFoundError: the package lacks it.
    """
    from importlib.util import find_spec

    spec = find_spec(module_of(name))
    loader = spec.loader if spec else None
    source = loader.get_source(spec.name) if spec and loader and hasattr(loader, "get_source") else None
    if source is None:
        raise FileNotFoundError(f"{module_of(name)} is missing from the package")
    return str(source)
