"""The reports of how a job ended: failure file, outcome.json, timeline. Never raises.

All but the output directory is imported when it is first used, which is at the end of the job.
"""

from typing import TYPE_CHECKING

from musterpoint.base.doors import opened_when_used

__all__ = ["collected", "files", "ownership"]

if TYPE_CHECKING:
    from musterpoint.core.report import collected, files, ownership
else:
    __getattr__ = opened_when_used(__name__, __all__)
