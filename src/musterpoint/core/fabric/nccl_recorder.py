"""Makes torch keep, and write down, what NCCL did last: its flight recorder.

Sources: torch 2.13 (commit cf30153c4c13), ``torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp`` and ``.cpp`` (the
variables, and ``DumpPipe``: a named pipe ``<stem><rank>.pipe``, and whatever is written to it makes the rank dump;
the monitor looks at it every second as long as dumps on a timeout are on, and every eight minutes else) and
``FlightRecorder.hpp`` (a dump is the file ``<prefix><rank>``; 2,000 entries are kept unless told otherwise). Earlier
versions know only ``TORCH_NCCL_TRACE_BUFFER_SIZE``, and some keep nothing by themselves: there these settings do
nothing. Both names of one setting make later versions warn, as the old name of the file does once a dump is written;
the new one is unknown to the earlier.
"""

from __future__ import annotations

import os
import zlib
from typing import Mapping

from musterpoint.core.fabric.devices import Devices
from musterpoint.core.fabric.setting import EnvSetting

ENTRIES = "TORCH_FR_BUFFER_SIZE"
FILE = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
ON_TIMEOUT = "TORCH_NCCL_DUMP_ON_TIMEOUT"
OTHER_NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_FR_DUMP_DYNAMIC_FILE_NAME", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Names of the same settings; who sets one of them, or one of ours, has a plan of their own."""
PREFIX = "muster-nccl-"
"""How the names of these files begin."""


def flight_recorder_settings(
    devices: Devices, session: str, host: str, environ: Mapping[str, str]
) -> tuple[EnvSetting, ...]:
    """The settings for a host with NVIDIA GPUs; none where the user has set one, or where no file can be written.

    ``session`` tells this job's files from those of others, ``host`` this host's from those of others on one machine.
    """
    folder = environ.get("TMPDIR") or "/tmp"
    own = any(name in environ for name in (ENTRIES, FILE, PIPE, ON_TIMEOUT, *OTHER_NAMES))
    if not devices.gpus or own or not os.access(folder, os.W_OK | os.X_OK):
        return ()
    stem = os.path.join(folder, f"{PREFIX}{zlib.crc32(f'{session} {host}'.encode()):08x}-")
    reason = "what NCCL did last is kept when the job stalls or NCCL runs into its timeout"
    return (
        EnvSetting(ENTRIES, "2000", reason),
        EnvSetting(ON_TIMEOUT, "1", reason),
        EnvSetting(FILE, stem, reason),
        EnvSetting(PIPE, stem, reason),
    )
