"""The ``SM_*`` variables a script sees: those of sagemaker-training 5.1.4, and what the SDK v3 scripts add.

Names and values are theirs, except for the differences that docs/sagemaker.md lists. A variable that is already set
keeps its value.
"""

import json
import re
from typing import Any, Mapping

from musterpoint.base import executables
from musterpoint.base.executables import LONGEST_WORD, size_of
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import MASTER_PORT
from musterpoint.core.job.distribution import enabled, groups_named
from musterpoint.core.job.hyperparameters import hidden, passable, text_value, values
from musterpoint.core.job.model import Job
from musterpoint.core.job.opt_ml import VARIABLES
from musterpoint.core.job.sagemaker_files import INPUT_DATA, RESOURCES

_DEFAULT_GROUP = "homogeneousCluster"
_NOT_A_NAME = re.compile(r"[^A-Z0-9_]")


class Machine(NamedTuple):
    """The processors and accelerators of this host. ``cpus`` counts the whole machine, as sagemaker-training does."""

    cpus: int = 1
    gpus: int = 0
    neuron_cores: int = 0


ONE_PROCESSOR = Machine()


def sagemaker_exports(
    job: Job,
    environ: Mapping[str, str],
    machine: Machine = ONE_PROCESSOR,
    master_address: str = "",
    master_port: int = MASTER_PORT,
) -> tuple[tuple[str, str], ...]:
    """Names and values of the variables, sorted by name, without those that ``environ`` already has.

    An empty ``master_address`` stands for the leader's name.
    """
    facts = _facts(job, environ, machine)
    v3 = _v3_facts(job, master_address or job.leader, master_port)
    training_env = {**_training_env(job, facts, environ), **_v3_training_env(job, v3)}
    named: dict[str, Any] = {f"SM_{name.upper()}": value for name, value in {**facts, **v3}.items()}
    named["SM_TRAINING_ENV"] = training_env
    named["SM_CHECKPOINT_DIR"] = job.paths.checkpoints
    if job.paths.metrics:
        named["SAGEMAKER_METRICS_DIRECTORY"] = job.paths.metrics
    named["SAGEMAKER_JOB_NAME"] = text_value(job.hyperparameters, "sagemaker_job_name") or job.name
    named["SAGEMAKER_REGION"] = job.region
    named["CURRENT_HOST"] = job.current_host
    each = [(f"SM_CHANNEL_{channel.name.upper()}", channel.path) for channel in job.channels]
    each += [(f"SM_HP_{entry.name.upper()}", entry.value) for entry in job.hyperparameters if not hidden(entry.name)]
    named.update(each)
    for name, value in each:
        named.setdefault(_NOT_A_NAME.sub("_", name), value)
    places = {*VARIABLES.values(), "SM_OUTPUT_FAILURE"}  # without those that aren't there: scripts have defaults
    named = {name: value for name, value in named.items() if value or name not in places}
    exports = ((name, _spelled(value)) for name, value in sorted(named.items()) if name not in environ)
    return tuple((name, value) for name, value in exports if value is not None and _fits(name, value))


def _fits(name: str, value: str) -> bool:
    """Whether the system can take this variable: no ``=`` in the name, and not longer than the kernel allows."""
    return "=" not in name and passable(name) and size_of(f"{name}={value}") <= LONGEST_WORD


def _spelled(value: Any) -> str | None:
    """A value as sagemaker-training spells it; None where it can't be a variable's value."""
    if value is None:
        return ""
    try:
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        return None
    return text if passable(text) else None


