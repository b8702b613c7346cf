"""SageMaker's SDK v3 on an image with musterpoint: a job that calls the SDK's own driver runs under musterpoint.

ModelTrainer uploads its drivers with every job, and its ``sm_train.sh`` runs one as ``python3 DRIVER``. With
``container/sagemaker_drivers.pth`` in the image that Python calls :func:`take_over` before anything else
(``sagemaker.train.container_drivers``, read at 1.27.0).

Before them ``sm_train.sh`` has a script write the job's variables and sources them. That script escapes nothing: a
hyperparameter ``it's`` or a channel ``val-1`` would end the job there.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
from importlib.util import find_spec
from typing import Callable, Mapping, Sequence

DRIVERS = {"mpi_driver.py": "mpi", "torchrun_driver.py": "torchrun", "basic_script_driver.py": "script"}
"""The SDK's drivers, and our launchers for the same purpose."""

SWITCH = "MUSTER_SDK_DRIVERS"
"""``off`` in a job's environment leaves the SDK's drivers alone."""

VARIABLES = "environment.py"
"""The SDK's script that writes :data:`WRITTEN`, for a shell to source."""
WRITTEN = "/opt/ml/input/sm_training.env"
_EXPORT = re.compile(r"^export ([^\n]+?)='(.*?)'\n(?=export |\Z)", re.DOTALL | re.MULTILINE)


def take_over() -> None:
    """Replaces this process by musterpoint's driver. Returns where the job isn't for musterpoint."""
    if os.path.basename(sys.orig_argv[-1]) == VARIABLES and os.environ.get(SWITCH) != "off":
        atexit.unregister(quote_file)  # two .pth files may call this
        atexit.register(quote_file, WRITTEN)
        return
    launcher = launcher_of(sys.orig_argv, os.environ)
    if launcher:
        environ = {"MUSTER_LAUNCHER": launcher, **os.environ}
        os.execve(sys.executable, [sys.executable, "-I", "-m", "musterpoint.cli.driver"], environ)


def model_parallel_installed() -> bool:
    """Whether AWS's model-parallel library is in this Python: version 2 is a part of its torch."""
    torch = find_spec("torch")
    places = torch.submodule_search_locations if torch is not None else None
    return any(os.path.isdir(os.path.join(place, "sagemaker")) for place in places or ())


def launcher_of(
    argv: Sequence[str], environ: Mapping[str, str], has_smp: Callable[[], bool] = model_parallel_installed
) -> str:
    """The launcher that replaces the driver in ``argv``; empty: there is no driver, or it must run itself.

    A driver with ``smp`` runs itself where AWS's library is; elsewhere scripts get musterpoint's ``torch.sagemaker``.
    """
    launcher = DRIVERS.get(os.path.basename(argv[-1]), "") if argv else ""
    if not launcher or environ.get(SWITCH) == "off" or not environ.get("SM_ENTRY_SCRIPT"):
        return ""
    try:
        config = json.loads(environ.get("SM_DISTRIBUTED_CONFIG") or "{}")
    except ValueError:
        return ""
    if not isinstance(config, dict) or (config.get("smp") and has_smp()):
        return ""
    return launcher


def quote_file(path: str) -> None:
    """Escapes the values that the SDK wrote to ``path``, so that a shell reads them correctly."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(quoted(text))
    except (OSError, ValueError):
        return  # the SDK's script says what went wrong, or the shell does


def quoted(exports: str) -> str:
    """``export NAME='VALUE'`` lines, with quotes in values escaped and ``_`` for characters that no name may have.

    A text with anything else in it, or with escapes, comes from another SDK version and stays as it is.
    """
    found = _EXPORT.findall(exports)
    written = "".join(f"export {name}='{value}'\n" for name, value in found)
    if written != exports or any("'\\''" in value or "'\"'\"'" in value for _name, value in found):
        return exports
    lines: dict[str, str] = {}
    for name, value in sorted(found, key=lambda pair: not pair[0].isidentifier()):
        lines.setdefault(re.sub(r"\W", "_", name, flags=re.ASCII), value.replace("'", "'\\''"))
    return "".join(f"export {name}='{value}'\n" for name, value in lines.items())
