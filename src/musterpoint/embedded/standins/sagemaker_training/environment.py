"""``environment.Environment()``, which AWS's guides use in training scripts, made from the job's ``SM_*`` variables.

Names and values are as in sagemaker-training 5.1.4, except for the differences that docs/sagemaker.md lists.
"""

from __future__ import annotations

import json
import os
from typing import Any, Iterator, Mapping

base_dir = os.environ.get("SAGEMAKER_BASE_DIR") or "/opt/ml"
code_dir = os.path.join(base_dir, "code")
model_dir = os.path.join(base_dir, "model")
input_dir = os.path.join(base_dir, "input")
input_config_dir = os.path.join(input_dir, "config")
output_dir = os.path.join(base_dir, "output")
output_data_dir = os.path.join(output_dir, "data")
output_intermediate_dir = os.path.join(output_dir, "intermediate")


class Environment(Mapping[str, Any]):
    """A read-only snapshot of the job, as attributes and as a mapping."""

    def __init__(self) -> None:
        try:
            self._values = json.loads(os.environ["SM_TRAINING_ENV"])
        except (KeyError, ValueError):
            raise RuntimeError(
                "sagemaker_training.environment: the variable SM_TRAINING_ENV isn't set to a JSON object; it is for "
                'programs of a training job (in a container\'s shell: eval "$(muster env --format export)")'
            ) from None

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_values", ()):
            return self._values[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __str__(self) -> str:
        return str(dict(self))

    def properties(self) -> list[str]:
        """The names of all attributes."""
        return sorted(self._values)

    def sagemaker_s3_output(self) -> Any:
        """Where intermediate output goes; None where the job doesn't say."""
        return read_hyperparameters().get("sagemaker_s3_output")

    def to_cmd_args(self) -> list[str]:
        """The hyperparameters as this program got them."""
        arguments: list[str] = json.loads(os.environ["SM_USER_ARGS"])
        return arguments

    def to_env_vars(self) -> dict[str, str]:
        """The job's variables."""
        return {name: value for name, value in os.environ.items() if name.startswith("SM_")}


def channel_path(channel: str) -> str:
    """The directory of an input channel."""
    return os.path.join(input_dir, "data", channel)


def read_hyperparameters() -> dict[str, Any]:
    """All hyperparameters of the job's file, decoded where they are JSON."""
    return {name: _decoded(value) for name, value in _read("hyperparameters.json").items()}


def read_resource_config() -> dict[str, Any]:
    """The job's ``resourceconfig.json``."""
    return _read("resourceconfig.json")


def read_input_data_config() -> dict[str, Any]:
    """The job's ``inputdataconfig.json``."""
    return _read("inputdataconfig.json")


def num_gpus() -> int:
    """GPUs of this host."""
    return _count("SM_NUM_GPUS")


def num_cpus() -> int:
    """Processors of this host."""
    return _count("SM_NUM_CPUS")


def _count(name: str) -> int:
    return int(os.environ.get(name) or 0)


def _read(name: str) -> dict[str, Any]:
    with open(os.path.join(input_config_dir, name), encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def _decoded(value: Any) -> Any:
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value
