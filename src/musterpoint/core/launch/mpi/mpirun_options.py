"""Reads the job's ``custom_mpi_options`` and ``--mpi-options`` as a shell would; accepts SageMaker's spellings."""

import shlex
from typing import Iterator, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.base.masking import Masker
from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.mpirun import OPEN_MPI, Flavour
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job.model import Distribution
from musterpoint.core.launch.launch_plan import OWN_PATHS
from musterpoint.core.launch.mpi.command import Flag

REASON = "custom_mpi_options"

WHERE_AND_HOW_MANY = (
    "np", "n", "c", "N", "npernode", "pernode", "npersocket", "ppr", "ppn", "perhost", "host", "hosts", "H", "f",
    "hostfile", "machinefile", "machine", "default-hostfile", "configfile", "app",
)  # fmt: skip
"""Options about the number and place of ranks. They are refused: musterpoint sets them from the roster."""

WHERE_PARAMETERS = (
    "orte_default_hostfile", "prte_default_hostfile", "plm_rsh_agent", "plm_ssh_agent", "plm", "orte_launch_agent",
    "prte_launch_agent",
)  # fmt: skip
"""Parameters of Open MPI for the hosts, or for the program that starts the daemons."""

HYDRAS_START = (
    "launcher", "launcher-exec", "bootstrap", "bootstrap-exec", "rmk", "genvall", "envall", "envnone",
)  # fmt: skip
"""Hydra's options for the start of daemons and for the ranks' environment."""

OPEN_MPI_ONLY = (
    "mca", "gmca", "omca", "prtemca", "pmixmca", "am", "tune", "allow-run-as-root", "tag-output",
    "timestamp-output", "oversubscribe", "nooversubscribe", "report-bindings", "display-map", "display-allocation",
    "display-devel-map", "display", "bynode", "byslot", "bycore", "bysocket", "bind-to-core", "bind-to-socket",
    "bind-to-none", "cpus-per-proc", "output", "output-filename", "merge-stderr-to-stdout", "prefix", "noprefix",
    "report-uri", "report-events", "preload-binary", "rankfile", "rf", "use-hwthread-cpus", "stdin",
    "runtime-options",
)  # fmt: skip

_MCA = ("mca", "gmca", "omca", "prtemca", "pmixmca")
_SAME = {
    "bind-to-core": "bind-to", "bind-to-socket": "bind-to", "bind-to-none": "bind-to", "bynode": "map-by",
    "byslot": "map-by", "bycore": "map-by", "bysocket": "map-by",
}  # fmt: skip
"""Old options of Open MPI, and the option that means the same."""


class Options(NamedTuple):
    """The job's options, read.

    exports: variables of every rank on all hosts.
    flags: options of mpirun.
    """

    exports: tuple[EnvSetting, ...] = ()
    flags: tuple[Flag, ...] = ()


_OWN = "--mpi-options (MUSTER_MPI_OPTIONS)"


def read_options(distribution: Distribution, flavour: Flavour, more: str = "") -> Options:
    """The job's options for one flavour of MPI, then those of ``--mpi-options`` (``more``).

    Raises:
        UsageError: they can't be read, or one is unknown to this flavour or reserved for musterpoint.
    """
    first, last = _read(distribution.options, _name_of(distribution), flavour), _read(more, _OWN, flavour)
    flags = first.flags + last.flags
    return Options(first.exports + last.exports, _one_genvlist((*flags, *_for_stubs(flags))))


def without_mpi(distribution: Distribution, more: str = "") -> tuple[tuple[EnvSetting, ...], str]:
    """The job's options for ranks that mpirun doesn't start: the variables, and the words of options that are ignored.

    ``more`` is ``--mpi-options``. ``-x NAME`` without a value is neither: every host has its own.

    Raises:
        UsageError: as for :func:`read_options`.
    """
    options = read_options(distribution, OPEN_MPI, more)
    exports = {setting.name: setting for setting in options.exports}
    others: list[str] = []
    for flag in options.flags:
        words = flag.words
        if flag.key in ("genv", "env") and len(words) == 3:  # as Hydra spells it
            words = ("-x", f"{words[1]}={words[2]}")
        if words[0].lstrip("-") != "x":
            others += words
            continue
        name, equals, value = words[1].partition("=")
        if equals:
            exports[name] = EnvSetting(name, value, REASON)
    return tuple(exports.values()), " ".join(others)


def _read(text: str, source: str, flavour: Flavour) -> Options:
    given = _split(text, source)
    words = _Words(_without_env_list(given) if flavour == OPEN_MPI else given, source)
    take = _open_mpi if flavour == OPEN_MPI else _hydra
    exports: list[EnvSetting] = []
    flags: list[Flag] = []
    while words.left:
        word = words.next()
        variable = _variable(word)
        if variable is not None:
            exports.append(EnvSetting(*variable, REASON))
            continue
        name = word.lstrip("-")
        hidden = words.secret_variable(name) if word.startswith("-") else None
        if hidden is not None:
            exports.append(EnvSetting(*hidden, f"{REASON}: {word} {hidden[0]}=…, not on a command line for all to see"))
            continue
        if not word.startswith("-") or not name:
            raise words.wrong(f"has {word!r} where an option was expected, such as -x NAME=VALUE or --NAME=VALUE")
        if name.partition("=")[0] in WHERE_AND_HOW_MANY:
            raise words.wrong(
                f"has {word}, but how many ranks there are and on which hosts comes from the job: set "
                "processes_per_host in the distribution, or --slots"
            )
        flags.append(take(word, name, words))
    return Options(tuple(exports), tuple(flags))


