"""What is odd about how a host's own name looks from itself, without keeping it from being here."""

from __future__ import annotations

from musterpoint.rollcall.dial import is_local
from musterpoint.rollcall.names import Answer

UNANSWERED = Answer((), "the name was not answered yet")


def oddities(me: str, own: Answer, over: bool) -> list[str]:
    """Warnings about ``own``, the addresses of the name ``me``. A resolver that takes longer than the others take to
    be here is none; once the deadline is ``over``, it is.
    """
    if not own.addresses:
        return [] if own == UNANSWERED and not over else [f"warning: on {me} its own name: {own.trouble}"]
    if not any(map(is_local, own.addresses)):
        return [f"warning: {me} resolves to {own.addresses[0]} here, which is none of its addresses"]
    return []
