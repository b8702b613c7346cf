"""What this host has: processors, accelerators, interfaces, and the settings they call for.

What only hosts with accelerators, or with ssh between them, need is imported when it is first used.
"""

from typing import TYPE_CHECKING

from musterpoint.base.doors import opened_when_used

__all__ = ["facts", "ssh"]

if TYPE_CHECKING:
    from musterpoint.core.fabric import facts, ssh
else:
    __getattr__ = opened_when_used(__name__, __all__)
