"""Whether a TensorFlow job has saved a model."""

import os

from musterpoint.core.job.model import Paths

MODEL_KINDS = "SavedModel (saved_model.pb), .keras or .h5 file"


def missing_model(paths: Paths) -> str:
    """A sentence for a job that ended well and left no model among its artifacts; empty if there is one.

    Files of weights alone (``.weights.h5``, checkpoints) are none.
    """
    directory = paths.model
    if not directory or _has_model(directory):
        return ""
    return (
        f"{directory} has no {MODEL_KINDS}: the job's model artifact will hold no TensorFlow model; save it there "
        "on the chief (SM_MODEL_DIR)"
    )


def _has_model(directory: str) -> bool:
    return any(_is_model(name) for _folder, _folders, names in os.walk(directory) for name in names)


def _is_model(name: str) -> bool:
    if name.endswith(".weights.h5"):
        return False
    return name in ("saved_model.pb", "saved_model.pbtxt") or name.endswith((".keras", ".h5", ".hdf5"))
