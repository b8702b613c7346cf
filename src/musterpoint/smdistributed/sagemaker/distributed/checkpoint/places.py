"""Where checkpoints go."""

from __future__ import annotations

import os

from ...errors import SMPUnsupportedError


def checked(checkpoint_id: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """A path of a file system.

    Raises:
        SMPUnsupportedError: it is on S3.
    """
    if str(checkpoint_id).startswith("s3://"):
        raise SMPUnsupportedError(
            f"checkpoint_id={checkpoint_id}: musterpoint's torch.sagemaker writes to file systems; save to a path "
            "(/opt/ml/checkpoints, which SageMaker uploads), or pass a storage_writer or storage_reader for S3"
        )
    return checkpoint_id
