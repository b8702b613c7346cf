"""What of a job is secret: the masker that knows its hyperparameters, arguments and configuration files."""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

from musterpoint.job.fields import LARGEST_FILE
from musterpoint.job.model import Job
from musterpoint.job.sagemaker import base_of, paths_of
from musterpoint.masking import Masker
from musterpoint.untrusted import open_regular


def masker_of(environ: Mapping[str, str], job: Job) -> Masker:
    """Hides the secrets of ``job`` and of ``environ``."""
    values = {entry.name: [entry.value, entry.raw] for entry in job.hyperparameters}
    return Masker(environ, values, job.arguments, job.files)


def masker_of_files(environ: Mapping[str, str], arguments: Sequence[str] = ()) -> Masker:
    """Hides the secrets of a job that can't be read, by what its configuration files say. Raises nothing."""
    folder = paths_of(base_of(environ)).input_config
    files: dict[str, Any] = {}
    try:
        for name in os.listdir(folder):
            if name.endswith(".json"):
                _read_into(files, folder, name)
    except OSError:
        pass  # nothing to know secrets from; the error at hand tells of it
    return Masker(environ, arguments=arguments, files=files)


def _read_into(files: dict[str, Any], folder: str, name: str) -> None:
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace", opener=open_regular) as file:
            files[name] = file.read(LARGEST_FILE)
    except OSError:
        pass  # a file less to know secrets from
