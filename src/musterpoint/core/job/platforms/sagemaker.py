"""SageMaker: files in ``/opt/ml/input/config``, or the ``SM_*`` variables of a toolkit that started this process."""

from __future__ import annotations

import json
import os
from typing import Mapping

from musterpoint.base.settings import MODULE, PROGRAM_ARGS, Settings
from musterpoint.core.job.fields import text, wrong
from musterpoint.core.job.model import Job
from musterpoint.core.job.opt_ml import paths_of
from musterpoint.core.job.platform import EXPECTED, DocsRow, Platform
from musterpoint.core.job.sagemaker_files import NAME, has_tree, ignored_program, read_tree
from musterpoint.core.job.toolkit_env import has_variables, read_variables


def _found(environ: Mapping[str, str], base: str) -> bool:
    return has_variables(environ) or has_tree(base)


def _presumed(_environ: Mapping[str, str], base: str) -> bool:
    """An input folder without its main file."""
    return os.path.isdir(paths_of(base).input_config)


def read_job(environ: Mapping[str, str], settings: Settings, base: str) -> Job:
    """The job that the tree under ``base`` describes, or the variables where there is none.

    Raises:
        UsageError: a file, key or variable is missing or wrong.
    """
    if has_tree(base) or not has_variables(environ):
        return read_tree(base, environ, settings)
    return read_variables(environ, settings, base)


def _with_program(job: Job, environ: Mapping[str, str]) -> Job:
    """``job`` with the program that the platform names, as ``muster local`` adds to it."""
    return job._replace(
        entry_point=job.entry_point._replace(module=job.entry_point.module or bool(environ.get(MODULE))),
        arguments=(*job.arguments, *_typed(environ)),
        notes=(*job.notes, *ignored_program(job.hyperparameters, environ)),
    )


def _typed(environ: Mapping[str, str]) -> tuple[str, ...]:
    text_of_list = environ.get(PROGRAM_ARGS, "")
    if not text_of_list:
        return ()
    try:
        words = json.loads(text_of_list)
    except (ValueError, RecursionError):
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise wrong(PROGRAM_ARGS, text_of_list, "a JSON list of strings")
    return tuple(text(word, PROGRAM_ARGS) for word in words)


def _missing_channel(name: str, has: str, local: bool) -> str:
    here = f"muster local --channel {name}=PATH" if local else f"fit({{'{name}': ...}})"
    return f"the job has no input channel {name} ({has}): {here} gives it one"


PLATFORM = Platform(
    name=NAME,
    title="SageMaker",
    read=read_job,
    variables=("SM_", "SAGEMAKER_", "TRAINING_JOB_"),
    found=_found,
    presumed=_presumed,
    own_program=_with_program,
    folder=None,
    tensorflow_keys={"environment": "cloud"},
    standins=("sagemaker_training",),
    exports_reason=EXPECTED[0],
    installs=True,
    missing_channel=_missing_channel,
    row=DocsRow(
        "#sagemaker",
        "files in `/opt/ml/input/config`",
        "`train`, or `muster launch …` in an entry point",
        "120 s of grace; failure reason and model in `/opt/ml`",
        "`/opt/ml`, as wherever that is mounted",
        "`/opt/ml/output/failure`, shown as the job's `FailureReason`",
    ),
)
