"""Where the intermediate outputs go: the hyperparameter ``sagemaker_s3_output``, decoded."""

import os
from typing import Mapping, NamedTuple

from musterpoint.errors import UsageError
from musterpoint.job.hyperparameters import text_of
from musterpoint.job.model import Hyperparameter

NAME = "sagemaker_s3_output"


class Target(NamedTuple):
    """``place`` is the hyperparameter's text. A bucket and a key prefix without a slash at its end; both are empty for
    ``file://``, where a mount is all that is needed.
    """

    place: str
    bucket: str = ""
    prefix: str = ""

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}/"


def target_of(hyperparameters: tuple[Hyperparameter, ...], environ: Mapping[str, str]) -> Target | None:
    """The job's target, None where it names none. Keys are those of sagemaker-training's ``intermediate_output.py``:
    the output path, the variable ``TRAINING_JOB_NAME``, ``output/intermediate``.

    Raises:
        UsageError: it is neither ``s3://BUCKET/…`` nor ``file://…``.
    """
    place = text_of(hyperparameters, NAME)
    if not place or place.startswith("file://"):
        return Target(place) if place else None
    bucket, _, path = place.removeprefix("s3://").partition("/")
    if not place.startswith("s3://") or not bucket:
        raise UsageError(f"{NAME}={place!r}: expected s3://BUCKET/PREFIX or file://DIRECTORY")
    prefix = os.path.join(path.lstrip("/"), environ.get("TRAINING_JOB_NAME", ""), "output", "intermediate")
    return Target(place, bucket, prefix)
