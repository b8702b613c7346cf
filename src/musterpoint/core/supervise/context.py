"""What the supervisor and its parts work with."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Sequence

from musterpoint.base.loop import Loop
from musterpoint.base.records import NamedTuple
from musterpoint.core.diagnosis import DiagnosisContext
from musterpoint.core.processes.process import oom_kills
from musterpoint.core.processes.pump import Pump
from musterpoint.core.processes.sidecars import Sidecars


class OtherEntryPoints:
    """The other entry points of this host, each for a rank of its own; by itself, none."""

    @property
    def outlets(self) -> Mapping[int, tuple[int, int]]:
        """The stdout and stderr of each, by its global rank."""
        return {}

    def token_for(self, purpose: str) -> str:
        """A token that this host's processes may know: another one for each ``purpose``; empty where there is none."""
        return ""

    def gather(self, seconds: float) -> None:
        """Waits for all of them, at most so long.

        Raises:
            MusterError: one isn't here, or doesn't fit.
        """

    def start(self, argv: Sequence[str], given: Mapping[str, str], gone: Sequence[str]) -> None:
        """Lets each start ``argv``, with the variables ``given`` in place of its own, and without those ``gone``."""

    def watch(self, on_lost: Callable[[int, int], None], on_ended: Callable[[int, int, int], None]) -> None:
        """From now on ``on_lost`` gets the rank and local rank of each that has ended; ``on_ended`` those of each whose
        process for the rank has, and its status.
        """

    def kill(self) -> None:
        """Kills what they have started."""

    def end(self, code: int) -> None:
        """Ends them with ``code``."""


class LedByAnother(Exception):
    """Another entry point of this host leads, and has run the job; the argument is the exit code of that."""


class RankTerminal(NamedTuple):
    """The terminal that ``rank`` gets as stdin, stdout and stderr (``muster local --debug``); ``path`` is its file."""

    rank: int
    path: str

    @classmethod
    def from_variable(cls, text: str) -> RankTerminal | None:
        """``RANK:PATH`` of the variable :data:`musterpoint.base.settings.TERMINAL`; None for anything else."""
        rank, _, path = text.partition(":")
        return cls(int(rank), path) if rank.isdecimal() and path else None

    def open(self) -> int:
        """A descriptor of it, which doesn't become our own terminal."""
        return os.open(self.path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)


class SupervisorContext(NamedTuple):
    """What the supervisor and its parts work with.

    ``sidecars`` are children that are no part of the job: they live on when it has ended. ``say`` prints a sentence of
    ours. ``record`` adds an event and its facts to the timeline. ``host`` is this host's name, ``mask`` hides known
    secrets in what others wrote. ``oom_kills`` counts the kernel's OOM kills in this container. ``others`` are this
    host's other entry points. ``keep`` writes a text or bytes to a file of that name, for people, and returns its path
    (empty: the job has no place for it); it raises OSError. ``context_of_diagnosis``: only failures need it; None: it
    knows host and secrets alone. ``terminal``: of one rank, in the place of its pipes. ``token``: the control socket's,
    empty for a new one. ``lend``: what a launch of ours in the job's program gets, by its number and the pids of those
    that run, or ``refused`` with the reason; None: nothing is lent.
    """

    loop: Loop
    pump: Pump
    sidecars: Sidecars
    say: Callable[[str], None]
    record: Callable[..., None]
    host: str
    mask: Callable[[str], str] = str
    oom_kills: Callable[[], int] = oom_kills
    others: OtherEntryPoints = OtherEntryPoints()
    keep: Callable[[str, str | bytes], str] = lambda _name, _content: ""
    context_of_diagnosis: Callable[[], DiagnosisContext] | None = None
    terminal: RankTerminal | None = None
    token: str = ""
    lend: Callable[[int, tuple[int, ...]], Mapping[str, Any]] | None = None

    @property
    def diagnosis(self) -> DiagnosisContext:
        """The host, files and secrets for a diagnosis on this host."""
        made = self.context_of_diagnosis
        return made() if made is not None else DiagnosisContext(self.host, self.mask)
