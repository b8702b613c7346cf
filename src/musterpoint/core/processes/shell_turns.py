"""Holds shells while their programs end, and gives them the signal then."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from typing import Callable

from musterpoint.base.loop import Loop, Timer
from musterpoint.base.posix import fcntl, termios
from musterpoint.core.processes import process_tree, shell_front
from musterpoint.core.processes.shell_front import Front, Turn, Turns
from musterpoint.core.processes.shell_guard import ShellGuard

BY_ITSELF = 2.0
"""Seconds for who ends by itself when others have ended."""
_FIRST_LOOK, _LAST_LOOK = 0.01, 1.0
"""Seconds to a look at what no event tells of, and at most between two."""
_READ_LOOK, _NO_PROGRESS = 0.005, 0.5
"""Seconds between two looks at a shell that reads, and those after which it doesn't read what is there."""
CUT = "{}: its program was told to end, and the script ends with it: of the lines behind it only traps run"


class Looks:
    """Looks at what no event tells of: in turns, each after twice as long, while ``look`` returns True."""

    def __init__(self, loop: Loop, look: Callable[[], bool]) -> None:
        self._loop, self._look = loop, look
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Looks a little later, unless a look is due anyway."""
        if self._timer is None:
            self._later(_FIRST_LOOK)

    def _later(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, partial(self._now, seconds))

    def _now(self, seconds: float) -> None:
        self._timer = None
        if self._look():
            self._later(min(2 * seconds, _LAST_LOOK))

    def cancel(self) -> None:
        """Ends the looks."""
        if self._timer is not None:
            self._timer.cancel()


class _Later:
    """A process whose turn is when those ``before`` it have ended."""

    def __init__(self, pid: int, signo: int, turn: Turn, before: set[int], pipes: list[int]) -> None:
        self.pid, self.signo, self.turn, self.before = pid, signo, turn, before
        self.pipes = pipes  # for writing, those that it reads: they have no end meanwhile
        self.is_due = self.is_over = False
        self.timer: Timer | Looks | None = None


class ShellTurns:
    """Gives the signal to whole fronts of programs (:mod:`musterpoint.core.processes.shell_front`).

    ``watch`` lets :meth:`ended` be called when a process ends, and returns whether that is possible. ``tell`` sends the
    signal. ``say`` tells people, once, that lines of a script don't run. ``guard`` lets held shells go on if we are
    killed.
    """

    def __init__(
        self,
        loop: Loop,
        watch: Callable[[int], bool],
        tell: Callable[[int, int], None],
        say: Callable[[str], None],
        guard: ShellGuard | None,
    ) -> None:
        self._loop, self._watch, self._tell, self._say, self._guard = loop, watch, tell, say, guard
        self._known: set[int] = set()
        self._held: set[int] = set()
        self._later: dict[int, _Later] = {}
        self._roots: dict[int, int] = {}  # the signals of fronts that have shells which are being stopped
        self._looks = Looks(loop, self._look_again)
        self._has_said = False
        self.last_programs: dict[int, int] = {}
        """By a front's root the program that was started last."""

    def knows(self, pid: int) -> bool:
        """Says if a process was met in a front with shells."""
        return pid in self._known

    def give(self, root: int, signo: int) -> list[int]:
        """Gives ``signo`` to the front of ``root``; returns the pids of those that got it at once."""
        front = shell_front.front_of(root, signo)
        if not front.parents:  # as nearly always, a program
            self._tell(root, signo)
            return [root]
        if not all(map(self._watch, front.members())):  # nothing would tell of their ends: Linux before 5.3
            self._known.update(front.members())
            told = [*front.programs, *front.shells]
            for pid in told:
                self._tell(pid, signo)
            return told
        told = self._take(front, signo)
        if programs := [pid for pid in front.programs if pid in told]:
            self.last_programs[root] = programs[-1]
        if self._held:
            self._roots[root] = signo
            self._looks.begin()
        return told

    def _take(self, front: Front, signo: int, again: bool = False) -> list[int]:
        """Stops the shells of a front, then gives everybody a turn. ``again``: only those that shells had just begun
        when they were stopped.
        """
        met = {*self._known}

        def joins(pid: int) -> bool:
            return pid not in met and (not again or front.parents.get(pid) in self._held)

        while fresh := [pid for pid in front.stoppable() if pid not in self._held and joins(pid)]:
            stopped = [pid for pid in fresh if self._stop(pid)]
            front = shell_front.front_of(front.root, signo)
            if stopped != fresh:
                break  # they have ended, or are another user's
        its = shell_front.turns(front, signo, self._held)
        fresh = [pid for pid in its.turns if joins(pid)]
        self._known.update(fresh)
        for pid, later in self._later.items():
            later.before |= its.before.get(pid, set()).intersection(fresh)
        for pid in fresh:
            self._watch(pid)
            if its.turns[pid] != "now":
                self._wait(pid, signo, its)
        told = [pid for pid in fresh if its.turns[pid] == "now"]
        for pid in told:
            self._tell(pid, signo)
        for pid in reversed(fresh):
            if pid in self._held and (pid not in self._later or self._later[pid].turn not in ("held", "reads")):
                self._go_on(pid)
        self._next()
        return told

    def _wait(self, pid: int, signo: int, its: Turns) -> None:
        """Lets a process wait for its turn."""
        turn, pipes = its.turns[pid], shell_front.open_again(its.pipes.get(pid, ()))
        if turn == "reads" and not pipes:
            turn = "late"  # what it reads will have an end
        self._later[pid] = later = _Later(pid, signo, turn, its.before[pid], pipes)
        if turn == "reads":
            self._let_read(later, 0, False, self._loop.clock())
        elif turn == "continued":
            self._guarded(pid)

    def _guarded(self, pid: int) -> None:
        if self._guard is not None:
            self._guard.hold(pid)

    def _stop(self, pid: int) -> bool:
        self._guarded(pid)
        if not process_tree.send(pid, signal.SIGSTOP):
            return False
        self._held.add(pid)
        return True

    def _go_on(self, pid: int) -> None:
        self._held.discard(pid)
        process_tree.send(pid, signal.SIGCONT)

    def _look_again(self) -> bool:
        """Takes in what shells had begun when they were stopped; until all of them stand still."""
        moving = any(not shell_front.is_stopped(pid) for pid in self._held)  # before the look: what came before counts
        for root, signo in self._roots.items():
            self._take(shell_front.front_of(root, signo), signo, again=True)
        if not moving:
            self._roots.clear()
        return moving

    # -- their turns --

    def ended(self, pid: int) -> None:
        """A process that was watched has ended."""
        self._held.discard(pid)
        if (own := self._later.pop(pid, None)) is not None:
            _forget(own)
        for later in self._later.values():
            later.before.discard(pid)
        self._next()

    def _next(self) -> None:
        for later in [each for each in self._later.values() if not each.before and not each.is_due]:
            later.is_due = True
            if later.turn == "reads":
                continue  # it is looked at
            if later.turn == "late":
                later.timer = self._loop.call_later(BY_ITSELF, partial(self._finish, later))
            elif later.turn == "continued":
                later.timer = looks = Looks(self._loop, partial(_let_go_on, later.pid))
                looks.begin()
            else:
                self._finish(later)

    def _let_read(self, later: _Later, unread: int, was_idle: bool, since: float) -> None:
        """Looks in turns at a shell that reads, as no event tells of it: it runs while there is something to read, and
        is told when it is due and has read all. What it leaves unread isn't for it now.
        """
        pid, found, now = later.pid, sum(map(_unread, later.pipes)), self._loop.clock()
        since = now if found != unread else since
        is_idle = shell_front.is_idle(pid, self._known)
        if pid in self._held:
            if found and not later.is_over:
                self._go_on(pid)
                since = now
            elif later.is_due:
                self._finish(later)
                return
        elif is_idle and ((was_idle and not found) or now - since > _NO_PROGRESS):
            later.is_over = found > 0
            self._stop(pid)
        again = partial(self._let_read, later, found, is_idle, since)
        later.timer = self._loop.call_later(_READ_LOOK, again)

    def _finish(self, later: _Later) -> None:
        self._later.pop(later.pid, None)
        name = process_tree.command_of(later.pid)
        if name and later.turn != "late" and not self._has_said and _has_no_trap(later):
            self._has_said = True
            self._say(CUT.format(name))
        self._tell(later.pid, later.signo)
        if later.pid in self._held:
            self._go_on(later.pid)
        _forget(later)

    def close(self) -> None:
        """Ends all looks; those that are still held are told, and go on."""
        self._looks.cancel()
        for later in [*self._later.values()]:
            if later.pid in self._held:
                self._finish(later)
            _forget(later)
        self._later.clear()
        if self._guard is not None:
            self._guard.close()


def _let_go_on(pid: int) -> bool:
    """Continues who stopped itself with its child, perhaps only now; it is looked at until it has ended."""
    if shell_front.is_stopped(pid):
        process_tree.send(pid, signal.SIGCONT)
    return True


def _has_no_trap(later: _Later) -> bool:
    return not process_tree.catches(later.pid, later.signo) and not process_tree.ignores(later.pid, later.signo)


def _unread(pipe: int) -> int:
    """Counts the bytes that wait in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def _forget(later: _Later) -> None:
    if later.timer is not None:
        later.timer.cancel()
    for pipe in later.pipes:
        os.close(pipe)
    later.pipes = []
