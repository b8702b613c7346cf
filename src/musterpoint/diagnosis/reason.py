"""The failure reason: the few lines that reach the control plane, cut to length here and nowhere else."""

from __future__ import annotations

from typing import Iterable

from musterpoint.failure import MOST_REASON, Failure, Secondary
from musterpoint.untrusted import clip

ERROR_SHARE = 480
"""Bytes of a reason for the error itself where there is more to say."""


def fit(parts: Iterable[str], limit: int = MOST_REASON, last_first: bool = False) -> str:
    """``parts`` as lines within ``limit`` bytes. The first is cut to its share where there are others; then the last.

    ``last_first``: the last part is kept whole and the text before it is cut.
    """
    parts = [part for part in parts if part]
    whole = "\n".join(parts)
    if len(whole.encode("utf-8", "replace")) <= limit:
        return whole
    if last_first:
        kept = "\n" + parts[-1]
        return clip("\n".join(parts[:-1]), limit - len(kept.encode())) + kept
    rest = len("\n".join(parts[1:]).encode("utf-8", "replace")) + 1
    first = clip(parts[0], limit if len(parts) == 1 else max(ERROR_SHARE, limit - rest))
    return clip("\n".join([first, *parts[1:]]), limit)


def with_secondary(failure: Failure, others: Secondary) -> str:
    """``failure``'s reason with what is known of the others."""
    if not others.total:
        return failure.reason
    what = {"the same way": others.same, "after it (peer lost)": others.lost, "with another error": others.other}
    kinds = [(how, count) for how, count in what.items() if count]
    who = "1 other rank" if others.total == 1 else f"{others.total} other ranks"
    said = kinds[0][0] if len(kinds) == 1 else ", ".join(f"{count} {how}" for how, count in kinds)
    return fit([failure.reason, f"{who} failed{' ' if len(kinds) == 1 else ': '}{said}"], last_first=True)


def frame_lines(frame: tuple[str, int, str, str], directories: Iterable[str]) -> str:
    """A frame as Python prints it; a file in one of ``directories`` is named relative to it."""
    file, line, function, code = frame
    for directory in directories:
        file = file.removeprefix(directory.rstrip("/") + "/")
    where = f'  File "{file}", line {line}' + (f", in {function}" if function else "")
    return where + (f"\n    {code}" if code else "")


def signal_name(signo: int) -> str:
    """``SIGKILL`` for 9; ``signal 99`` for one without a name."""
    import signal

    try:
        return signal.Signals(signo).name
    except ValueError:
        return f"signal {signo}"
