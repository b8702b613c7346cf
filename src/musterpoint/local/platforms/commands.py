"""What platforms have in common that run ``muster launch`` once on every host."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.core.job.fields import shown, wrong
from musterpoint.core.job.platform import Sample
from musterpoint.local.job_request import HostNaming, LocalJob
from musterpoint.local.platforms.local_platform import HostProcess, LocalPlatform, PlayedHost
from musterpoint.local.tree import Layout


def launch(job: LocalJob) -> tuple[str, ...]:
    """The words of ``muster launch`` with the program and its arguments."""
    module = ("-m",) if job.module else ()
    return (sys.executable, "-m", "musterpoint", "launch", *module, job.program, *job.arguments)


def launched(host: PlayedHost) -> tuple[HostProcess, ...]:
    """``muster launch`` with the program and its arguments, in the directory of the code."""
    return (HostProcess(launch(host.job), {}, working_directory(host.layout, host.name)),)


def prepare(job: LocalJob, host: str, layout: Layout) -> None:
    """Makes the directory of the code, and those for models and reports."""
    prepare_directory(job, host, layout)
    for name in ("model", "output/data", "checkpoints"):
        os.makedirs(os.path.join(layout.tree(host), name), exist_ok=True)


def check_job(job: LocalJob) -> None:
    """Refuses what only SageMaker's jobs have.

    Raises:
        UsageError: hyperparameters or channels were given, or a channel is to be shared out.
    """
    no_sharding(job)
    if job.hyperparameters:
        raise wrong("--hyperparameters", job.hyperparameters, f"none: with --platform {job.platform} use arguments")
    if job.channels:
        raise wrong("--channel", sorted(job.channels), f"none: with --platform {job.platform} use paths as arguments")


def no_sharding(job: LocalJob) -> None:
    """Raises a UsageError where files of a channel are to be shared out among the hosts."""
    if job.sharded:
        raise UsageError(f"--sharded={job.sharded[0]}: only SageMaker shares files out, not --platform {job.platform}")


def no_distribution(distribution: Mapping[str, Any], _hosts: int) -> dict[str, Any]:
    """Nothing: the platform's jobs say nothing about how ranks start.

    Raises:
        UsageError: there is a distribution.
    """
    if distribution:
        raise UsageError(
            f"--distribution is {shown(dict(distribution))}, expected none: --launcher says how ranks start"
        )
    return {}


def launching(
    host_names: Callable[[int, HostNaming], tuple[str, ...]], environment: Callable[[PlayedHost], dict[str, str]]
) -> LocalPlatform:
    """How a platform is played that starts ``muster launch`` once on every host, with variables of its own."""
    return LocalPlatform(
        host_names=host_names,
        read_distribution=no_distribution,
        check=check_job,
        prepare=prepare,
        environment=lambda host: {**environment(host), "SAGEMAKER_BASE_DIR": host.tree},
        processes=launched,
    )


def sampled(sample: Sample) -> LocalPlatform:
    """The play of a platform that gives its hosts what a sample has."""

    def environment(host: PlayedHost) -> dict[str, str]:
        names = host.job.hosts
        fields = {
            "rank": host.rank,
            "number": host.rank + 1,
            "hosts": len(names),
            "job": host.job.name,
            "host": host.name,
            "pod": host.name.partition(".")[0],
            "leader": names[0],
            "names": _Joined(names),
            "addresses": _Joined(host.addresses.get(name, name) for name in names),  # of containers: known only later
        }
        templates = {**sample.variables, **(sample.of_workers if host.rank else sample.of_leader)}
        return {name: template.format(**fields) for name, template in templates.items()}

    return launching(called(sample.names, sample.leader_name), environment)


class _Joined(tuple[str, ...]):
    """Texts that a template joins by what stands behind its colon."""

    def __format__(self, between: str) -> str:
        return between.join(self)


def called(form: str, leader: str = "") -> Callable[[int, HostNaming], tuple[str, ...]]:
    """Names for hosts: ``form`` with ``{rank}``, or ``{number}`` from 1 on, in it; ``leader``: the first host's own."""
    return lambda number, _naming: tuple(
        (form if rank else leader or form).format(rank=rank, number=rank + 1) for rank in range(number)
    )


nodes = called("node{number}")
"""``node1``, ``node2``, …"""


def working_directory(layout: Layout, host: str) -> str:
    """Where the command of ``host`` runs."""
    return os.path.join(layout.host(host), "wd")


def prepare_directory(job: LocalJob, host: str, layout: Layout, own: tuple[str, ...] = ()) -> None:
    """Makes the working directory: links to what the source directory has, so that the host can write beside them.

    ``own``: directories of the host's own there. What they are called in the source directory is left out.
    """
    folder = working_directory(layout, host)
    for name in own or (".",):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    for directory in (layout.tree(host), layout.ranks(host)):
        os.makedirs(directory, exist_ok=True)
    for name in sorted(os.listdir(job.source_dir)):
        path = os.path.join(job.source_dir, name)
        if name not in own and not layout.output.startswith(os.path.join(path, "")):
            os.symlink(path, os.path.join(folder, name))
