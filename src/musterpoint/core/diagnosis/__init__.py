"""Makes one failure of how a process ended and what it printed last. No I/O; never raises.

Most jobs have no failure, so its modules are imported when they are first used.
"""

from typing import TYPE_CHECKING

from musterpoint.base.doors import opened_when_used

__all__ = ["facts", "failures", "program_output", "raised_facts", "retry"]

if TYPE_CHECKING:
    from musterpoint.core.diagnosis import facts, failures, program_output, raised_facts, retry
else:
    __getattr__ = opened_when_used(__name__, __all__)
