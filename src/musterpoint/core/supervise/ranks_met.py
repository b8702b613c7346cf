"""Watches on the leader whether the ranks of one world met, in the kernel's tables of TCP connections.

Ranks that never meet are worlds of one: each trains alone, and ends with 0. A connection is found while it lives, as a
socket of a rank, and for a minute after its end (TIME_WAIT); so the tables are read when a rank ends, and now and then
until a connection was found. Linux only; elsewhere the ranks are taken to have met.
"""

from __future__ import annotations

import ast
import os
import posixpath
import socket
import sys
from typing import Callable, Iterable, Iterator, Sequence

from musterpoint.base.failure import Failure
from musterpoint.base.loop import Timer
from musterpoint.base.records import NamedTuple
from musterpoint.core.code.program_files import ProgramFiles
from musterpoint.core.launch.launch_plan import Meeting
from musterpoint.core.processes import process_tree
from musterpoint.core.supervise import own_failures as failures
from musterpoint.core.supervise.context import SupervisorContext

LOOKS = (2.0, 5.0, 15.0, 45.0)
"""Seconds from one look to the next, the last for ever: below the 60 s for which Linux remembers a connection."""
LOOKS_FOR_THREADS = (*(2.0,) * 20, *(5.0,) * 120, 45.0)
"""The same for what is seen only while it lives."""
THREADS = ("pt_gloo", "pt_nccl", "pt_tcpstore")
"""How names of threads begin that torch.distributed starts in each of its processes (torch 2.13)."""
CLOSING = frozenset({"04", "05", "06", "08", "09", "0B"})
"""States of a connection that one side or both have closed (Linux, ``include/net/tcp_states.h``)."""
_MOST_FILES = 100
"""Files that are read."""


class Tcp(NamedTuple):
    """A row of the table: the endpoints (``address:port`` in hexadecimal), the state, the socket's inode, its user."""

    local: str
    remote: str
    state: str
    inode: str
    user: int

    @property
    def ends(self) -> tuple[str, str]:
        return self.local, self.remote


class MeetingWatch:
    """Whether the ranks met.

    ``world`` is how many they are in all; ``pids`` gives the programs of this host's that run. ``proc`` is Linux's
    /proc.
    """

    def __init__(
        self,
        context: SupervisorContext,
        meeting: Meeting,
        world: int,
        pids: Callable[[], Iterable[int]],
        proc: str = "/proc",
    ) -> None:
        self._context, self._meeting, self._world, self._pids, self._proc = context, meeting, world, pids, proc
        self._port = f":{meeting.port:04X}"
        self._hosts = frozenset(form for address in meeting.hosts for form in _forms(address))
        self._before = frozenset(row.ends for row in rows(proc))
        self._uses_library = self._is_over = False
        self.met = not os.path.exists(f"{proc}/net/tcp")
        self._looks = iter(LOOKS_FOR_THREADS if meeting.apart else LOOKS)
        self._timer: Timer | None = None
        self._look_at_end: Timer | None = None
        self._wait()

    def _wait(self) -> None:
        if not self.met:
            self._timer = self._context.loop.call_later(next(self._looks, LOOKS[-1]), self._look_again)

    def _look_again(self) -> None:
        self.look()
        self._wait()

    def look(self) -> None:
        """Looks whether a rank has, or had, a connection to where they meet."""
        if self.met:
            return
        found = [row for row in rows(self._proc) if row.ends not in self._before]
        at_port = [row for row in found if row.local.endswith(self._port) or row.remote.endswith(self._port)]
        if self._meeting.apart:  # what meets at no port of ours is known by the hosts
            at_port = [row for row in found if row.remote.rpartition(":")[0] in self._hosts]
        self.met = any(row.state in CLOSING for row in at_port) or self._has_connection(found)
        if self.met:
            self._context.record("ranks-met", port=self._meeting.port)
            self.close()

    def _has_connection(self, found: list[Tcp]) -> bool:
        """Whether a rank has a connection to the port, to another host, or to another rank of this host."""
        owners: dict[str, int] = {}
        pids = list(self._pids())
        for pid, below in process_tree.descendants_of(pids, self._proc).items() if pids else ():
            for each in (pid, *(stat.pid for stat in below)):
                owners.update(dict.fromkeys(process_tree.socket_inodes(each, self._proc), pid))
                self._uses_library = self._uses_library or self._is_of_world(each)
        own = [row for row in found if row.inode in owners and row.state == "01"]
        places = {row.local: owners[row.inode] for row in own}
        return any(
            row.remote.endswith(self._port)
            or row.remote.rpartition(":")[0] in self._hosts
            or places.get(row.remote, owners[row.inode]) != owners[row.inode]
            for row in own
        )

    def _is_of_world(self, pid: int) -> bool:
        """Tells whether a process may be of a world: it has the library, or, of programs apart, its threads."""
        return _runs(pid, THREADS, self._proc) if self._meeting.apart else _maps(pid, self._meeting.library, self._proc)

    def rank_ended(self, well: bool, last: bool, explained: bool = False, nested: str = "") -> Failure | None:
        """A rank of this host ended, ``well`` or not; ``last``: no other runs here.

        Where all ended well and never met, returns the failure, or prints a warning: none where other words have
        ``explained`` it, and what is known of ``nested`` worlds in its place.
        """
        self._is_over = self._is_over or not well
        if self._is_over:
            self.close()
            return None
        if not last:  # ranks that end together are one reason to look
            if self._look_at_end is None and not self.met:
                self._look_at_end = self._context.loop.call_later(0, self._look_since_ranks_ended)
            return None
        self.look()
        if self.met:
            return None
        self._is_over = True
        self.close()
        if self._meeting.required:
            return failures.never_met(self._context.host, self._world, self._meeting, self._context.diagnosis)
        if not explained and (nested or self._uses_library or self._imports()):
            words = nested or failures.worlds_of_one(self._context.host, self._world, self._meeting)
            self._context.say(f"warning: {words}")
        return None

    def _look_since_ranks_ended(self) -> None:
        self._look_at_end = None
        self.look()

    def _imports(self) -> bool:
        """Whether the program, with what it imports, imports a module that ranks meet by."""
        return _imports_any(self._context.diagnosis.files, self._meeting.program, self._meeting.modules)

    def close(self) -> None:
        """Ends the watch."""
        for timer in (self._timer, self._look_at_end):
            if timer is not None:
                timer.cancel()
        self._timer = self._look_at_end = None


