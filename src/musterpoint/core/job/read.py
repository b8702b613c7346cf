"""Reads this process's job: by the reader of the platform that the settings name, or that is found here.

Also what of a job is secret: the masker that knows its hyperparameters, arguments and configuration files.
"""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.base.masking import Masker
from musterpoint.base.settings import ATTEMPT, Settings
from musterpoint.base.untrusted import open_regular
from musterpoint.core.job import platforms
from musterpoint.core.job.cluster import check_choice
from musterpoint.core.job.directories import as_ranks_see, with_directories
from musterpoint.core.job.fields import LARGEST_FILE, path, text
from musterpoint.core.job.hyperparameters import to_arguments
from musterpoint.core.job.model import EntryPoint, Job
from musterpoint.core.job.opt_ml import base_of, paths_of
from musterpoint.core.job.platform import Platform
from musterpoint.core.job.toolkit_env import counted
from musterpoint.core.job.variables import Watched

_COUNTS = ("PET_NNODES", "NNODES", "NUM_NODES")
"""Variables with which users count hosts."""


def read_job(
    environ: Mapping[str, str],
    settings: Settings,
    base: str = "",
    program: str | None = None,
    arguments: tuple[str, ...] | None = (),
    module: bool = False,
) -> Job:
    """The job of this process. ``base`` is the platform's directory (empty: as the environment says).

    With ``program`` (``muster launch``) the platform gives only the hosts: ``program`` runs with ``arguments`` from
    the working directory. ``arguments`` None stands for all hyperparameters, as SDK v3's drivers pass them. Without
    ``program`` the platform names the program too.

    Raises:
        UsageError: there is no job here, or its description is wrong.
    """
    base = base or base_of(environ)
    platform = platform_of(settings, environ, base)
    if not program and platform.own_program is None:
        raise UsageError(
            f"{os.path.join(paths_of(base).input_config, 'resourceconfig.json')} isn't here: train is what a "
            "training platform runs in its containers (`train --help` tells what it reads, and how to try an "
            "image); on a machine of yours run `muster local PROGRAM`"
        )
    job = _read(platform, environ, settings, base, launched=bool(program))
    check_choice(job, settings)
    if not program and platform.own_program is not None:
        job = platform.own_program(job, environ)
        return job._replace(paths=as_ranks_see(job.paths, environ, working_directory()))
    if arguments is None:
        style = settings.args or "json"
        arguments = to_arguments(job.hyperparameters, style, everything=style == "json")
    return _launched(job, environ, settings, program or "", module, arguments)


def working_directory() -> str:
    """The directory in which this process was started.

    Raises:
        UsageError: it was removed since.
    """
    try:
        return os.getcwd()
    except OSError as error:
        why = "was removed" if isinstance(error, FileNotFoundError) else f"can't be read ({error.strerror})"
        raise UsageError(f"the working directory {why}: change to one that is there (cd) and start again") from None


def platform_of(settings: Settings, environ: Mapping[str, str], base: str = "") -> Platform:
    """The platform that ``settings`` name, or that is found here. ``base``: as of :func:`read_job`."""
    if settings.platform != "auto":
        return platforms.load(settings.platform)
    return platforms.here(environ, base or base_of(environ))


def _read(platform: Platform, environ: Mapping[str, str], settings: Settings, base: str, launched: bool) -> Job:
    """The job as ``platform`` describes it, and what options and variables say of its hosts beside that.

    ``launched``: the platform has started ``muster launch``; `train` doesn't ask variables, which may be left over.
    """
    asks = settings.describes_hosts or launched
    job = None if asks else platform.read(environ, settings, base)
    if job is not None and job.unnamed is None:
        return job

    return _read_with_hosts(platform, environ, settings, base) if job is None else _settled(job, settings)


def _settled(job: Job, settings: Settings) -> Job:
    """The job of hosts that the platform only counts."""
    from musterpoint.core.job.unnamed import settled  # 1 ms, for such jobs

    return settled(job, settings)


def _launched(
    job: Job, environ: Mapping[str, str], settings: Settings, program: str, module: bool, arguments: tuple[str, ...]
) -> Job:
    """``job`` with a program of the command line, which runs from the working directory."""
    by_toolkit = counted(environ)
    given = (job.name if job.is_named else "") or settings.job_name
    job = job._replace(
        name=given or job.name or os.path.basename(program).partition(".")[0],
        is_named=bool(given),
        entry_point=EntryPoint(path(program, "PROGRAM"), module=module),
        arguments=_words(arguments, "an argument of PROGRAM"),
        paths=job.paths._replace(code=working_directory()),
        counted=by_toolkit if by_toolkit.variable else job.counted,
    )
    return job._replace(paths=with_directories(job, environ, job.paths.code))


def _words(arguments: Iterable[str], what: str) -> tuple[str, ...]:
    return tuple(text(word, what) for word in arguments)


def masker_of(environ: Mapping[str, str], job: Job) -> Masker:
    """A masker of the secrets in ``job`` and ``environ``."""
    values = {entry.name: [entry.value, entry.raw] for entry in job.hyperparameters}
    return Masker(environ, values, job.arguments, job.files)


def masker_of_files(environ: Mapping[str, str], arguments: Sequence[str] = ()) -> Masker:
    """A masker for a job that can't be read: takes the secrets from its configuration files. Raises nothing."""
    folder = paths_of(base_of(environ)).input_config
    files: dict[str, Any] = {}
    try:
        for name in os.listdir(folder):
            if name.endswith(".json"):
                _read_into(files, folder, name)
    except OSError:
        pass  # no files to take secrets from; the error that is being reported says why
    return Masker(environ, arguments=arguments, files=files)


def _read_into(files: dict[str, Any], folder: str, name: str) -> None:
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace", opener=open_regular) as file:
            files[name] = file.read(LARGEST_FILE)
    except OSError:
        pass  # its secrets stay unknown


def _read_with_hosts(platform: Platform, environ: Mapping[str, str], settings: Settings, base: str) -> Job:
    """The job as ``platform`` reads it below ``base``, with the hosts of which options and variables tell.

    Raises:
        UsageError: they contradict each other, or are wrong.
    """
    watched = Watched(environ)
    job = platform.read(watched, settings, base)
    own = frozenset(watched.seen)
    if job.unnamed is not None or (job.assumed and settings.describes_hosts):
        return _settled(job, settings)
    if not job.assumed and (settings.describes_hosts or any(map(environ.get, _COUNTS))):
        from musterpoint.core.job.hosts_agreed import agreed  # where hosts are described twice

        job = agreed(job, platform, settings, environ, own)
    below_ours = ATTEMPT in environ  # the numbers of a rank that musterpoint started are its own
    told = (platform.describes or settings.platform == "auto") and not below_ours
    if len(job.hosts) > 1 or job.started is not None or settings.describes_hosts or not told:
        return job
    from musterpoint.core.job.unknown_platforms import suspected  # 2 ms, for a job of one host

    more = suspected(environ) if job.assumed else suspected(environ, own, platform.variables, known=True)
    return job._replace(notes=(*job.notes, *more))
