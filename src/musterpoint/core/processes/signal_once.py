"""Sends the signal to end to the programs of ranks, and to what dead launchers left behind: to each of them once.

A second one would end a program in the middle of its checkpoint: handlers put the default back first, or just begin
again. So shells that may pass a signal on, and launchers that have done so, must not do it twice with us.
"""

from __future__ import annotations

import os
from typing import Callable, Collection

from musterpoint.base.loop import READ, Loop, Timer
from musterpoint.core.processes import process_tree, shell_front
from musterpoint.core.processes.shell_guard import ShellGuard
from musterpoint.core.processes.shell_turns import Looks, ShellTurns

HANDLED = 2.0
"""Seconds that the children of a launcher get which has handled the signal, and may have passed it on."""


class SignalOnce:
    """Signals each process once, and waits for those that a dead parent left to us.

    Programs get the signal at once, the shells in front of them when those have ended (:class:`ShellTurns`); ``say``
    and ``guard`` are for that. ``on_end`` is called when a signalled process has ended, or when an orphan is due; call
    :meth:`signal_orphans` again then.

    A copy of a shell that is about to become a program has the shell's handlers until it drops them, and a signal that
    comes then is lost: the program gets it. No event tells of an exec, so such copies are looked at in turns.
    """

    def __init__(
        self,
        loop: Loop,
        on_end: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda _text: None,
        guard: ShellGuard | None = None,
    ) -> None:
        self._loop, self.on_end = loop, on_end
        self._shells = ShellTurns(loop, self._watch, self._send, say, guard)
        self._signalled: dict[int, int] = {}
        self._ignoring: set[int] = set()
        self._handled = False
        self._orphans: set[int] = set()
        self._met: set[int] = set()
        self._watched: dict[int, int] = {}
        self._statuses: dict[int, int] = {}
        self._copies: dict[int, int] = {}  # with their signals
        self._looks = Looks(loop, self._look_at_copies)
        self._due: Timer | None = None

    def send(self, pid: int, signo: int) -> list[int]:
        """Sends ``signo`` to the programs that ``pid`` runs, and to the shells before them when it is their turn.

        Returns the pids of those that got it at once.
        """
        return self._shells.give(pid, signo)

    def has_signalled(self, pid: int) -> bool:
        """Whether the process with this pid has had its signal."""
        return pid in self._signalled

    @property
    def has_handled(self) -> bool:
        """Whether a process that got its signal has a handler, and so may have passed it on."""
        return self._handled

    def status_behind(self, pid: int, status: int | None) -> int | None:
        """Returns the status of ``pid``, which ended with ``status``.

        It is its last program's, where ``pid`` is a shell that the signal ended before it could pass that on.
        """
        signo = self._signalled.get(pid, 0)
        if status not in (-signo, 128 + signo):
            return status
        return self._statuses.get(self._shells.last_programs.get(pid, 0), status)

    def _send(self, pid: int, signo: int) -> None:
        if pid in self._signalled:
            return
        self._signalled[pid] = signo
        if process_tree.ignores(pid, signo):
            self._ignoring.add(pid)
        self._handled |= process_tree.catches(pid, signo)
        if _is_copy_that_catches(pid, signo):
            self._copies[pid] = signo
            self._looks.begin()
        process_tree.send(pid, signo)

    def _look_at_copies(self) -> bool:
        """Signals copies of shells that have become programs; returns whether there are others."""
        for pid, signo in [*self._copies.items()]:
            stat = process_tree.read_stat(pid)
            if stat is None or not stat.copy:
                del self._copies[pid]
                if stat is not None and not process_tree.ignores(pid, signo):
                    process_tree.send(pid, signo)
        return bool(self._copies)

    # -- orphans --

    def signal_orphans(self, spared: Collection[int], signo: int, since: float, readers: bool = True) -> bool:
        """Sends ``signo`` once to each child that isn't in ``spared``; returns whether one of them still runs.

        They became our children when their parent ended, at ``since`` (the loop's clock): a launcher of the user's own
        that dies of the signal leaves its ranks in the middle of their checkpoints. A process that ignores it isn't
        waited for; nor is what an orphaned shell starts next, or a loop in the background would hold up the end.
        ``readers``: also to those that read a pipe; they may be carrying the output.
        """
        wait = since + HANDLED - self._loop.clock() if self._handled else 0.0
        early = False
        for orphan in process_tree.own_children():
            if orphan.state in "ZX" or orphan.pid in spared or orphan.pid in self._met:
                continue
            known = orphan.pid in self._signalled  # `timeout` ignores the signal from when it has passed it on
            if orphan.pid in self._ignoring or (not known and process_tree.ignores(orphan.pid, signo)):
                continue
            if not readers and process_tree.reads_a_pipe(orphan.pid):
                continue
            if known:
                self._watch_orphan(orphan.pid)
            elif wait > 0 and not self._shells.knows(orphan.pid):
                early = True
            else:
                self._met.add(orphan.pid)
                for pid in self.send(orphan.pid, signo):
                    if pid not in self._ignoring:
                        self._watch_orphan(pid)
        if early and self._due is None:
            self._due = self._loop.call_later(wait, self._orphans_are_due)
        stats = map(process_tree.read_stat, self._orphans)
        return early or any(stat is not None and stat.state not in "ZX" for stat in stats)

    def _orphans_are_due(self) -> None:
        self._due = None
        self.on_end()

    def _watch_orphan(self, pid: int) -> None:
        self._orphans.add(pid)
        self._watch(pid)

    # -- ends --

    def _watch(self, pid: int) -> bool:
        """Watches a process by its pidfd (Linux 5.3): a shell's child isn't ours, so its end sends no SIGCHLD.

        Returns whether that is possible; a process that has ended already is as good.
        """
        if pid in self._watched:
            return True
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._loop.post(lambda: self._ended(pid))
            return True
        except (AttributeError, OSError):
            return False
        self._watched[pid] = descriptor
        self._loop.watch(descriptor, READ, lambda _ready: self._ended(pid))
        return True

    def _ended(self, pid: int) -> None:
        if (status := self._status_of(pid)) is not None:
            self._statuses[pid] = status
        self._forget(pid)
        self._orphans.discard(pid)
        self._shells.ended(pid)
        self.on_end()

    def _status_of(self, pid: int) -> int | None:
        """Reads how a process ended, taken by its parent or not; a shell that is held doesn't take it."""
        told = process_tree.exit_status(self._watched[pid]) if pid in self._watched else None
        stat = process_tree.read_stat(pid)
        if told is None and stat is not None and stat.state == "Z":
            return os.waitstatus_to_exitcode(stat.status)
        return told

    def _forget(self, pid: int) -> None:
        descriptor = self._watched.pop(pid, -1)
        if descriptor >= 0:
            self._loop.forget(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        self._looks.cancel()
        if self._due is not None:
            self._due.cancel()
        for pid in list(self._watched):
            self._forget(pid)
        self._orphans.clear()
        self._shells.close()


def _is_copy_that_catches(pid: int, signo: int) -> bool:
    stat = process_tree.read_stat(pid)
    return stat is not None and stat.copy and process_tree.catches(pid, signo)


def pass_on(pid: int, signo: int) -> None:
    """Sends ``signo``, which ends nothing, to those whom it is for below ``pid``."""
    for hearer in shell_front.hearers(pid, signo):
        process_tree.send(hearer, signo)
