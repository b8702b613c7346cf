"""A stop that came while the hosts were still gathering."""

from __future__ import annotations

from musterpoint import exit_codes
from musterpoint.errors import MusterError


class Abandoned(MusterError):
    """``host`` was told to stop by ``signal``, ``when`` no rank had started; every host that was reached stops."""

    code = exit_codes.STOPPED

    def __init__(self, host: str, signal: int, when: str = "during the roll call") -> None:
        super().__init__(f"{host} was told to stop (signal {signal}) {when}")
        self.host = host
        self.signal = signal
