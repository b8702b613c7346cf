"""The few errors that end a job before its ranks do; each knows its exit code.

Every message is one clear sentence: which file, key, option, host or rank, what was there, what was expected and what
to do about it.
"""

from __future__ import annotations

from musterpoint import exit_codes


class MusterError(Exception):
    """Something that ends the job with a code of musterpoint's own. ``str(error)`` is the sentence people read."""

    code = exit_codes.INTERNAL


class UsageError(MusterError):
    """A file, key, variable or option is wrong, or an entry point is missing."""

    code = exit_codes.USAGE


class RollCallError(MusterError):
    """Not every host was here by the deadline. The message holds the table of hosts and stages."""

    code = exit_codes.ROLLCALL


class FetchError(MusterError):
    """The user's code or its requirements could not be fetched or installed."""

    code = exit_codes.FETCH


class LauncherError(MusterError):
    """The launcher can't start, or started another world than the one planned."""

    code = exit_codes.LAUNCHER


class StoppedEarly(MusterError):
    """``host`` was told to stop by ``signal``, ``when`` no rank had started; every host that was reached stops."""

    code = exit_codes.STOPPED

    def __init__(self, host: str, signal: int, when: str = "during the roll call") -> None:
        super().__init__(f"{host} was told to stop (signal {signal}) {when}")
        self.host = host
        self.signal = signal
