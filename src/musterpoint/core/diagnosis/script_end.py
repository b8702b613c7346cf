"""The end of a script in a rank's place: its Pythons, what it did about their codes, and what it hid. Pure."""

from __future__ import annotations

import re

from musterpoint.base.records import NamedTuple

_HANDLES = re.compile(r"\|\||&&|\bset \+e\b|^\s*(?:if|while|until|!)\s|PIPESTATUS")
"""What a line does with the code of a program."""
_ASKS = re.compile(r"\$\?")
_PIPE = re.compile(r"(?<!\|)\|(?![|&]?\|)")
_KILLS = re.compile(r"\bp?kill(?:all)?\b")
_COMMENT = re.compile(r"\s*(?:#(?!!)|$)")
_GOES_ON = re.compile(r";|&(?![\d>])|\btrap\b")
_STOPS = re.compile(r"\s*set\s+(?:-\w*e|-o\s+errexit)|#!.*\s-\w*e")
_MEANT = frozenset({-13, 141, 120, -15, 143, -2, 130, -1, 129})
"""Ends of a program whose reader had enough (120: a Python that couldn't flush its stdout), or that was told to end."""


class ProgramEnd(NamedTuple):
    """A Python that a rank's script started, in the order of their starts.

    name: its command line, for people.
    status: as ``os.waitstatus_to_exitcode`` gives it; None: it runs, or nobody could see it.
    beside: pids of programs that ran while it ran.
    error: the first line of the exception that ended it; empty: it told of none.
    runs: whether it still runs.
    """

    pid: int
    name: str
    status: int | None = None
    beside: frozenset[int] = frozenset()
    error: str = ""
    runs: bool = False

    @property
    def failed(self) -> bool:
        """Whether it ended with an error that matters to the script."""
        if self.runs or self.error.startswith("BrokenPipeError"):
            return False
        return bool(self.error) if self.status is None else self.status not in (0, *_MEANT)


class ScriptEnd(NamedTuple):
    """The script in a rank's place: its Pythons, in the order of their starts, and its text."""

    programs: tuple[ProgramEnd, ...] = ()
    text: str = ""

    @property
    def hidden(self) -> ProgramEnd | None:
        """The failed one that the script hid: it did nothing about the code, and no Python went well afterwards."""
        for at, one in enumerate(self.programs):
            later = [other for other in self.programs[at + 1 :] if other.pid not in one.beside]
            helper = len(one.beside) > 1 and _KILLS.search(self.text)  # such as a server that is ended when all is done
            fails = one.failed and not helper and all(other.failed for other in later)
            if fails and not handles_code(self.text, one.name):
                return one
        return None

    def survived(self, status: int | None) -> list[str]:
        """The exceptions before its last Python, where that gave it ``status`` and raised none."""
        last = self.programs[-1]
        others = self.programs[:-1] if last.status == status and not last.error else ()
        return [one.error for one in others if one.error and one.pid not in last.beside]

    def ended_by(self, pid: int, status: int | None) -> bool:
        """Tells whether its last Python, ``pid``, surely gave it ``status``: nothing follows, or the shell stops."""
        last = self.programs[-1]
        lines, its = _naming(self.text, last.name)
        if last.pid != pid or not its or last.status not in (None, status) or handles_code(self.text, last.name):
            return False
        line, stops = lines[its[-1]], any(map(_STOPS.match, lines[: its[-1]])) and "set +e" not in self.text
        stops &= not any(one.failed for one in self.programs[:-1])  # at which it would have stopped
        waits = not _GOES_ON.search(line) and (not _PIPE.search(line) or "pipefail" in self.text)
        return waits and (stops or line is lines[-1])


def handles_code(script: str, program: str) -> bool:
    """Whether the lines of ``script`` that name ``program`` (where none does: any) deal with its code."""
    lines, its = _naming(script, program)
    if not its:
        return any(map(_HANDLES.search, lines))
    asked = [lines[at] for at in its] + [line for at in its for line in lines[at + 1 : at + 2] if _ASKS.search(line)]
    piped = any(_PIPE.search(lines[at]) for at in its)  # $? is then the code of the pipe's last program
    return any(_HANDLES.search(line) or (_ASKS.search(line) and not piped) for line in asked)


def _naming(script: str, program: str) -> tuple[list[str], list[int]]:
    """The lines of ``script`` without comments, and the places of those that name ``program``."""
    lines = [line for line in script.replace("\\\n", " ").splitlines() if not _COMMENT.match(line)]
    words = [word for word in program.split()[1:] if not word.startswith("-")]
    return lines, [at for at, line in enumerate(lines) if words and words[0].rpartition("/")[2] in line]
