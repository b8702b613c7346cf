"""What a row of the matrix is: a fault, how it is caused, and what must be true of a job that it strikes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Mapping, NamedTuple

from .launchers import Launcher

if TYPE_CHECKING:
    from .job import Job, Seen

Check = Callable[["Seen"], None]
Act = Callable[["Job"], None]
VICTIM = "algo-2"
"""The host on which a rank fails, unless a fault says otherwise."""
ANY = "*"
"""In the place of a culprit: any host."""


class Truth(NamedTuple):
    """What every host must say of a job in the end.

    ``code``: the job's exit code; None: that of the rank which the reason names, by ``code_of_rank``.
    ``lead``: a regular expression that the reason begins with; ``{rank}`` is the culprit's.
    ``how``: what stands behind the culprit's place, such as "exit code 7"; empty: the reason names no rank.
    ``words``: texts that are in the reason, too.
    ``kind``, ``cause``: class and cause in ``outcome.json``.
    ``status``: of the job description; empty: by ``kind``.
    ``host``: the culprit, or :data:`ANY`; None: the host of the rank that is the victim.
    """

    code: int | None
    lead: str = ""
    how: str = ""
    words: tuple[str, ...] = ()
    kind: str = "user"
    cause: str = "user"
    host: str | None = None
    status: str = ""


BEARS = Truth(0, kind="done", cause="")
"""The job ends as if nothing had happened."""


class Hosts(NamedTuple):
    """What is wrong with the second host, or with what others know of it, before anything starts.

    ``late``: it starts when a file ``late`` is there. ``unnamed``: it can't resolve the leader's name.
    ``output``: who reads its entry point's output: its control plane, nobody, or a reader that has gone.
    ``disk``: whether the job's whole output directory is a disk of 3 MiB.
    """

    late: bool = False
    unnamed: bool = False
    output: str = "read"
    disk: bool = False


class Fault(NamedTuple):
    """One row.

    ``name``: what ``--faults`` calls it. ``about``: the same as a phrase for the documentation.
    ``truth``: what must be true. ``own``: the same where a launcher of the user's own starts the ranks; None: no less.
    ``but``: the same under single launchers, by their names.
    ``body``: what every rank runs, behind ``programs/preamble.py``.
    ``act``: what is done to the job from outside when all ranks work.
    ``options``: of ``muster local``. ``environ``: variables of the job.
    ``wait``: seconds that the fault takes by itself: a grace, a silence.
    ``collective``: whether the ranks meet in a collective of their framework.
    ``survivors``: hosts that report; None: all.
    ``last_line``: whether the victim's last line must be in its host's log.
    ``also``: what else must hold.
    ``without``: launchers for which the row means nothing, each with the reason.
    ``hosts``: what is wrong with hosts from the start.
    ``memory``: MiB that the whole job may use; 0: no limit.
    ``apart``: whether the hosts may give different reasons: they can't hear each other, or all were told to stop.
    ``victim``: the host on which a rank fails.
    ``longest_save``: seconds that a checkpoint may take: after a failure ranks have 30 s.
    ``in_cut``: whether the part of the matrix that runs with all tests may have it; no where it waits for long.
    ``py_spy``: whether the hosts have py-spy.
    """

    name: str
    about: str
    truth: Truth
    own: Truth | None = None
    but: Mapping[str, Truth] = {}
    body: str = ""
    act: Act | None = None
    options: tuple[str, ...] = ()
    environ: Mapping[str, str] = {}
    wait: float = 0.0
    collective: bool = False
    survivors: tuple[str, ...] | None = None
    last_line: bool = True
    also: Check | None = None
    without: Mapping[str, str] = {}
    hosts: Hosts = Hosts()
    memory: int = 0
    apart: bool = False
    victim: str = VICTIM
    longest_save: float = 40.0
    in_cut: bool = True
    py_spy: bool = False

    def expected(self, launcher: str, own: bool) -> Truth:
        """What must be true under ``launcher``."""
        return self.but.get(launcher) or (self.own if own and self.own else self.truth)


class Cell(NamedTuple):
    """One fault under one launcher."""

    fault: Fault
    launcher: Launcher

    @property
    def name(self) -> str:
        return f"{self.fault.name}-{self.launcher.name}"
