"""A platform as one object: everything that differs between platforms. Nothing else asks which platform it is.

Each has a file in ``platforms/`` with its object, ``PLATFORM``; what every field's default says is what most do.
"""

from typing import Callable, Literal, Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import TENSORFLOW_PORT, Settings
from musterpoint.core.job.model import Job, Paths

Variables = Mapping[str, str]
EXPECTED = ("what scripts expect on this platform", "as SageMaker's toolkit says it, for scripts that were made for it")
"""The reasons of the variables that are exported for scripts: on platforms whose scripts expect them, and elsewhere."""
StartedBy = Literal["once", "ranks", "launcher"]
"""Who starts a host's programs: we start one, or one per slot; or a launcher starts one per slot."""


class RankPlace(NamedTuple):
    """The place of a rank that we start; ``slots`` are those of every host in the group, in rank order."""

    rank: int
    local_rank: int
    node_rank: int
    slots: tuple[int, ...]


class Numbers(NamedTuple):
    """The variables with which a platform numbers the processes that it starts: it has counted one per host.

    Scripts and libraries take such a number for their rank.
    """

    # those in this environment that don't fit the host's programs, which then don't get them
    stale: Callable[[Variables, StartedBy], tuple[str, ...]]
    # name, value and reason of each that a rank gets, as if the platform had started one process per slot
    of_rank: Callable[[Variables, RankPlace], tuple[tuple[str, str, str], ...]]


class DocsRow(NamedTuple):
    """The platform's row in the tables of docs/platforms.md."""

    page: str = ""  # the page or heading that its name links to
    reads: str = ""  # what is read
    start: str = "`muster launch …`"  # how musterpoint is started there
    differs: str = ""
    writes: str = "`muster-jobs/<job>` in the working directory"  # below which directories are made for programs
    reports: str = ""  # where failure reasons and other reports go


class Sample(NamedTuple):
    """The names and variables that a platform gives hosts, for ``muster local``.

    All are templates of ``str.format`` over ``rank``, ``number`` (the rank counted from 1), ``hosts`` (how many there
    are), ``job``, ``host`` (the own name), ``pod`` (that before its first dot), ``leader`` (the first host's name),
    and the lists ``names`` and ``addresses``: ``{names:;}`` has a semicolon between each two.
    """

    names: str = "node{number}"  # of the hosts; by ``rank`` or ``number``
    variables: Mapping[str, str] = {}
    of_leader: Mapping[str, str] = {}  # of the first host alone
    of_workers: Mapping[str, str] = {}  # of all others
    leader_name: str = ""  # of the first host, where ``names`` is the workers' form


def never(_environ: Variables, _base: str) -> bool:
    """Not recognised by anything: used where it is named only."""
    return False


def no_channels(name: str, _has: str, _local: bool) -> str:
    """The hint about a missing input channel where the platform has none."""
    return f"there are no channels on this platform: set SM_CHANNEL_{name.upper()} to a directory with the data"


class Platform(NamedTuple):
    """What is special about one platform."""

    name: str
    # for people: how the platform spells itself
    title: str
    # the job that variables, and files below the directory `base`, describe; without a program unless `own_program`
    # is set. A UsageError names the variable or file, its value, and what was expected
    read: Callable[[Variables, Settings, str], Job]
    # how the variables begin that it gives its processes, for `muster plan`
    variables: tuple[str, ...] = ()
    # of these, how the names begin that are all read, whatever follows
    families: tuple[str, ...] = ()
    # whether this process runs there, by variables, or by files below `base`
    found: Callable[[Variables, str], bool] = never
    # the same by weaker signs, asked when no platform was found
    presumed: Callable[[Variables, str], bool] = never
    # whether somebody else than the caller describes the job there
    describes: bool = True
    # completes the job by the program that the platform names; None: it names none
    own_program: Callable[[Job, Variables], Job] | None = None

    # where directories for what the program leaves are made: an absolute path, or one in the working directory; empty:
    # muster-jobs/JOB there, with the reports. None: the platform has made its own
    folder: str | None = ""
    # the variables of the host at a place, by those of another one, for a plan; None: they are alike
    environ_at: Callable[[Mapping[str, str], int], Mapping[str, str]] | None = None
    # the directories of the host at another place, where hosts have different ones
    paths_at: Callable[[Paths, int], Paths] | None = None

    # the job where the user joins several of the platform's to one: without what would differ between its hosts
    joined: Callable[[Job, Variables], Job] | None = None
    numbers: Numbers | None = None
    # what in the job's description starts one process per host instead of one per rank
    once_per_host: str = "one process per host"
    # the key in the job's description that says how many processes a host gets, where it isn't the number of devices
    slots_key: str = ""
    # whether words of the program's command may hold `$RANK` and the like
    unexpanded: bool = False
    tensorflow_port: int = TENSORFLOW_PORT
    # what its own toolkit writes into TF_CONFIG beside the cluster and the task
    tensorflow_keys: Mapping[str, str] = {}
    # names of packages that scripts import there, for which we have stand-ins
    standins: tuple[str, ...] = ()
    # why scripts get the variables of SageMaker's toolkit
    exports_reason: str = EXPECTED[1]
    # whether its containers install what the program's requirements.txt lists
    installs: bool = False

    # the hint about a missing input channel: its name, what the job has, whether `muster local` plays the platform
    missing_channel: Callable[[str, str, bool], str] = no_channels
    # what `muster local` gives its hosts, where variables are all that the platform gives. None: it has another way
    # to be played, or can't be
    sample: Sample | None = None
    row: DocsRow = DocsRow()
