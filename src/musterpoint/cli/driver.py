"""The driver for SDK v3's ModelTrainer: its ``sm_train.sh`` runs it in place of the SDK's torchrun or MPI driver.

The script calls ``python DRIVER`` without arguments, in the directory of the user's code. In variables are the entry
script and the fields of :class:`musterpoint.sagemaker.Muster`, or of the SDK's own ``Torchrun`` or ``MPI``
(``sagemaker.train.templates`` and ``container_drivers/scripts/environment.py``, read at 1.27.0).
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import Any, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import BY_FIELD
from musterpoint.cli import job
from musterpoint.cli.errors import guarded
from musterpoint.core.runtime import Request

NAME = "muster_driver"
"""The one-file launcher under this name is the driver."""

ENTRY_SCRIPT = "SM_ENTRY_SCRIPT"
CONFIG = "SM_DISTRIBUTED_CONFIG"
FIELDS = {"process_count_per_node": "slots"}
"""Fields of our class that have the SDK's names, and our options for them."""
SDK_FIELDS = {**FIELDS, "mpi_additional_options": "mpi_options"}
"""The same, and fields that only the SDK's own classes have."""
SMP = "smp"
"""Parameters of the model-parallel library, which the SDK sends as the hyperparameter ``mp_parameters`` as well."""


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Runs the job's entry script on this host as one of the job's hosts; the job's exit code."""
    return guarded(lambda: _run(environ))


def _run(environ: Mapping[str, str]) -> int:
    program = environ.get(ENTRY_SCRIPT, "")
    if not program or program == "null":
        raise UsageError(
            f"{ENTRY_SCRIPT} is not set: this file is the driver of a SageMaker SDK v3 job, which its sm_train.sh "
            f"runs; elsewhere, rename it launcher.py and run `python launcher.py PROGRAM [ARGS...]`"
        )
    # passed on as variables, so that a wrong one is reported like any other error of the job
    options = variables(environ.get(CONFIG, ""))
    return job.run(Request({**environ, **options}, program=program, arguments=None, typed=True))


def variables(config: str) -> dict[str, str]:
    """The ``MUSTER_*`` variables of ``config``, the JSON of a :class:`musterpoint.sagemaker.Muster`.

    Raises:
        UsageError: it isn't such JSON; the message says what was expected.
    """
    try:
        fields = json.loads(config or "{}")
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise UsageError(f"{CONFIG}={config!r}: expected a JSON object, the fields of musterpoint.sagemaker.Muster")
    return {_variable(name): _text(value) for name, value in fields.items() if value is not None and name != SMP}


def _variable(name: str) -> str:
    field = SDK_FIELDS.get(name, name)
    if field not in BY_FIELD:
        known = ", ".join(sorted([*SDK_FIELDS, *BY_FIELD]))
        raise UsageError(f"{CONFIG}: {name!r} is no option of this musterpoint, expected one of {known}")
    return BY_FIELD[field].variable


def _text(value: Any) -> str:
    if isinstance(value, list):
        return shlex.join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)


if __name__ == "__main__":
    sys.exit(main())
