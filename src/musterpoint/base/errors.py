"""The errors that end a job before its ranks do, each with its exit code.

Every message is one clear sentence: which file, key, option, host or rank, what was there, what was expected and what
to do about it.
"""

from __future__ import annotations

from typing import Iterable, Sequence

from musterpoint.base import exit_codes

_LONGEST_MESSAGE = 3000


class MusterError(Exception):
    """Ends the job with a code of musterpoint's own. ``str(error)`` is the message that people read."""

    code = exit_codes.INTERNAL


class UsageError(MusterError):
    """A file, key, variable or option is wrong, or an entry point is missing.

    What is wrong may be a hundred thousand characters long: of such a message the beginning and the end are kept.
    """

    code = exit_codes.USAGE

    def __init__(self, message: str) -> None:
        most = _LONGEST_MESSAGE
        if len(message) > most:
            message = f"{message[: most // 2]} [{len(message) - most} characters left out] {message[-most // 2 :]}"
        super().__init__(message)


class RollCallError(MusterError):
    """Not every host joined by the deadline. The message has the table of hosts and stages."""

    code = exit_codes.ROLLCALL


class FetchError(MusterError):
    """The user's code or its requirements could not be fetched or installed."""

    code = exit_codes.FETCH


class LauncherError(MusterError):
    """The launcher can't start, or started another number of ranks than planned."""

    code = exit_codes.LAUNCHER


class CheckError(MusterError):
    """A check before the launch found what would make the job fail (``MUSTER_CHECK=fail``)."""

    code = exit_codes.CHECK


PREPARING = "while its code was being made ready"
IN_ROLL_CALL = "during the roll call"


class StoppedEarly(MusterError):
    """The job was stopped before any rank had started, on any host.

    ``host``: the host that got the signal; every other host that it can reach stops too.
    ``signal``: the number of the signal.
    ``when``: at which step, for the message: :data:`PREPARING` or :data:`IN_ROLL_CALL`.
    """

    code = exit_codes.STOPPED

    def __init__(self, host: str, signal: int, when: str = IN_ROLL_CALL) -> None:
        super().__init__(f"{host} was told to stop (signal {signal}) {when}")
        self.host = host
        self.signal = signal


def similar(word: str, known: Iterable[str], cutoff: float = 0.75) -> str:
    """The name that somebody meant who gave ``word``: the most similar of ``known``; empty: none is.

    ``cutoff``: from 0, what is like nothing of it, to 1, the same word.
    """
    import difflib  # 8 ms with what it imports

    return next(iter(difflib.get_close_matches(word, list(known), 1, cutoff)), "")


def chosen(choices: Sequence[str], text: str, where: str) -> str:
    """``text``, which must be one of ``choices``; a UsageError names ``where`` (a flag or variable)."""
    if text not in choices:
        near = similar(text, choices, 0.6) if len(choices) > 4 else ""
        meant = f" (did you mean {near}?)" if near else ""
        raise UsageError(f"{where}={shown_text(text)}: expected one of {', '.join(choices)}{meant}")
    return text


def shown_text(text: str) -> str:
    """``text`` in quotation marks, without the end of a long one."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


_SHOWN = 80
