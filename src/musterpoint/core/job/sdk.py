"""Turns the SDK's ``distribution`` dict into the hyperparameters that SDK v2 would send, for local jobs.

The SDK ignores unknown keys, so a job with a typing error trains without being distributed. Here that is an error,
and its message shows the right form. Source: 73 estimator cases recorded from SDK 2.257.7.
"""

from __future__ import annotations

import json
from typing import Any, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.core.job.fields import count, mapping, shown, text, wrong

FORMS: dict[str, str] = {
    "torch_distributed": '{"torch_distributed": {"enabled": true}}',
    "mpi": '{"mpi": {"enabled": true, "processes_per_host": 8, "custom_mpi_options": "-x NAME=VALUE"}}',
    "smdistributed": (
        '{"smdistributed": {"dataparallel": {"enabled": true}}} or '
        '{"smdistributed": {"modelparallel": {"enabled": true, "parameters": {…}}}, "mpi": {"enabled": true}}'
    ),
    "pytorchddp": '{"pytorchddp": {"enabled": true}}',
    "pytorchxla": '{"pytorchxla": {"enabled": true}}',
    "parameter_server": '{"parameter_server": {"enabled": true}}',
    "multi_worker_mirrored_strategy": '{"multi_worker_mirrored_strategy": {"enabled": true}}',
    "instance_groups": '{"instance_groups": ["group-1"], "mpi": {"enabled": true}}',
}
"""The right form of each key of a distribution."""

_KEYS: dict[str, tuple[str, ...]] = {
    "torch_distributed": ("enabled",),
    "mpi": ("enabled", "processes_per_host", "custom_mpi_options"),
    "smdistributed": ("dataparallel", "modelparallel"),
    "dataparallel": ("enabled", "custom_mpi_options"),
    "modelparallel": ("enabled", "parameters"),
    "pytorchddp": ("enabled", "custom_mpi_options"),
    "pytorchxla": ("enabled",),
    "parameter_server": ("enabled",),
    "multi_worker_mirrored_strategy": ("enabled",),
}
_INSIDE_SMDISTRIBUTED = ("dataparallel", "modelparallel")
_FRAMEWORKS = ("pytorch", "tensorflow", "huggingface")


def framework_of(distribution: Any) -> str:
    """The framework that a distribution is for: TensorFlow where only its estimator has it, else PyTorch."""
    only = isinstance(distribution, dict) and "multi_worker_mirrored_strategy" in distribution
    return "tensorflow" if only else "pytorch"


def from_sdk(distribution: Any, framework: str = "pytorch", instance_type: str | None = None) -> dict[str, str]:
    """The hyperparameters (name to JSON text) that SDK v2's estimator of ``framework`` sends for ``distribution``.

    ``instance_type`` is None where the job has instance groups: the SDK then sends it as null, or not at all. The
    TensorFlow estimator's ``model_dir`` isn't among them: it belongs to the job.

    Raises:
        UsageError: a key is unknown or on the wrong level, or a strategy is another framework's; the message shows how.
    """
    if framework not in _FRAMEWORKS:
        raise UsageError(f"the framework {shown(framework)} isn't one of {', '.join(_FRAMEWORKS)}")
    settings = {key: _settings(key, value) for key, value in _checked(distribution).items()}
    groups = settings.pop("instance_groups", None)
    _check_framework(settings, framework)
    sent: dict[str, Any] = {}
    if groups is not None and set(settings) != {"torch_distributed"}:
        sent["sagemaker_distribution_instance_groups"] = groups
    if framework == "pytorch" and "pytorchddp" in settings:  # rewritten by the SDK: PyTorch DDP over SMDDP
        settings["smdistributed"] = {"dataparallel": settings.pop("pytorchddp")}
    sent.update(_mpi(settings))
    drop_smdistributed = framework == "huggingface" and "torch_distributed" in settings
    if not drop_smdistributed:
        sent.update(_smdistributed(settings, instance_type))
    sent.update(_simple(settings))
    torch_like = "torch_distributed" in settings or "pytorchddp" in settings
    if torch_like and instance_type is not None:
        sent["sagemaker_instance_type"] = instance_type
    return {name: json.dumps(value) for name, value in sent.items()}


