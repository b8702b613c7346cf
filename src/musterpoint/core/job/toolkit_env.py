"""Reads the job from the ``SM_*`` variables of another toolkit that started this process.

That is the case with ``entry_point="launcher.py"``. sagemaker-training and the SDK v3 scripts export the same names,
but v3 leaves the ``sagemaker_*`` keys in ``SM_HPS`` and has no ``SM_FRAMEWORK_PARAMS``.
"""

from __future__ import annotations

from typing import Any, Mapping

from musterpoint.base.settings import Settings
from musterpoint.core.job import sagemaker_files
from musterpoint.core.job.fields import count, mapping, parse, path
from musterpoint.core.job.hyperparameters import from_value
from musterpoint.core.job.model import Counted, EntryPoint, Job
from musterpoint.core.job.opt_ml import VARIABLES, base_of

_RESOURCES = {
    "hosts": "SM_HOSTS",
    "current_host": "SM_CURRENT_HOST",
    "current_instance_type": "SM_CURRENT_INSTANCE_TYPE",
    "current_group_name": "SM_CURRENT_INSTANCE_GROUP",
    "network_interface_name": "SM_NETWORK_INTERFACE_NAME",
}
_WHOLE = {
    sagemaker_files.HYPERPARAMETERS: "SM_HPS",
    sagemaker_files.INPUT_DATA: "SM_INPUT_DATA_CONFIG",
    sagemaker_files.RESOURCES: "SM_RESOURCE_CONFIG",
}
_COUNTED = ("SM_NUM_GPUS", "SM_NUM_NEURONS")
"""The variables that give a host's slots, in this order, as in both toolkits. SM_NUM_CPUS never does."""


def has_variables(environ: Mapping[str, str]) -> bool:
    """Whether another toolkit named this job's hosts in the environment."""
    return bool(environ.get("SM_HOSTS") and environ.get("SM_CURRENT_HOST"))


def read_variables(environ: Mapping[str, str], settings: Settings, base: str = "") -> Job:
    """The job that the ``SM_*`` variables describe. ``base`` is the platform's directory, for paths they leave out.

    Raises:
        UsageError: a variable is malformed; the message names it.
    """
    job = sagemaker_files.job_of(_config(environ), base or base_of(environ), environ, settings)
    return _with_variables(job, environ)


def counted(environ: Mapping[str, str]) -> Counted:
    """This host's accelerators as the other toolkit counted them: the first of the variables that isn't 0.

    Raises:
        UsageError: a variable isn't a number; the message names it.
    """
    found = [Counted(count(environ[name], f"the variable {name}", 0), name) for name in _COUNTED if environ.get(name)]
    return next((one for one in found if one.slots), found[0] if found else Counted())


def _object(environ: Mapping[str, str], name: str) -> dict[str, Any]:
    return mapping(parse(environ[name], f"the variable {name}"), f"the variable {name}") if environ.get(name) else {}


def _config(environ: Mapping[str, str]) -> sagemaker_files.Config:
    resources = _object(environ, "SM_RESOURCE_CONFIG")
    for key, name in _RESOURCES.items():
        if environ.get(name):
            resources[key] = parse(environ[name], f"the variable {name}") if key == "hosts" else environ[name]
    inputs = _object(environ, "SM_INPUT_DATA_CONFIG")
    channels = parse(environ["SM_CHANNELS"], "the variable SM_CHANNELS") if environ.get("SM_CHANNELS") else []
    for name in channels if isinstance(channels, list) else []:
        if isinstance(name, str):
            inputs.setdefault(name, {})
    hyperparameters = {**_object(environ, "SM_HPS"), **_object(environ, "SM_FRAMEWORK_PARAMS")}

    def where(file: str, key: str) -> str:
        name = _RESOURCES.get(key) if file == sagemaker_files.RESOURCES else None
        return f"the variable {name}" if name and environ.get(name) else f"the variable {_WHOLE[file]}: {key}"

    return sagemaker_files.Config(
        hyperparameters=tuple(from_value(name, value) for name, value in hyperparameters.items()),
        resources=resources,
        inputs=inputs,
        where=where,
        files={
            sagemaker_files.RESOURCES: resources,
            sagemaker_files.INPUT_DATA: inputs,
            sagemaker_files.HYPERPARAMETERS: hyperparameters,
        },
    )


def _with_variables(job: Job, environ: Mapping[str, str]) -> Job:
    """``job`` with the program, arguments and directories that the variables give."""
    paths = job.paths._replace(**{field: environ[name] for field, name in VARIABLES.items() if environ.get(name)})
    channels = tuple(
        channel._replace(path=environ.get(f"SM_CHANNEL_{channel.name.upper()}", channel.path))
        for channel in job.channels
    )
    program, source = (
        path(environ.get(name), f"the variable {name}") for name in ("SM_USER_ENTRY_POINT", "SM_MODULE_DIR")
    )
    entry = EntryPoint(program, source)
    arguments = parse(environ["SM_USER_ARGS"], "the variable SM_USER_ARGS") if environ.get("SM_USER_ARGS") else None
    if isinstance(arguments, list):
        job = job._replace(arguments=tuple(str(word) for word in arguments))
    return job._replace(
        paths=paths,
        channels=channels,
        entry_point=entry if entry.program else job.entry_point,
        name=environ.get("TRAINING_JOB_NAME") or environ.get("SAGEMAKER_JOB_NAME") or job.name,
        region=job.region or environ.get("SAGEMAKER_REGION", ""),
        counted=counted(environ),
    )