class _Words:
    """The words that are still to be read; errors name their source."""

    def __init__(self, words: list[str], source: str) -> None:
        self.left, self._source = words, source

    def next(self) -> str:
        return self.left.pop(0)

    def values(self, option: str, count: int) -> list[str]:
        """Takes the next ``count`` words, the values of ``option``, whatever they begin with."""
        if len(self.left) < count:
            raise self.wrong(f"ends after {option}, which takes {count} value{'s' if count > 1 else ''}")
        return [self.next() for _ in range(count)]

    def following(self) -> list[str]:
        """Takes the words up to the next option; a negative number is no option."""
        found: list[str] = []
        while self.left and (not self.left[0].startswith("-") or self.left[0][1:2].isdecimal()):
            found.append(self.next())
        return found

    def secret_variable(self, option: str) -> tuple[str, str] | None:
        """Takes the variable that ``option`` sets on every rank, if its value is secret; else None."""
        if option == "x" and self.left:
            name, _, value = self.left[0].partition("=")
            count = 1
        elif option in ("genv", "env") and len(self.left) > 1:
            (name, value), count = self.left[:2], 2
        else:
            return None
        if not value or Masker().mask_value(name, value) == value:
            return None
        del self.left[:count]
        return name, value

    def wrong(self, what: str) -> UsageError:
        return UsageError(f"{self._source} {what}")


def _split(text: str, source: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"{source} = {text!r} can't be read as a shell would: "
            f'{str(error).lower()}; close the quotes, or write \\" for one that is meant'
        ) from None


def _without_env_list(words: list[str]) -> list[str]:
    """``--mca mca_base_env_list A=1;B`` as ``-x A=1 -x B``, which means the same."""
    if "mca_base_env_list_delimiter" in words:
        return words
    found: list[str] = []
    at = 0
    while at < len(words):
        if words[at].lstrip("-") in _MCA and words[at + 1 : at + 2] == ["mca_base_env_list"] and at + 2 < len(words):
            found += [word for variable in words[at + 2].split(";") if variable for word in ("-x", variable)]
            at += 3
        else:
            found.append(words[at])
            at += 1
    return found


def _name_of(distribution: Distribution) -> str:
    return f"the hyperparameter {distribution.options_key or 'sagemaker_mpi_custom_mpi_options'}"


def _variable(word: str) -> tuple[str, str] | None:
    """The variable of ``--NCCL_DEBUG=INFO``, as sagemaker-training reads it: no option of mpirun is in capitals."""
    name, equals, value = word.lstrip("-").partition("=")
    fits = word.startswith("-") and equals and name.upper() == name and name.isidentifier()
    return (name, value) if fits else None


def _open_mpi(word: str, name: str, words: _Words) -> Flag:
    if name == "x":
        value = words.values(word, 1)[0]
        return Flag(f"x {value.partition('=')[0]}", (word, value), REASON)
    if name in _MCA:
        parameter, value = words.values(word, 2)
        if parameter in WHERE_PARAMETERS:
            raise words.wrong(f"has {word} {parameter}, but musterpoint starts the daemons, and the job says where")
        return Flag(f"mca {parameter}", (word, parameter, value), REASON)
    key = name.partition("=")[0]
    return Flag(_SAME.get(key, key), (word, *words.following()), REASON)


def _hydra(word: str, name: str, words: _Words) -> Flag:
    if name == "x":
        variable, equals, value = words.values(word, 1)[0].partition("=")
        if equals:
            return Flag(f"x {variable}", ("-genv", variable, value), f"{REASON}: {word} {variable}=…, as Hydra says it")
        return Flag("genvnone", ("-genvlist", variable), f"{REASON}: {word} {variable}, as Hydra says it")
    if name in OPEN_MPI_ONLY:
        raise words.wrong(
            f"has {word}, an option of Open MPI; this image's mpirun is Hydra (MPICH, MVAPICH2 or Intel MPI)"
        )
    if name in HYDRAS_START:
        raise words.wrong(
            f"has {word}, but musterpoint starts the daemons, and each host's ranks have that host's environment"
        )
    if name in ("genv", "env"):
        variable, value = words.values(word, 2)
        return Flag(f"x {variable}", (word, variable, value), REASON)
    if name in ("genvlist", "genvnone"):
        return Flag("genvnone", (word, *(words.values(word, 1) if name == "genvlist" else ())), REASON)
    return Flag(name.partition("=")[0], (word, *words.following()), REASON)


def _for_stubs(flags: Sequence[Flag]) -> Iterator[Flag]:
    """The variables by which stubs set back those of :data:`OWN_PATHS` that the user sets, with the user's values."""
    for flag in flags:
        option, *values = flag.words
        name = values[0].partition("=")[0] if values else ""
        if flag.key in (f"x {name}", "genvnone") and name in OWN_PATHS:
            own = f"MUSTER_USER_{name}"
            key = f"x {own}" if flag.key != "genvnone" else flag.key
            words = (option, own + values[0].removeprefix(name), *values[1:])
            yield Flag(key, words, f"{flag.reason}: {name}, which mpirun puts its own folders into")


def _one_genvlist(flags: Sequence[Flag]) -> tuple[Flag, ...]:
    """``flags`` with one ``-genvlist``: Hydra takes only one list of variables to copy from the leader."""

    def is_list(flag: Flag) -> bool:
        return flag.key == "genvnone" and len(flag.words) == 2

    lists = [flag for flag in flags if is_list(flag)]
    if len(lists) < 2:
        return tuple(flags)
    one = lists[0]._replace(words=("-genvlist", ",".join(flag.words[1] for flag in lists)))
    return (*(flag for flag in flags if not is_list(flag)), one)
