"""The data of a job: its channels and its checkpoint before the ranks, its checkpoints beside them, its outputs after.

A door: jobs without such options never enter it. What carries the data is :mod:`musterpoint.core.data`.
"""

from typing import TYPE_CHECKING

from musterpoint.base.doors import opened_when_used

__all__ = ["carrier", "intermediate"]

if TYPE_CHECKING:
    from musterpoint.core.job_data import carrier, intermediate
else:
    __getattr__ = opened_when_used(__name__, __all__)
