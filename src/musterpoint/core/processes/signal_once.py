"""Sends the signal to end to the programs of ranks, and to what dead launchers left behind: to each of them once.

A second one would end a program in the middle of its checkpoint: handlers put the default back first, or just begin
again. So shells that may pass a signal on, and launchers that have done so, must not do it twice with us.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, Collection

from musterpoint.base.loop import READ, Loop, Timer
from musterpoint.base.records import NamedTuple
from musterpoint.core.processes import tree

HANDLED = 2.0
"""Seconds that the children of a launcher get which has handled the signal, and may have passed it on; and that a shell
gets for its cleanup which goes on by itself."""
_FIRST_TURN, _LAST_TURN = 0.01, 1.0
"""Seconds between two looks at copies of shells."""


class _Trapping(NamedTuple):
    """A shell with a trap, the processes before whose ends it isn't signalled (programs, and shells with traps below
    it), and those that are known below it.

    held: it is stopped until then.
    cleans: it reads the programs' output, so it goes on at their end, by itself: perhaps with its cleanup.
    """

    shell: int
    before: set[int]
    seen: frozenset[int]
    signo: int
    held: bool
    cleans: bool


class SignalOnce:
    """Signals each process once, and waits for those that a dead parent left to us.

    A shell with a trap is signalled when the programs below it have ended: its ``kill`` finds nobody then, and its
    cleanup comes after the checkpoint. Until then it is stopped (SIGSTOP): it would go on at the program's end, and
    could be through before the signal comes, where a signal to its whole group had waited for it. One that reads the
    programs' output can't be stopped: it gets time to end by itself, since a signal then would cut its cleanup off.
    ``on_end`` is called when a signalled process has ended, or when an orphan is due; call :meth:`signal_orphans` again
    then.

    A copy of a shell that is about to become a program has the shell's handlers until it drops them, and a signal that
    comes then is lost: the program gets it. No event tells of an exec, so such copies are looked at in turns.
    """

    def __init__(self, loop: Loop, on_end: Callable[[], None] = lambda: None) -> None:
        self._loop, self.on_end = loop, on_end
        self._signalled: set[int] = set()
        self._ignoring: set[int] = set()
        self._handled = False
        self._orphans: set[int] = set()
        self._met: set[int] = set()
        self._beside: set[int] = set()  # shells and programs that stood beside others below a rank's shell
        self._watched: dict[int, int] = {}
        self._trapping: list[_Trapping] = []
        self._copies: set[int] = set()
        self._turn: Timer | None = None
        self._due: Timer | None = None
        self._late: list[Timer] = []

    def send(self, pid: int, signo: int, shells: bool = False) -> None:
        """Sends ``signo`` to the programs that ``pid`` runs, and later to the shells before them that catch it.

        ``shells``: to the others, too.
        """
        targets = tree.stop_targets(pid, signo)
        self._beside |= targets.seen
        running = [program for program in targets.programs if not tree.ignores(program, signo)]
        # without pidfds nothing tells of their ends here
        told_of_ends = bool(targets.trapping) and all(map(self._watch, (*running, *targets.trapping)))
        for shell in targets.trapping:
            before: set[int] = set()
            if told_of_ends:
                before = {*running, *tree.among_those_below(shell, targets.trapping, targets.seen)}
            waits = bool(running) and told_of_ends
            held = waits and tree.may_be_held(shell, running) and tree.send(shell, signal.SIGSTOP)
            cleans = waits and not held and tree.reads(shell, running)
            self._trapping.append(_Trapping(shell, before, targets.seen, signo, held, cleans))
        for program in targets.programs:
            self._send(program, signo)
        for other in targets.seen - set(targets.trapping) if shells else ():
            self._send(other, signo)
        self._tell_shells()

    def has_signalled(self, pid: int) -> bool:
        """Whether the process with this pid has had its signal."""
        return pid in self._signalled

    @property
    def has_handled(self) -> bool:
        """Whether a process that got its signal has a handler, and so may have passed it on."""
        return self._handled

    def _send(self, pid: int, signo: int) -> None:
        if pid in self._signalled:
            return
        self._signalled.add(pid)
        if tree.ignores(pid, signo):
            self._ignoring.add(pid)
        self._handled |= tree.catches(pid, signo)
        if _is_copy_that_catches(pid, signo):
            self._copies.add(pid)
        tree.send(pid, signo)
        if self._copies and self._turn is None:
            self._look_again(signo, _FIRST_TURN)

    def _tell_shells(self) -> None:
        """Signals the shells whose programs have ended, and the programs that those have started since."""
        for waiting in [each for each in self._trapping if not each.before]:
            self._trapping.remove(waiting)
            if waiting.cleans:
                self._let_clean(waiting)
                continue
            late = tree.stop_targets(waiting.shell, waiting.signo).seen - waiting.seen
            self._send(waiting.shell, waiting.signo)
            if waiting.held:
                tree.send(waiting.shell, signal.SIGCONT)
            for pid in late:
                self._send(pid, waiting.signo)

    def _let_clean(self, waiting: _Trapping) -> None:
        """Signals a shell that goes on by itself when it has ended, which is no matter, or is late."""
        alone = waiting._replace(before={waiting.shell}, cleans=False)
        self._trapping.append(alone)
        self._watch(waiting.shell)

        def is_late() -> None:
            alone.before.clear()
            self._tell_shells()

        self._late.append(self._loop.call_later(HANDLED, is_late))

    def _look_again(self, signo: int, seconds: float) -> None:
        """Signals copies of shells that have become programs, and looks again later while there are others."""
        for pid in tuple(self._copies):
            stat = tree.read_stat(pid)
            if stat is None or not stat.copy:
                self._copies.discard(pid)
                if stat is not None and not tree.ignores(pid, signo):
                    tree.send(pid, signo)
        again = lambda: self._look_again(signo, min(2 * seconds, _LAST_TURN))  # noqa: E731
        self._turn = self._loop.call_later(seconds, again) if self._copies else None

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
        for orphan in tree.own_children():
            if orphan.state in "ZX" or orphan.pid in spared or orphan.pid in self._met:
                continue
            known = orphan.pid in self._signalled  # `timeout` ignores the signal from when it has passed it on
            if orphan.pid in self._ignoring or (not known and tree.ignores(orphan.pid, signo)):
                continue
            if not readers and tree.reads_a_pipe(orphan.pid):
                continue
            if known:
                self._watch_orphan(orphan.pid)
            elif wait > 0 and orphan.pid not in self._beside:
                early = True
            else:
                self._met.add(orphan.pid)
                for pid in tree.stop_targets(orphan.pid, signo).programs:
                    if not tree.ignores(pid, signo):
                        self._watch_orphan(pid)
                self.send(orphan.pid, signo)
        if early and self._due is None:
            self._due = self._loop.call_later(wait, self._orphans_are_due)
        return early or any(stat is not None and stat.state not in "ZX" for stat in map(tree.read_stat, self._orphans))

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
        self._forget(pid)
        self._orphans.discard(pid)
        self._trapping = [each for each in self._trapping if each.shell != pid]
        for waiting in self._trapping:
            waiting.before.discard(pid)
        self._tell_shells()
        self.on_end()

    def _forget(self, pid: int) -> None:
        descriptor = self._watched.pop(pid, -1)
        if descriptor >= 0:
            self._loop.forget(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        for timer in (self._turn, self._due, *self._late):
            if timer is not None:
                timer.cancel()
        for pid in list(self._watched):
            self._forget(pid)
        self._orphans.clear()
        for waiting in self._trapping:
            if waiting.held:
                tree.send(waiting.shell, signal.SIGCONT)
        self._trapping.clear()


def _is_copy_that_catches(pid: int, signo: int) -> bool:
    stat = tree.read_stat(pid)
    return stat is not None and stat.copy and tree.catches(pid, signo)
