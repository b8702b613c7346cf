"""SageMaker's directories in a container, which other platforms may have mounted, too."""

import os
from typing import Mapping

from musterpoint.core.job.model import Paths

BASE = "/opt/ml"
VARIABLES: Mapping[str, str] = {
    "model": "SM_MODEL_DIR", "output": "SM_OUTPUT_DIR", "output_data": "SM_OUTPUT_DATA_DIR",
    "output_intermediate": "SM_OUTPUT_INTERMEDIATE_DIR", "checkpoints": "SM_CHECKPOINT_DIR",
    "input": "SM_INPUT_DIR", "input_config": "SM_INPUT_CONFIG_DIR", "input_data": "SM_INPUT_DATA_DIR",
}  # fmt: skip
"""The fields of :class:`Paths` that are directories, and the variables by which ranks know them."""


def base_of(environ: Mapping[str, str]) -> str:
    """The base directory: ``SAGEMAKER_BASE_DIR``, else ``/opt/ml``."""
    return os.path.abspath(environ.get("SAGEMAKER_BASE_DIR") or BASE)


def paths_of(base: str) -> Paths:
    """SageMaker's directories below ``base``."""
    output = os.path.join(base, "output")
    return Paths(
        base=base,
        input=os.path.join(base, "input"),
        input_config=os.path.join(base, "input", "config"),
        input_data=os.path.join(base, "input", "data"),
        model=os.path.join(base, "model"),
        output=output,
        output_data=os.path.join(output, "data"),
        output_intermediate=os.path.join(output, "intermediate"),
        failure=os.path.join(output, "failure"),
        success=os.path.join(output, "success"),
        code=os.path.join(base, "code"),
        checkpoints=os.path.join(base, "checkpoints"),
    )


def can_be_made(path: str) -> bool:
    """Tells whether this process can write to the directory, or make it."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)
