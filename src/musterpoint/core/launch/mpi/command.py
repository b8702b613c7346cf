"""How one flavour of MPI starts a job: mpirun's flags and variables."""

from typing import Iterable, Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.launch_plan import Argument, program_of_ours
from musterpoint.core.rollcall.roster import Seat


class Flag(NamedTuple):
    """One option of mpirun.

    key: what it sets; of two flags with the same key the user's is kept.
    words: the option and its values.
    reason: why it is there, for ``muster plan``.
    rivals: other keys that set the same thing; where the user gave one of them, ours is left out.
    required: whether ours is kept where a file or a variable sets the same.
    """

    key: str
    words: tuple[str, ...]
    reason: str
    rivals: tuple[str, ...] = ()
    required: bool = False

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return tuple(Argument(word, self.reason if at == 0 else "") for at, word in enumerate(self.words))


class HostRanks(NamedTuple):
    """A host that runs ranks.

    seat: its entry in the roster.
    ranks: how many it runs.
    """

    seat: Seat
    ranks: int


class Command(NamedTuple):
    """How one flavour of MPI starts a job.

    flags: the flags between mpirun and the program.
    daemons: file names of the programs that mpirun starts on a host.
    own: variables for mpirun alone.
    everywhere: variables of all processes of this host.
    sets: for each host its own flags before the program, where that is needed.
    notes: sentences for ``muster plan`` and the log.
    """

    flags: tuple[Flag, ...]
    daemons: tuple[str, ...] = ()
    own: tuple[EnvSetting, ...] = ()
    everywhere: tuple[EnvSetting, ...] = ()
    sets: tuple[tuple[Flag, ...], ...] = ()
    notes: tuple[str, ...] = ()


def world(places: Iterable[HostRanks]) -> Flag:
    """How many ranks mpirun starts."""
    return Flag("np", ("-np", str(sum(place.ranks for place in places))), "ranks in all: the slots of all hosts")


def agent(variable: str) -> EnvSetting:
    """Has mpirun call our launch agent in place of ssh; ``variable`` names its remote shell."""
    reason = "starts its daemons over the roll call's channel, not ssh"
    return EnvSetting(variable, *program_of_ours("launch_agent", reason))


def mca(name: str, value: str, reason: str, word: str = "--mca", rivals: Iterable[str] = ()) -> Flag:
    """One parameter of Open MPI; ``rivals`` are parameters that contradict it."""
    return Flag(f"mca {name}", (word, name, value), reason, tuple(f"mca {rival}" for rival in rivals))


def set_elsewhere(files: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Keys of Open MPI's parameters that are set in files (``files``: the names) or in ``environ``, and where."""
    found = {f"mca {name}": "a parameter file" for name in files}
    for variable in environ:
        for prefix in ("OMPI_MCA_", "PRTE_MCA_"):
            if variable.startswith(prefix):
                found[f"mca {variable.removeprefix(prefix)}"] = variable
    return found


def merged(
    ours: Iterable[Flag], users: tuple[Flag, ...], elsewhere: Mapping[str, str]
) -> tuple[tuple[Flag, ...], tuple[str, ...]]:
    """Our flags without those that the user replaces, then the user's; and notes about flags left out."""
    user_keys = {flag.key for flag in users}
    kept, replaced, notes = [], set(), []
    for flag in ours:
        keys = (flag.key, *flag.rivals)
        by_user = [key for key in keys if key in user_keys]
        place = next((elsewhere[key] for key in keys if key in elsewhere), "")
        if by_user:
            replaced.update(by_user)
        elif place and not flag.required:
            notes.append(f"{' '.join(flag.words)} is left out: {place} settles it")
        else:
            kept.append(flag)
    users = tuple(
        flag._replace(reason=flag.reason + "; replaces ours") if flag.key in replaced else flag for flag in users
    )
    return (*kept, *users), tuple(notes)
