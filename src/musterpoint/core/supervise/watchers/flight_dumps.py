"""Keeps what torch wrote about NCCL's last collectives when NCCL ran into its timeout, and removes it where it was."""

from __future__ import annotations

import os

from musterpoint.base.untrusted import open_regular_nofollow
from musterpoint.core.fabric.nccl_recorder import FILE, PREFIX
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.watcher import Watched, Watcher

RECORD = "flight_recorder_rank_"
"""How the names of kept records begin; the rank follows, as ``torchfrtrace`` expects it."""
MOST_RECORDS = 64
"""Of one host."""


def stem_of(plan: LaunchPlan) -> str:
    """How the paths of torch's dumps and pipes begin that ``plan`` asks for; empty: it doesn't."""
    stem = next((setting.value for setting in plan.environment if setting.name == FILE), "")
    return stem if os.path.basename(stem).startswith(PREFIX) else ""


def keep_record(context: SupervisorContext, rank: str, record: bytes) -> str:
    """Keeps a record with secrets hidden; returns its path, empty where it can't be kept, which is said."""
    from musterpoint.core.diagnosis import standstill  # 4 ms, for ranks that hang

    try:
        return context.keep(f"{RECORD}{rank}", standstill.masked(record, context.mask))
    except (OSError, ValueError) as error:
        context.say(f"warning: what torch's flight recorder has of rank {rank} can't be kept: {error}")
        return ""


def collect(context: SupervisorContext, stem: str, failed: bool) -> None:
    """When all processes have ended: keeps the dumps if the job ``failed``, and removes dumps and pipes."""
    folder, start = os.path.split(stem)
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(start))
    except OSError:
        return
    kept: list[str] = []
    for name in names:
        rank, path = name.removeprefix(start), os.path.join(folder, name)
        if failed and rank.isdecimal() and len(kept) < MOST_RECORDS:
            from musterpoint.core.diagnosis import standstill  # as in keep_record

            try:
                with open(open_regular_nofollow(path, os.O_RDONLY), "rb") as file:
                    kept.append(keep_record(context, str(int(rank)), file.read(standstill.MOST_BYTES + 1)))
            except OSError:
                pass  # removed meanwhile
        try:
            os.unlink(path)
        except OSError:
            pass
    if any(kept):
        context.say(f"what NCCL did last is in {os.path.dirname(kept[0])} (read it with torchfrtrace)")


class FlightDumps(Watcher):
    """Collects the dumps of an attempt when it is over."""

    def __init__(self, context: SupervisorContext, stem: str) -> None:
        self._context, self._stem = context, stem

    def over(self, failed: bool) -> None:
        if self._stem:
            collect(self._context, self._stem, failed)


def watch(watched: Watched) -> FlightDumps:
    """Watches for what torch writes where the plan says."""
    return FlightDumps(watched.context, stem_of(watched.processes.plan))
