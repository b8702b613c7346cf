"""Plans what this host starts, and why, from the job, the roster and this host's devices. It does no I/O.

What only several hosts, accelerators, ssh or a word that is no command need of it is imported when it is first used.
"""

from typing import TYPE_CHECKING

from musterpoint.base.doors import opened_when_used

__all__ = ["expansion", "fabric", "ssh", "table"]

if TYPE_CHECKING:
    from musterpoint.core.launch import expansion, fabric, ssh, table
else:
    __getattr__ = opened_when_used(__name__, __all__)
