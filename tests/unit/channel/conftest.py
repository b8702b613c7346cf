"""The same hosts and cable as the roll call's tests have."""

from __future__ import annotations

from ..rollcall.conftest import EVER, LIMITS, OFFER, SHORT_CUT, SHORT_SILENCE, UNHURRIED, cable, port, start

__all__ = ["EVER", "LIMITS", "OFFER", "SHORT_CUT", "SHORT_SILENCE", "UNHURRIED", "cable", "port", "start"]
