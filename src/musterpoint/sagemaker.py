"""musterpoint as the distributed runner of SageMaker's Python SDK v3, on any image with a Python.

    from musterpoint.sagemaker import Muster
    ModelTrainer(..., distributed=Muster(process_count_per_node=8))

The SDK uploads the one-file launcher with the job and runs it in place of its own torchrun or MPI driver, so the image
needs no musterpoint. This module is for the machine that submits jobs; it needs ``sagemaker-train``.
"""

from __future__ import annotations

import functools
import os
import tempfile

from pydantic import ConfigDict, model_validator
from sagemaker.train.distributed import DistributedConfig

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import BY_FIELD, Settings
from musterpoint.cli.bundle import bundle
from musterpoint.cli.driver import FIELDS, NAME
from musterpoint.cli.options import read_option


class Muster(DistributedConfig):
    """Runs a ModelTrainer's entry script through musterpoint's launcher.

    Every option of ``muster launch`` is a field, such as ``rollcall_timeout=60`` or ``log_prefix="rank"``; see the
    table of options for their meaning. A wrong option is an error here, before anything is uploaded.

    Parameters:
        process_count_per_node: ranks per host; the host's GPUs, else its Neuron cores, else 1.
        launcher: how ranks are started; ``auto`` is torchrun where there are several slots or hosts and the image's
            Python has torch.

    Raises:
        pydantic.ValidationError: an option is unknown or its value is wrong; the message names it.
    """

    model_config = ConfigDict(extra="allow")

    process_count_per_node: int | None = None
    launcher: str = Settings().launcher

    @model_validator(mode="after")
    def _check(self) -> Muster:
        for name, value in self.model_dump(exclude_none=True).items():
            option = BY_FIELD.get(FIELDS.get(name, name))
            if option is None or name in FIELDS.values():
                raise ValueError(f"Muster has no option {name!r}, expected one of {', '.join(_names())}")
            if option.secret:
                raise ValueError(
                    f"{name} would be readable in the job's description and files: leave it out, or set "
                    f"{option.variable} in the image"
                )
            try:
                read_option(option, str(value), name)
            except UsageError as error:  # pydantic gathers only errors of this kind
                raise ValueError(str(error)) from None
            if "'" in str(value):
                raise ValueError(f"{name}={value!r}: the SDK's scripts can't carry a single quote, leave it out")
        return self

    @property
    def driver_dir(self) -> str:
        """The folder with the launcher; the SDK copies all that is in it."""
        return _folder().name

    @property
    def driver_script(self) -> str:
        """The launcher's file name there; it makes the file act as the driver."""
        return f"{NAME}.py"


def _names() -> list[str]:
    swapped = {option: name for name, option in FIELDS.items()}
    return [swapped.get(field, field) for field, option in BY_FIELD.items() if not option.secret]


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """The folder with the launcher: made on first use, removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="musterpoint-")
    os.chmod(folder.name, 0o755)  # the SDK copies the mode, too, and containers need not run as this user
    path = os.path.join(folder.name, f"{NAME}.py")
    with open(path, "w", encoding="ascii", newline="\n") as file:
        file.write(bundle())
    os.chmod(path, 0o755)
    return folder