def _facts(job: Job, environ: Mapping[str, str], machine: Machine) -> dict[str, Any]:
    """The values of sagemaker-training's ``Environment.to_env_vars``, by its names."""
    by_name = values(job.hyperparameters)
    program = job.entry_point.program
    resources = job.files.get(RESOURCES) or {}
    groups = {group.name: group for group in job.groups}
    current_group = job.current_group or _DEFAULT_GROUP
    facts: dict[str, Any] = {
        "hosts": list(job.hosts),
        "network_interface_name": job.network_interface or "eth0",
        "hps": {name: value for name, value in by_name.items() if not hidden(name)},
        "user_entry_point": program,
        "framework_params": {name: value for name, value in by_name.items() if _is_framework_parameter(name)},
        "resource_config": resources,
        "input_data_config": job.files.get(INPUT_DATA) or {},
        "output_data_dir": job.paths.output_data,
        "channels": sorted(channel.name for channel in job.channels),
        "current_host": job.current_host,
        "current_instance_type": job.instance_type or "local",
        "current_instance_group": current_group,
        "current_instance_group_hosts": list(groups[current_group].hosts) if current_group in groups else [],
        "instance_groups": list(groups),
        "instance_groups_dict": _group_objects(job, resources),
        "distribution_instance_groups": _distribution_groups(job, by_name, current_group),
        "is_hetero": len(groups) > 1,
        "module_name": program.removesuffix(".py"),
        "log_level": job.log_level,
        "framework_module": environ.get("SAGEMAKER_TRAINING_MODULE"),
        "input_dir": job.paths.input,
        "input_config_dir": job.paths.input_config,
        "output_dir": job.paths.output,
        "num_cpus": machine.cpus,
        "num_gpus": machine.gpus,
        "num_neurons": machine.neuron_cores,
        "model_dir": job.paths.model,
        "module_dir": job.entry_point.source or job.paths.code,
        "user_args": list(job.arguments),
        "output_intermediate_dir": job.paths.output_intermediate,
    }
    if resources.get("topology"):
        facts["topology"] = resources["topology"]
    return facts


_NOT_FRAMEWORK = frozenset(
    {
        "sagemaker_program",
        "sagemaker_submit_directory",
        "sagemaker_enable_cloudwatch_metrics",
        "sagemaker_region",
        "sagemaker_container_log_level",
        "sagemaker_job_name",
        "sagemaker_s3_output",
    }
)


def _is_framework_parameter(name: str) -> bool:
    return name.startswith("sagemaker_") and name not in _NOT_FRAMEWORK


def _group_objects(job: Job, resources: Mapping[str, Any]) -> dict[str, Any]:
    """The platform's group objects by name. Unknown keys are kept; hosts are merged, in natural order."""
    objects: dict[str, Any] = {}
    for entry in resources.get("instance_groups") or []:
        objects.setdefault(entry["instance_group_name"], {}).update(entry)
    for group in job.groups:
        objects.setdefault(group.name, {"instance_group_name": group.name, "instance_type": group.instance_type})
        objects[group.name]["hosts"] = list(group.hosts)
    return objects


def _distribution_groups(job: Job, by_name: Mapping[str, Any], current_group: str) -> list[str]:
    """The groups of the distribution. Groups that are named count even where the distribution is switched off."""
    if job.distribution.groups:
        return list(job.distribution.groups)
    named = groups_named(by_name)
    return list(named) if named else [current_group] if enabled(by_name) else []


def _training_env(job: Job, facts: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Every property of sagemaker-training's ``Environment``."""
    chosen = facts["distribution_instance_groups"]
    grouped = {member for group in job.groups if group.name in chosen for member in group.hosts}
    members = [member for member in job.hosts if member in grouped or not job.groups]
    master = (members or list(job.hosts))[0]
    outside = ("hps", "framework_params", "channels", "user_args")
    parameters = environ.get("SM_HP_MP_PARAMETERS")
    return {
        **{name: value for name, value in facts.items() if name not in outside},
        "additional_framework_parameters": facts["framework_params"],
        "channel_input_dirs": {channel.name: channel.path for channel in job.channels},
        "distribution_hosts": members,
        "hyperparameters": facts["hps"],
        "is_master": job.current_host == master,
        "is_modelparallel_enabled": bool(parameters != "{}") if parameters else parameters,
        "is_smddpmprun_installed": bool(executables.find_command("smddpmprun", environ)),
        "is_smddprun_installed": bool(executables.find_command("smddprun", environ)),
        "job_name": environ.get("TRAINING_JOB_NAME"),
        "master_hostname": master,
        "topology": facts["resource_config"].get("topology", []),
    }


def _v3_facts(job: Job, master_address: str, master_port: int) -> dict[str, Any]:
    """What the SDK v3 scripts export in addition; the keys are the variables' names without ``SM_``."""
    facts: dict[str, Any] = {
        "input_data_dir": job.paths.input_data,
        "output_failure": job.paths.failure,
        "master_addr": master_address,
        "master_port": master_port,
        "source_dir": job.paths.code,
        "host_count": len(job.hosts),
        "current_host_rank": job.rank_of_host,
    }
    if job.entry_point.program:
        facts["entry_script"] = job.entry_point.program
    return facts


def _v3_training_env(job: Job, v3: Mapping[str, Any]) -> dict[str, Any]:
    names = ("input_data_dir", "master_addr", "master_port")
    return {**{name: v3[name] for name in names}, "job_name": job.name}
