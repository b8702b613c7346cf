"""The user's code on this host, and the argv that starts it.

What fetches code, installs packages and asks interpreters is imported when it is first used.
"""

from typing import TYPE_CHECKING

from musterpoint.base.doors import opened_when_used

__all__ = ["fetch", "install", "interpreter", "mark", "source", "tools"]

if TYPE_CHECKING:
    from musterpoint.core.code import fetch, install, interpreter, mark, source, tools
else:
    __getattr__ = opened_when_used(__name__, __all__)
