"""A launcher as one object: all that differs by launcher. Each has a file of its own, ``launchers/NAME.py``.

:mod:`musterpoint.core.launch.launchers` finds the object by its name; no other code compares the name.
"""

import re
import sys
from typing import TYPE_CHECKING, Any, Callable, Collection, Iterator, Literal, Mapping

from musterpoint.base.errors import LauncherError, MusterError, UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.job.model import Job, Paths
from musterpoint.core.launch.launch_plan import LaunchPlan

if TYPE_CHECKING:
    from musterpoint.base.probe import Ask

MPIRUN = "mpirun"
"""Stands among modules for the question whether this host has an MPI."""

Starts = Literal["us", "foreign", "host", "leader"]
"""Who starts ranks, and how many: a rank per slot, started by this host's supervisor or by a foreign program that we
start; the program once on every host; the program once, on the leader.
"""


class Asked(NamedTuple):
    """Why a job of some distribution gets a launcher."""

    reason: str
    """For people."""
    needs: str = ""
    """A module (or :data:`MPIRUN`) without which another launcher is taken, if there is one for this distribution."""
    instead: bool = False
    """Whether it is only taken where the first choice for this distribution lacks something."""


class Hidden(NamedTuple):
    """Variables in a host's environment that no process of the plan gets."""

    names: tuple[str, ...]
    """Their names; one that ends in ``*`` stands for all that begin so."""
    reason: str
    """For people."""
    but: tuple[str, ...] = ()
    """How the names of those begin that are kept nevertheless."""

    def of(self, environ: Collection[str]) -> Iterator[str]:
        """Those of the names in ``environ``."""
        for own in self.names:
            if own in environ:
                yield own
            elif own.endswith("*"):
                begins = own[:-1]
                yield from (name for name in environ if name.startswith(begins) and not name.startswith(self.but))


PYTHONPATH = Hidden(("PYTHONPATH",), "a module in it, such as a queue.py, would break the launcher")
"""For foreign launchers; the rank stub restores it for the ranks."""
MISLEADING = "it numbers or names other processes than this job's, and would mislead them"


class Question(NamedTuple):
    """What a launcher is asked about this host before the roll call."""

    job: Job
    settings: Settings
    environ: Mapping[str, str]
    interpreter: str
    """The program's Python."""
    reason: str = ""
    """Why the launcher was chosen; empty: it isn't yet."""
    ask: "Ask | None" = None
    """Asks a program of this host, and is interrupted by a stop."""
    lacks: "Lacks | None" = None
    """Is told of what this host lacks to answer; None: the error is raised."""


class Wanted(NamedTuple):
    """What is to be run, where the program may be a launcher's own command line."""

    job: Job
    """The job, with the program that the line starts."""
    settings: Settings
    """The options, with those of the line."""
    launcher: str = ""
    """The launcher whose line it is; empty: it is none."""
    reason: str = ""
    """Why it is that one, for people."""
    known: object = None
    """What :attr:`Launcher.survey` would answer."""
    assumed: str = ""
    """What differs from the plan of a host that has the launcher, which this one lacks; empty: it has it."""
    python: str = ""
    """The program's Python; empty: musterpoint's own."""

    @property
    def interpreter(self) -> str:
        """The path of the program's Python."""
        return self.python or sys.executable


Lacks = Callable[[MusterError], None]
"""Is told of what the job needs and this host lacks, by the error that a launch ends with; returns where only a plan is
made."""


def refuse(error: MusterError) -> None:
    """The :data:`Lacks` of what starts a job."""
    raise error


class Assumed(NamedTuple):
    """What a plan is made with where this host lacks what the launcher needs to know."""

    known: object
    """Stands for the answer of :attr:`Launcher.survey`."""
    note: str
    """What differs from the plan of a host that has it, for people."""


def asks_for_ssh(launcher: "Launcher", settings: Settings) -> str:
    """The option that asks for ssh between the hosts, for people; empty: none does."""
    if launcher.ssh:
        return f"--launcher {launcher.name}"
    return "--ssh on" if settings.ssh == "on" else ""


