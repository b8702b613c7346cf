"""What a part of the supervisor works with in these tests."""

from __future__ import annotations

from typing import Any, Callable

from musterpoint.base.loop import Loop
from musterpoint.core.processes.pump import Pump
from musterpoint.core.processes.sidecars import Sidecars
from musterpoint.core.supervise.context import SupervisorContext


def record_nothing(event: str, /, **facts: Any) -> None:
    """A timeline that nobody reads."""


def context_for(
    loop: Loop, pump: Pump, record: Callable[..., None] = record_nothing, say: Callable[[str], None] = print,
    oom_kills: Callable[[], int] = lambda: 0,
) -> SupervisorContext:  # fmt: skip
    return SupervisorContext(loop, pump, Sidecars(loop), say, record, "algo-1", oom_kills=oom_kills)
