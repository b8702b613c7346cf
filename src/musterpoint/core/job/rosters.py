"""What platforms have in common that list a job's hosts, or count them, in variables or files of their own."""

from __future__ import annotations

from typing import Iterable, Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.core.job.fields import count, host, node_name, shown
from musterpoint.core.job.model import Counted, EntryPoint, Job, Note, Paths, Sources, UnnamedHosts
from musterpoint.core.job.opt_ml import base_of, paths_of
from musterpoint.core.job.other_platforms import refuse_started_ranks, shown_variables
from musterpoint.core.job.platform import Numbers, RankPlace, StartedBy
from musterpoint.core.job.unnamed import endpoint_in, unnamed_job

_FIRST_PORT, _PORTS = 20000, 12000
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_SIZE", "PALS_SIZE")
"""How many processes an mpirun has started, by implementation."""


def listed_job(platform: str, environ: Mapping[str, str], hosts: Sequence[str], place: int, where: str) -> Job:
    """The job of ``hosts``, in rank order, of which this one is at ``place``; it has no program yet.

    ``where``: the variable or file that lists them.

    Raises:
        UsageError: a name can't be one, or this process is one of several that were started here.
    """
    names = tuple(host(name, f"{where}: a host") for name in hosts)
    if len(set(names)) < len(names):
        raise UsageError(f"{where} is {shown(environ.get(where, ' '.join(names)))}, expected every host once")
    refuse_several_here(environ, len(names))
    return Job(platform, "", names, names[place], names, EntryPoint(""), paths=_paths(environ))


def counted_job(
    platform: str, environ: Mapping[str, str], number: int, place: int | None, leader: str, sources: Sources
) -> Job:
    """The job of ``number`` hosts whose names the roll call learns; ``leader``: where the first one is reached.

    ``place``: this host's; None: places go by arrival.

    Raises:
        UsageError: this process is one of several that were started here.
    """
    refuse_several_here(environ, number)
    address, _port = endpoint_in(sources.leader, leader) if leader else ("", 0)
    job = unnamed_job(platform, UnnamedHosts(number, place, address, sources=sources))
    return job._replace(paths=_paths(environ))


def _paths(environ: Mapping[str, str]) -> Paths:
    return paths_of(base_of(environ)) if environ.get("SAGEMAKER_BASE_DIR") else Paths()


def refuse_several_here(environ: Mapping[str, str], hosts: int) -> None:
    """Refuses to run a process that an mpirun or another launcher has started as one of several on its host.

    Raises:
        UsageError: it is one.
    """
    for name in _SIZES:
        size = environ.get(name, "")
        if size.isdecimal() and (len(size) > 9 or int(size) != hosts):
            raise UsageError(
                f"{shown_variables([(name, size)])}, and the job has {hosts} host{'s' * (hosts > 1)}: an mpirun "
                "started this process and others like it; expected one on each host, which starts all ranks itself, "
                "with --launcher mpi for programs that use MPI"
            )
    if environ.get("TORCHELASTIC_RUN_ID") or not any(environ.get(name) for name in _SIZES):
        refuse_started_ranks(environ)


def needed(environ: Mapping[str, str], name: str, title: str) -> str:
    """The text of the variable ``name``, which ``title`` sets.

    Raises:
        UsageError: it isn't set.
    """
    text = environ.get(name, "").strip()
    if not text:
        raise UsageError(f"{name} isn't set, expected {title}'s value: this is none of its jobs of several hosts")
    return text


def place_of(environ: Mapping[str, str], name: str, hosts: int, title: str) -> int:
    """The number in the variable ``name``: this host's place among ``hosts``.

    Raises:
        UsageError: it isn't set, or is no such number.
    """
    return count(needed(environ, name, title), name, 0, hosts - 1)


def place_by_name(hosts: Sequence[str], where: str, number: str = "") -> int:
    """This host's place in ``hosts``, by its name with a domain or without; else ``number``, if the platform has one.

    Raises:
        UsageError: it isn't there.
    """
    if len(hosts) == 1:
        return 0
    name = node_name()
    for same in (lambda other: other == name, lambda other: _first(other) == _first(name)):
        found = [at for at, other in enumerate(hosts) if same(other)]
        if len(found) == 1:
            return found[0]
    if number.isdecimal() and int(number[:9]) < len(hosts):
        return int(number)
    listed = ", ".join(hosts[:4]) + (", ..." if len(hosts) > 4 else "")
    raise UsageError(
        f"this host is {shown(name)}, and {where} lists {listed}: start one process on each of these, and where they "
        "have other names set SM_HOSTS (a JSON list) and SM_CURRENT_HOST"
    )


def _first(name: str) -> str:
    return name if name.replace(".", "").isdecimal() else name.partition(".")[0].lower()


def once_each(names: Iterable[str]) -> tuple[str, ...]:
    """``names`` without repetitions: lists have a host once for each of its slots."""
    return tuple(dict.fromkeys(names))


def read_from(title: str, environ: Mapping[str, str], names: Iterable[str], more: str = "") -> Note:
    """Which variables the job was read from, for ``muster plan``."""
    said = shown_variables((name, environ[name]) for name in names if environ.get(name))
    return Note("plan", f"{title}: {said}{'; ' if more else ''}{more}")


def gpus_in(environ: Mapping[str, str], name: str) -> Counted:
    """This host's GPUs as the variable ``name`` counts them; nothing where it doesn't.

    Raises:
        UsageError: it is no number.
    """
    text = environ.get(name, "").strip()
    gpus = count(text, name, 0) if text else 0
    return Counted(gpus, name) if gpus else Counted()


def numbered(rank: str, size: str, local: str = "") -> Numbers:
    """The variables of a platform's tasks, of which it starts one per host; ``local``: its number on the host."""
    names = tuple(filter(None, (rank, size, local)))

    def stale(environ: Mapping[str, str], started_by: StartedBy) -> tuple[str, ...]:
        return tuple(name for name in names if name in environ) if started_by == "launcher" else ()

    def of_rank(environ: Mapping[str, str], place: RankPlace) -> tuple[tuple[str, str, str], ...]:
        values = {rank: (place.rank, "rank"), size: (sum(place.slots), "world size"), local: (place.local_rank, "slot")}
        return tuple(
            (name, str(values[name][0]), f"the {values[name][1]}, as of one task per slot")
            for name in names
            if name in environ
        )

    return Numbers(stale, of_rank)


def port_of(job: str, step: str = "") -> int:
    """A port of the job's own, by its number: hosts may be shared by several jobs. 0: the usual one.

    It is below those that Linux gives to connections.
    """
    if not _is_number(job):
        return 0
    return _FIRST_PORT + (int(job) * 16 + (int(step) if _is_number(step) else 0)) % _PORTS


def _is_number(text: str) -> bool:
    """Whether ``int()`` reads it: it refuses thousands of digits."""
    return text.isascii() and text.isdecimal() and len(text) < 20
