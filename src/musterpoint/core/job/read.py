"""Reads this process's job: by the reader of the platform that the settings name, or that is found here.

Also what of a job is secret: the masker that knows its hyperparameters, arguments and configuration files.
"""

from __future__ import annotations

import json
import os
from typing import Any, Iterable, Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.base.masking import Masker
from musterpoint.base.settings import MODULE, PROGRAM_ARGS, Settings
from musterpoint.base.untrusted import open_regular
from musterpoint.core.job.directories import with_directories
from musterpoint.core.job.fields import LARGEST_FILE, node_name, path, text, wrong
from musterpoint.core.job.hyperparameters import to_arguments
from musterpoint.core.job.model import EntryPoint, Job
from musterpoint.core.job.sagemaker import base_of, has_tree, ignored_program, paths_of, read_tree
from musterpoint.core.job.toolkit_env import counted, has_variables, read_variables


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
    platform = settings.platform if settings.platform != "auto" else platform_here(base, environ)
    if platform != "sagemaker":
        if not program:
            raise UsageError(
                f"{os.path.join(paths_of(base).input_config, 'resourceconfig.json')} isn't here: train is what a "
                "training platform runs in its containers (`train --help` tells what it reads, and how to try an "
                "image); on a machine of yours run `muster local PROGRAM`"
            )
        job = _settled(_read_variables(platform, environ, settings), settings)
        return _launched(job, environ, settings, program, module, arguments or ())
    if has_tree(base) or not has_variables(environ):
        job = read_tree(base, environ, settings)
    else:
        job = read_variables(environ, settings, base)
    job = _settled(job, settings)
    if program:
        if arguments is None:
            style = settings.args or "json"
            arguments = to_arguments(job.hyperparameters, style, everything=style == "json")
        return _launched(job, environ, settings, program, module, arguments)
    return job._replace(
        entry_point=job.entry_point._replace(module=job.entry_point.module or bool(environ.get(MODULE))),
        arguments=(*job.arguments, *_typed(environ)),
        notes=(*job.notes, *ignored_program(job.hyperparameters, environ)),
    )


def platform_here(base: str, environ: Mapping[str, str]) -> str:
    """The platform whose settings are found here.

    An input folder without its main file means SageMaker, unless variables are another platform's.
    """
    if has_variables(environ) or has_tree(base):
        return "sagemaker"
    from musterpoint.core.job.readers import READERS

    unknown: str = "sagemaker" if os.path.isdir(paths_of(base).input_config) else "plain"
    return next((reader.platform for reader in READERS if reader.found(environ)), unknown)


def _read_variables(platform: str, environ: Mapping[str, str], settings: Settings) -> Job:
    """The job as the variables of ``platform`` describe it, without a program."""
    from musterpoint.core.job.readers import READERS

    for reader in READERS:
        if reader.platform == platform:
            return reader.load()(environ, settings)
    if settings.platform == "auto":
        from musterpoint.core.job.other_platforms import refuse_several, refuse_started_ranks
        from musterpoint.core.job.unnamed import from_variables

        refuse_started_ranks(environ)
        job = None if _describes_hosts(settings) else from_variables(environ)
        if job is not None:
            return job
        if settings.nnodes is None:
            from musterpoint.core.job.unknown_platforms import suspected

            refuse_several(environ)
            return read_plain()._replace(notes=suspected(environ))
        if settings.nnodes == 1:
            from musterpoint.core.job.other_platforms import left_alone

            return read_plain()._replace(notes=left_alone(environ))
    return read_plain()


def _describes_hosts(settings: Settings) -> bool:
    return settings.nnodes is not None or settings.node_rank is not None or bool(settings.rollcall_leader)


def _settled(job: Job, settings: Settings) -> Job:
    """``job`` with the options about hosts. Where it names them and no option is given, nothing is imported."""
    if job.unnamed is None and not _describes_hosts(settings):
        return job
    from musterpoint.core.job.unnamed import settled

    return settled(job, settings)


def _launched(
    job: Job, environ: Mapping[str, str], settings: Settings, program: str, module: bool, arguments: tuple[str, ...]
) -> Job:
    """``job`` with a program of the command line, which runs from the working directory."""
    by_toolkit = counted(environ)
    job = job._replace(
        name=job.name or settings.job_name or os.path.basename(program).partition(".")[0],
        entry_point=EntryPoint(path(program, "PROGRAM"), module=module),
        arguments=_words(arguments, "an argument of PROGRAM"),
        paths=job.paths._replace(code=os.getcwd()),
        counted=by_toolkit if by_toolkit.variable else job.counted,
    )
    return job._replace(paths=with_directories(job, job.paths.code))


def _words(arguments: Iterable[str], what: str) -> tuple[str, ...]:
    return tuple(text(word, what) for word in arguments)


def _typed(environ: Mapping[str, str]) -> tuple[str, ...]:
    text_of_list = environ.get(PROGRAM_ARGS, "")
    if not text_of_list:
        return ()
    try:
        words = json.loads(text_of_list)
    except (ValueError, RecursionError):
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise wrong(PROGRAM_ARGS, text_of_list, "a JSON list of strings")
    return _words(words, PROGRAM_ARGS)


def read_plain(host: str = "") -> Job:
    """A job of one host, with no program yet. ``host`` is its name; the machine's own if empty."""
    name = host or node_name()
    return Job(
        platform="plain", name="", hosts=(name,), current_host=name, group_hosts=(name,), entry_point=EntryPoint("")
    )


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
