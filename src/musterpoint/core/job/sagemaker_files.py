"""Reads SageMaker's files: a job from the ``input/config`` tree that the platform mounts.

Only ``hyperparameters.json``, ``inputdataconfig.json`` and ``resourceconfig.json`` are needed, and only the last must
exist. Every other ``*.json`` is kept; one that is broken gives a warning. Sources: the AWS developer guide,
"How Amazon SageMaker provides training information", and trees that real jobs printed.
"""

import os
import re
from typing import Any, Callable, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.job import cluster, distribution
from musterpoint.core.job.fields import LONGEST_NAME, count, load, mapping, path, shown, text, wrong
from musterpoint.core.job.hyperparameters import Style, decode, text_value, to_arguments, values, with_own_model_dir
from musterpoint.core.job.model import Channel, EntryPoint, Hyperparameter, Job, Note, Paths
from musterpoint.core.job.opt_ml import paths_of

HYPERPARAMETERS = "hyperparameters.json"
INPUT_DATA = "inputdataconfig.json"
RESOURCES = "resourceconfig.json"
CHECKPOINTS = "checkpointconfig.json"
TRAINING_JOB = "trainingjobconfig.json"

DRIVERS = "sm_drivers"
"""The channel with the drivers that SDK v3 sends along with every job."""

NAME = "sagemaker"
GRACE = 120.0
"""Seconds between SIGTERM and SIGKILL (StopTrainingJob, spot interruption, maximum run time)."""


class Config(NamedTuple):
    """The platform's files, decoded, before they become a :class:`Job`.

    ``where`` names a key of a file, for messages. ``files`` are all decoded files by name.
    """

    hyperparameters: tuple[Hyperparameter, ...]
    resources: dict[str, Any]
    inputs: dict[str, Any]
    where: Callable[[str, str], str]
    files: dict[str, Any] = {}
    notes: tuple[Note, ...] = ()


def has_tree(base: str) -> bool:
    """Whether the platform's input tree is on this host."""
    return os.path.isfile(os.path.join(paths_of(base).input_config, RESOURCES))


def read_tree(base: str, environ: Mapping[str, str], settings: Settings) -> Job:
    """The job that the tree under ``base`` describes.

    Raises:
        UsageError: a file is missing or malformed, or a key is wrong; the message names file, key and value.
    """
    folder = paths_of(base).input_config
    files, notes = _read_files(folder)

    def where(file: str, key: str) -> str:
        return f"{os.path.join(folder, file)}: {key}"

    def content(file: str) -> dict[str, Any]:
        return mapping(files.get(file, {}), os.path.join(folder, file))

    if RESOURCES not in files:
        raise UsageError(f"{os.path.join(folder, RESOURCES)} is missing, expected the file that names the job's hosts")
    config = Config(
        hyperparameters=decode(content(HYPERPARAMETERS), HYPERPARAMETERS),
        resources=content(RESOURCES),
        inputs=content(INPUT_DATA),
        where=where,
        files=files,
        notes=notes,
    )
    return job_of(config, base, environ, settings)


def _read_files(folder: str) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """Every ``*.json`` of ``folder``, decoded, by file name. Only an error in the three needed files is raised."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError as error:
        raise UsageError(f"{folder} can't be read: {error.strerror}; expected the job's configuration files") from None
    files: dict[str, Any] = {}
    notes = [
        Note("warning", f"{os.path.join(folder, name)} is missing: the job is read as having none")
        for name in (HYPERPARAMETERS, INPUT_DATA)
        if name not in names
    ]
    for name in names:
        try:
            files[name] = load(os.path.join(folder, name))
        except UsageError as error:
            if name in (HYPERPARAMETERS, INPUT_DATA, RESOURCES):
                raise
            notes.append(Note("warning", f"{error}; it is ignored"))
    return files, tuple(notes)


def job_of(config: Config, base: str, environ: Mapping[str, str], settings: Settings) -> Job:
    """The job that ``config`` describes.

    Raises:
        UsageError: a key is wrong.
    """
    identity = _training_job(config.files)
    arn = environ.get("TRAINING_JOB_ARN") or identity.get("TrainingJobArn", "")
    given = _name(environ, config.hyperparameters, identity, arn) or settings.job_name
    name = given or "training-job"
    hyperparameters = with_own_model_dir(config.hyperparameters, name, environ)
    machines = cluster.from_config(config.resources, lambda key: config.where(RESOURCES, key))
    by_name = values(hyperparameters)
    decoded = distribution.from_hyperparameters(by_name, config.where(HYPERPARAMETERS, "").rstrip())
    choice = cluster.choose(machines, decoded.distribution, settings.group)
    paths, path_notes = _checkpoint_path(_with_metrics(paths_of(base)), config.files.get(CHECKPOINTS))
    channels, channel_notes = _channels(config, paths)
    return Job(
        platform=NAME,
        name=name,
        is_named=bool(given),
        hosts=machines.hosts,
        current_host=machines.current_host,
        group_hosts=choice.hosts,
        entry_point=entry_point(hyperparameters, environ),
        distribution=decoded.distribution._replace(groups=choice.groups),
        hyperparameters=hyperparameters,
        arguments=to_arguments(hyperparameters, settings.args or _style(config, paths)),
        channels=channels,
        groups=machines.groups,
        current_group=machines.current_group,
        instance_type=machines.instance_type,
        network_interface=machines.network_interface,
        region=_region(environ, hyperparameters, arn),
        arn=arn,
        log_level=_log_level(by_name.get("sagemaker_container_log_level"), config),
        paths=paths,
        grace=GRACE,
        files=config.files,
        notes=(*config.notes, *decoded.notes, *choice.notes, *path_notes, *channel_notes),
    )


def _style(config: Config, paths: Paths) -> Style:
    """How hyperparameters are spelled as arguments: for a job of SDK v3 as its drivers do."""
    from_v3 = DRIVERS in config.inputs or os.path.isdir(os.path.join(paths.input_data, DRIVERS))
    return "json" if from_v3 else "sagemaker"


_MODULE = re.compile(r"\s*(?:python3?\s+)?-m\s+([\w.]+)\s*")


def entry_point(hyperparameters: tuple[Hyperparameter, ...], environ: Mapping[str, str]) -> EntryPoint:
    """The user's program: an image's ``SAGEMAKER_PROGRAM``, else ``sagemaker_program``; empty where there is none.
    ``-m pkg.mod`` is a module.

    The source is ``sagemaker_submit_directory``, else ``SAGEMAKER_SUBMIT_DIRECTORY``.

    Raises:
        UsageError: a name has a NUL in it, or is too long.
    """
    program = environ.get("SAGEMAKER_PROGRAM") or text_value(hyperparameters, "sagemaker_program")
    source = text_value(hyperparameters, "sagemaker_submit_directory") or environ.get("SAGEMAKER_SUBMIT_DIRECTORY", "")
    where = f"{HYPERPARAMETERS}: sagemaker_"
    module = _MODULE.fullmatch(program)
    program = path(module[1] if module else program, where + "program")
    return EntryPoint(program, path(source, where + "submit_directory"), module is not None)


def ignored_program(hyperparameters: tuple[Hyperparameter, ...], environ: Mapping[str, str]) -> tuple[Note, ...]:
    """A warning where the image's program replaces the one that the job names, as in sagemaker-training."""
    images, jobs = environ.get("SAGEMAKER_PROGRAM", ""), text_value(hyperparameters, "sagemaker_program")
    if not images or not jobs or images == jobs:
        return ()
    words = (
        f"the variable SAGEMAKER_PROGRAM, {shown(images)}, goes before the job's own sagemaker_program, {shown(jobs)}: "
        "take it out of the image, or set it in the job's environment"
    )
    return (Note("warning", words),)


