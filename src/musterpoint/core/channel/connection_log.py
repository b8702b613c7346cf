"""Warnings and timeline events about connections; their number is limited, whatever the other side sends."""

from __future__ import annotations

from typing import Any, Callable, Hashable

from musterpoint.base.untrusted import printable

_EACH = 8
_MOST_ADDRESSES = 64
_MOST_SAID = 8
_LONGEST = 300


class Sampler:
    """Limits repeated events: each is reported the first 8 times, then whenever its count has doubled."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}

    def count(self, key: Hashable) -> int:
        """How often ``key`` has occurred, or 0 where this occurrence is not reported."""
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return count if count <= _EACH or count & (count - 1) == 0 else 0


class ConnectionLog:
    """``say`` prints a line; ``record`` adds an event and its facts to the timeline."""

    def __init__(self, say: Callable[[str], None], record: Callable[..., None]) -> None:
        self.say = say
        self._record = record
        self._sampler = Sampler()
        self._addresses: set[str] = set()
        self._said: set[str] = set()

    def record(self, event: str, **facts: Any) -> None:
        """Adds an event to the timeline. An event that repeats for one host is sampled, with its count."""
        self._sampled(event, facts.get("host", ""), facts)

    def protocol_error(self, address: str, why: str) -> None:
        """The caller at ``address`` broke the protocol (``why``: ``sent …``), so its connection is closed."""
        why = printable(why, _LONGEST)
        self._sampled("protocol-broken", self._known(address), {"address": address, "why": why})
        self._say_once(address, f"warning: {address} {why}; its connection is closed")

    def internal_error(self, address: str, error: Exception) -> None:
        """A bug of ours, met while what came from ``address`` was handled; that connection is closed, nothing else."""
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        where = f" ({at.tb_frame.f_code.co_filename.rpartition('/')[2]}:{at.tb_lineno})" if at is not None else ""
        what = printable(f"{type(error).__name__}: {error}", _LONGEST) + where
        self._sampled("internal-error", self._known(address), {"address": address, "error": what})
        self._say_once(where, f"warning: internal error, please report it: what {address} sent led to {what}")

    def _sampled(self, event: str, whose: str, facts: dict[str, Any]) -> None:
        times = self._sampler.count((event, whose))
        if times:
            self._record(event, **facts, **({"times": times} if times > 1 else {}))

    def _known(self, address: str) -> str:
        """``address``; empty if too many addresses were seen before."""
        if len(self._addresses) < _MOST_ADDRESSES:
            self._addresses.add(address)
        return address if address in self._addresses else ""

    def _say_once(self, key: str, text: str) -> None:
        if key not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(key)
            self.say(text)
