"""The reports of how a job ended: failure file, outcome.json, timeline. Never raises.

A door: but for the output directory, its modules are imported when the job ends.
"""

from typing import TYPE_CHECKING

from musterpoint.base.doors import opened_when_used

__all__ = ["collected", "files", "ownership", "trainjob_progress", "trainjob_status"]

if TYPE_CHECKING:
    from musterpoint.core.report import collected, files, ownership, trainjob_progress, trainjob_status
else:
    __getattr__ = opened_when_used(__name__, __all__)