def _channels(config: Config, paths: Paths) -> tuple[tuple[Channel, ...], tuple[Note, ...]]:
    channels = []
    notes = []
    for name, value in config.inputs.items():
        here = config.where(INPUT_DATA, name)
        if not name or "/" in name or "\0" in name or name in (".", "..") or len(name) > LONGEST_NAME:
            raise wrong(config.where(INPUT_DATA, "a channel name"), name, "letters, digits, '.', '_' and '-'")
        mode = text(mapping(value, here).get("TrainingInputMode"), f"{here}.TrainingInputMode") or "File"
        if mode not in ("File", "Pipe", "FastFile"):
            notes.append(Note("warning", f"{here}.TrainingInputMode is {shown(mode)}, expected File or Pipe: kept"))
        mode = "File" if mode == "FastFile" else mode
        channels.append(Channel(name, mode, os.path.join(paths.input_data, name), value))
    return tuple(channels), tuple(notes)


def _with_metrics(paths: Paths) -> Paths:
    """``paths`` with the directory for a script's metrics, if the platform made it (on SageMaker it does)."""
    folder = os.path.join(paths.output, "metrics", "sagemaker")
    return paths._replace(metrics=folder) if os.path.isdir(folder) else paths


def _checkpoint_path(paths: Paths, config: Any) -> tuple[Paths, tuple[Note, ...]]:
    if config is None:
        return paths, ()
    try:
        place = path(mapping(config, CHECKPOINTS).get("LocalPath"), f"{CHECKPOINTS}: LocalPath")
    except UsageError as error:
        return paths, (Note("warning", f"{error}; {paths.checkpoints} is used"),)
    return (paths._replace(checkpoints=place.rstrip("/") or "/") if place else paths), ()


def _training_job(files: Mapping[str, Any]) -> dict[str, str]:
    """The text fields of ``trainingjobconfig.json``, an internal file of the platform that not every job has."""
    config = files.get(TRAINING_JOB)
    return {key: value for key, value in config.items() if isinstance(value, str)} if isinstance(config, dict) else {}


def _name(
    environ: Mapping[str, str], hyperparameters: tuple[Hyperparameter, ...], identity: Mapping[str, str], arn: str
) -> str:
    """The job's name; empty: nobody says it. The variable comes first, because all jobs of a tuning job share one
    ``sagemaker_job_name``.
    """
    return (
        environ.get("TRAINING_JOB_NAME")
        or identity.get("TrainingJobName")
        or text_value(hyperparameters, "sagemaker_job_name")
        or arn.rpartition("/")[2]
    )


def _region(environ: Mapping[str, str], hyperparameters: tuple[Hyperparameter, ...], arn: str) -> str:
    fields = arn.split(":")
    return (
        text_value(hyperparameters, "sagemaker_region")
        or environ.get("AWS_REGION")
        or environ.get("AWS_DEFAULT_REGION")
        or (fields[3] if len(fields) > 5 else "")
    )


def _log_level(value: Any, config: Config) -> int:
    return 20 if value is None else count(value, config.where(HYPERPARAMETERS, "sagemaker_container_log_level"), 0)