class Launcher(NamedTuple):
    """What starts the ranks of a job, and what the rest of musterpoint has to know of it."""

    name: str
    """As in ``--launcher NAME``."""
    summary: str
    """What it starts, in one line."""
    starts: Starts
    """Who starts its ranks."""
    plan: Callable[[Any], LaunchPlan]
    """This host's plan, from :class:`musterpoint.core.launch.inputs.LaunchInputs`. It does no I/O, and raises a
    MusterError where the job can't be started."""

    # what it is for
    asked_by: Mapping[str, Asked] = {}
    """The kinds of distribution that ask for it (:data:`musterpoint.core.job.model.DistributionKind`)."""
    typed: Callable[[Question], Wanted | None] | None = None
    """Reads a job whose program is this launcher's own command line; None: it isn't, or stands as it is."""
    instead_of: Mapping[str, str] = {}
    """Commands that people put before their scripts, each with the arguments of `muster local` that do the same."""
    independent: bool = False
    """Whether the hosts' programs are on their own: there is no common world, and a lost host ends no other."""
    leads: bool = False
    """Its first host leads a job with roles: it asks others to start programs, or is their head."""
    takes_started: bool = False
    """Whether its ranks may be processes that the platform has started. It also gives each rank the numbers that the
    platform would give it."""

    talks_grpc: bool = False
    """Whether the servers on its hosts speak gRPC with each other, which goes through a proxy where there is one."""

    # what it needs
    needs: str = ""
    """The module that the program's Python must have."""
    uses: tuple[str, ...] = ()
    """Modules that its plan asks for, and does without."""
    survey: Callable[[Question], object] | None = None
    """What its plan must know of this host beside devices and modules; the answer is ``LaunchInputs.known``."""
    assumed: Callable[[], Assumed] | None = None
    """What a plan is made with where :attr:`survey` raises a LauncherError, or :attr:`needs` is missing. None: nothing
    that the survey asks can be missing."""
    ssh: bool = False
    """Whether hosts always get ssh between them (others: with ``--ssh on``)."""
    needs_temporary: bool = False
    """Whether it can't start without a directory for temporary files."""
    needs_place: bool = False
    """Whether a host must know its place before the roll call."""

    # slots and ports
    slots: Callable[[str, Job, Settings, Mapping[str, str]], int] | None = None
    """How many ranks a host (by its name) has, where that is neither one for each slot nor what ``starts`` says."""
    servers: tuple[str, ...] = ()
    """Modules whose ranks meet at a server on the leader, in the order of its ports."""
    ports: Callable[[Job, Settings], tuple[int, ...]] | None = None
    """The ports of its own servers on this host, each the preferred number; 0 stands for any free one."""
    fixed_ports: Callable[[Settings], str] | None = None
    """The option by which only the preferred ones will do; empty: any free ones will."""
    first_port: int = 0
    """The first of the preferred ones where no option says; 0: the platform's for TensorFlow."""

    # what its ranks get
    reads: tuple[str, ...] = ()
    """Options, by field, that only some launchers read, and this one does."""
    hides: tuple[Hidden, ...] = ()
    """Variables of others that would mislead it or its ranks."""
    leaves_out: tuple[str, ...] = ()
    """Variables that other launchers set for ranks and this one doesn't."""
    local_rank: Literal["variable", "argument"] = "variable"
    """Whether programs get ``--local_rank=N`` where ``--local-rank`` doesn't say."""
    before_script: Callable[[Any], int] | None = None
    """How many words of ours its plan (of ``LaunchInputs``) puts between Python and the script's or module's name."""
    startup: tuple[str, ...] = ()
    """Tasks that run when a rank's Python starts (:mod:`musterpoint.embedded.startup`)."""

    # what its ranks print
    chatter: re.Pattern[bytes] | None = None
    """Whole lines of the framework's own that come again and again while nothing goes on; they end no silence."""

    # when the job is over
    afterwards: Callable[[Paths], str] | None = None
    """A warning, or empty, for a job that ended well; it is asked on the leader."""

    @property
    def once(self) -> bool:
        """Whether it starts the program at most once per host, whatever devices there are."""
        return self.starts in ("host", "leader")

    @property
    def modules(self) -> tuple[str, ...]:
        """The Python modules that its plan depends on."""
        return (*((self.needs,) if self.needs else ()), *self.uses)

    def hidden(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The variables of ``environ`` that its processes don't get."""
        found = (name for hidden in self.hides for name in hidden.of(environ))
        return tuple(dict.fromkeys(found))


def wanted_ports(launcher: Launcher, modules: frozenset[str], settings: Settings, job: Job) -> tuple[int, ...]:
    """The ports this host should offer in the roll call, each the preferred number; 0 stands for any free one.

    Raises:
        UsageError: a parameter-server job has more hosts than roles.
    """
    if launcher.ports is not None:
        return launcher.ports(job, settings)
    return (0,) * len(_servers_of(launcher, modules))


def _servers_of(launcher: Launcher, modules: frozenset[str]) -> tuple[str, ...]:
    """Modules, of those that are here, whose ranks meet at a server on the leader."""
    return tuple(name for name in launcher.servers if name in modules)


def option_for_ports(launcher: Launcher, settings: Settings) -> str:
    """The option that allows only the wanted ports; empty where any free ones will do."""
    return launcher.fixed_ports(settings) if launcher.fixed_ports is not None else ""


def check_unnamed(job: Job, options: Settings, launcher: Launcher) -> None:
    """Raises a UsageError for what can't be had where the platform doesn't name the hosts."""
    unnamed = job.unnamed
    if unnamed is None:
        return
    if error := unnamed.misplaced:
        raise error
    rank = unnamed.sources.node_rank
    if unnamed.node_rank is None and launcher.needs_place:
        raise UsageError(
            f"launcher {launcher.name}: a host's role follows from its place, which no host knows before the roll "
            f"call: give every host its own {rank}"
        )
    if options.rollcall_check == "strict" and not options.secret:
        raise UsageError(
            "--rollcall-check strict: the platform names no hosts, so there are no addresses to compare callers with: "
            "set MUSTER_SECRET, the same on all hosts, which proves more"
        )


def known_of(launcher: Launcher, question: Question, usable: bool, lacks: Lacks) -> tuple[object, tuple[str, ...]]:
    """What the launcher has to know of this host; or what stands for it in a plan, and how that differs."""
    assert launcher.survey is not None
    if launcher.assumed is None:
        return launcher.survey(question), ()
    try:
        if usable:
            return launcher.survey(question), ()
    except LauncherError as error:
        lacks(error)
    known, note = launcher.assumed()
    return known, (note,)