def _checked(distribution: Any) -> dict[str, Any]:
    chosen = mapping(distribution, "the distribution")
    for key in chosen:
        if key in _INSIDE_SMDISTRIBUTED:
            raise UsageError(f'the distribution has "{key}" outside "smdistributed"; expected {FORMS["smdistributed"]}')
        if key not in FORMS:
            raise UsageError(
                f"the distribution has the unknown key {shown(key)}, expected one of:\n" + "\n".join(FORMS.values())
            )
    return chosen


def _settings(key: str, value: Any, form: str = "") -> Any:
    """One strategy's object, checked: only known keys, and ``enabled`` is there."""
    where, form = f'the distribution\'s "{key}"', form or FORMS[key]
    if key == "instance_groups":
        if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
            raise wrong(where, value, form)
        return value
    if not isinstance(value, dict):
        raise wrong(where, value, form)
    for inner in value:
        if inner not in _KEYS[key]:
            hint = "; set --slots instead" if inner == "processes_per_host" else ""
            raise UsageError(f"{where} has the unknown key {shown(inner)}{hint}, expected {form}")
    if key == "smdistributed":
        if not value:
            raise wrong(where, value, form)
        return {inner: _settings(inner, entry, form) for inner, entry in value.items()}
    if not isinstance(value.get("enabled"), bool):
        raise wrong(f'{where} "enabled"', value.get("enabled"), form)
    return value


def _check_framework(settings: Mapping[str, Any], framework: str) -> None:
    only = {
        "multi_worker_mirrored_strategy": ("tensorflow",),
        "torch_distributed": ("pytorch", "huggingface"),
        "pytorchddp": ("pytorch", "huggingface"),
    }
    for key, frameworks in only.items():
        if key in settings and framework not in frameworks:
            raise UsageError(f'the distribution "{key}" is for {" and ".join(frameworks)}, not for {framework}')
    if "multi_worker_mirrored_strategy" in settings:
        for other in ("smdistributed", "parameter_server"):
            if other in settings:
                raise UsageError(f'the distribution has "multi_worker_mirrored_strategy" beside "{other}": choose one')


def _mpi(settings: Mapping[str, Any]) -> dict[str, Any]:
    sent: dict[str, Any] = {}
    if "mpi" in settings:
        mpi = settings["mpi"]
        sent["sagemaker_mpi_enabled"] = mpi["enabled"]
        if mpi.get("processes_per_host"):
            sent["sagemaker_mpi_num_of_processes_per_host"] = count(
                mpi["processes_per_host"], 'the distribution\'s "mpi" "processes_per_host"'
            )
        sent["sagemaker_mpi_custom_mpi_options"] = _options(mpi, "mpi")
    return sent


def _smdistributed(settings: Mapping[str, Any], instance_type: str | None) -> dict[str, Any]:
    if "smdistributed" not in settings:
        return {}
    sent: dict[str, Any] = {}
    model = settings["smdistributed"].get("modelparallel", {})
    if model.get("enabled"):
        sent["mp_parameters"] = mapping(model.get("parameters") or {}, 'the distribution\'s "parameters"')
    data = settings["smdistributed"].get("dataparallel", {})
    sent["sagemaker_distributed_dataparallel_enabled"] = data.get("enabled", False)
    sent["sagemaker_instance_type"] = instance_type
    if data.get("enabled"):
        sent["sagemaker_distributed_dataparallel_custom_mpi_options"] = _options(data, "dataparallel")
    return sent


def _options(settings: Mapping[str, Any], key: str) -> str:
    return text(settings.get("custom_mpi_options"), f'the distribution\'s "{key}" "custom_mpi_options"')


def _simple(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The strategies that have only the key ``enabled``."""
    names = {
        "torch_distributed": "sagemaker_torch_distributed_enabled",
        "pytorchddp": "sagemaker_pytorch_ddp_enabled",
        "pytorchxla": "sagemaker_pytorch_xla_multi_worker_enabled",
        "parameter_server": "sagemaker_parameter_server_enabled",
        "multi_worker_mirrored_strategy": "sagemaker_multi_worker_mirrored_strategy_enabled",
    }
    return {name: settings[key]["enabled"] for key, name in names.items() if key in settings}
