"""What a part of the supervisor works with in these tests."""

from __future__ import annotations

from typing import Any, Callable

from musterpoint.loop import Loop
from musterpoint.processes.pump import Pump
from musterpoint.processes.sidecars import Sidecars
from musterpoint.supervise.context import SupervisorContext


def record_nothing(event: str, /, **facts: Any) -> None:
    """A timeline that nobody reads."""


def context_for(
    loop: Loop, pump: Pump, record: Callable[..., None] = record_nothing, say: Callable[[str], None] = print,
    oom_kills: Callable[[], int] = lambda: 0,
) -> SupervisorContext:  # fmt: skip
    return SupervisorContext(loop, pump, Sidecars(loop), say, record, "algo-1", oom_kills=oom_kills)
