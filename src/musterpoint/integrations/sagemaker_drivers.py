"""SageMaker's SDK v3 on an image that has musterpoint: where a job calls the SDK's own driver, musterpoint runs it.

ModelTrainer uploads its drivers with every job, and its ``sm_train.sh`` runs one as ``python3 DRIVER``. With
``container/sagemaker_drivers.pth`` in the image that Python calls :func:`take_over` before anything else
(``sagemaker.train.container_drivers``, read at 1.27.0).
"""

from __future__ import annotations

import json
import os
import sys
from typing import Mapping, Sequence

DRIVERS = {"mpi_driver.py": "mpi", "torchrun_driver.py": "torchrun", "basic_script_driver.py": "script"}
"""The SDK's drivers, and our launchers that do what they are for."""

SWITCH = "MUSTER_SDK_DRIVERS"
"""``off`` in a job's environment leaves the SDK's drivers alone."""


def take_over() -> None:
    """Becomes musterpoint's driver: same process id, same place. Returns where the job is none for us."""
    launcher = launcher_of(sys.orig_argv, os.environ)
    if launcher:
        environ = {"MUSTER_LAUNCHER": launcher, **os.environ}
        os.execve(sys.executable, [sys.executable, "-I", "-m", "musterpoint.cli.driver"], environ)


def launcher_of(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """The launcher in place of the driver that ``argv`` calls; empty: it calls none, or one that has to do it itself.

    Torchrun with ``smp`` set up is for the model parallel library in AWS's images.
    """
    launcher = DRIVERS.get(os.path.basename(argv[-1]), "") if argv else ""
    if not launcher or environ.get(SWITCH) == "off" or not environ.get("SM_ENTRY_SCRIPT"):
        return ""
    try:
        config = json.loads(environ.get("SM_DISTRIBUTED_CONFIG") or "{}")
    except ValueError:
        return ""
    return "" if not isinstance(config, dict) or config.get("smp") else launcher