def rows(proc: str = "/proc") -> Iterator[Tcp]:
    """The TCP connections of this network namespace."""
    for name in ("tcp", "tcp6"):
        try:
            with open(f"{proc}/net/{name}", encoding="ascii", errors="replace") as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            if len(words) > 9:
                yield Tcp(words[1], words[2], words[3], words[9], int(words[7]))


def _forms(address: str) -> tuple[str, ...]:
    """``address`` as the tables have it: words of the machine's byte order; an IPv4 address also as one of IPv6."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, address)
        except OSError:
            continue
        words = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
        text = "".join(f"{word:08X}" for word in words)
        mapped = int.from_bytes(b"\0\0\xff\xff", sys.byteorder)
        return (text, f"{0:016X}{mapped:08X}{text}") if family == socket.AF_INET else (text,)
    return ()


def _runs(pid: int, threads: tuple[str, ...], proc: str) -> bool:
    for task in process_tree.listed(f"{proc}/{pid}/task"):
        try:
            with open(f"{proc}/{pid}/task/{task}/comm", encoding="utf-8", errors="replace") as file:
                if file.read().startswith(threads):
                    return True
        except OSError:  # it has ended
            continue
    return False


def _maps(pid: int, library: str, proc: str) -> bool:
    try:
        with open(f"{proc}/{pid}/maps", encoding="utf-8", errors="replace") as file:
            return any(library in line for line in file)
    except OSError:
        return False


def _imports_any(files: ProgramFiles, program: str, modules: Sequence[str]) -> bool:
    """Whether ``program`` imports one of ``modules``; files that nothing imports don't count.

    ``program``: a file, or a module's name with slashes; empty where it isn't Python's: then every file counts.
    """
    if not program:
        return any(_has(text, modules) for text in files.programs())
    folder = posixpath.dirname(program)
    waiting, seen = [program, f"{program}.py", f"{program}/__main__.py"], set[str]()
    while waiting and len(seen) < _MOST_FILES:
        path = waiting.pop()
        text = None if path in seen else files.read(path)
        seen.add(path)
        for name, level in _imported(text) if text else ():
            if not level and name.partition(".")[0] in modules:
                return True
            waiting += _places(name, level, path, folder)
    return False


def _has(text: str, modules: Sequence[str]) -> bool:
    return any(not level and name.partition(".")[0] in modules for name, level in _imported(text))


def _imported(text: str) -> Iterator[tuple[str, int]]:
    """The names of imported modules, and how many dots are before them; not those that may be missing."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = f"{node.module}." if node.module else ""
            yield from ((base + alias.name, node.level) for alias in node.names)
        elif isinstance(node, ast.Try) and any(_is_of_imports(handler) for handler in node.handlers):
            waiting += [*node.orelse, *node.finalbody]
        else:
            waiting += ast.iter_child_nodes(node)


def _is_of_imports(handler: ast.ExceptHandler) -> bool:
    caught = ast.unparse(handler.type) if handler.type is not None else "Exception"
    return any(name in caught for name in ("ImportError", "ModuleNotFoundError", "Exception"))


def _places(name: str, level: int, importer: str, folder: str) -> Iterator[str]:
    """Where the module may be: beside the program, in the code's directory, or from where it is imported."""
    bases = {folder, ""}
    if level:
        base = posixpath.dirname(importer)
        for _ in range(level - 1):
            base = posixpath.dirname(base)
        bases = {base}
    words = name.split(".")
    for base in sorted(bases):
        for end in range(1, len(words) + 1):  # the packages on the way are imported too; the last may be no module
            path = posixpath.join(base, *words[:end])
            yield from (f"{path}.py", f"{path}/__init__.py")
