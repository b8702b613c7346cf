"""A stop that came while the hosts were still gathering."""

from __future__ import annotations

from musterpoint import exit_codes
from musterpoint.errors import MusterError


class Abandoned(MusterError):
    """``host`` was told to stop by ``signal`` during the roll call; every host that was reached stops."""

    code = exit_codes.STOPPED

    def __init__(self, host: str, signal: int) -> None:
        super().__init__(f"{host} was told to stop (signal {signal}) during the roll call")
        self.host = host
        self.signal = signal
