"""The hosts and the cable of :mod:`tests.unit.meeting` for this folder's tests."""

from __future__ import annotations

from ...meeting import cable, port, start

__all__ = ["cable", "port", "start"]
