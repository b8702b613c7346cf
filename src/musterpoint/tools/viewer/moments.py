"""Events on one clock, each with the attempt of the job that it belongs to."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Mapping, NamedTuple, Sequence

from musterpoint.tools.viewer.events import sentence

_MOST_ATTEMPTS = 1_000_000
"""A larger number in a timeline is no attempt's."""


class Event(NamedTuple):
    """One event. ``at``: seconds since the job began. ``facts``: what it tells beside its name."""

    at: float
    host: str
    event: str
    facts: Mapping[str, Any]


class Moment(NamedTuple):
    """An :class:`Event` that has its place. ``attempt``: in which attempt it happened, from 1. ``text``: a sentence."""

    at: float
    host: str
    event: str
    facts: Mapping[str, Any]
    attempt: int
    text: str


def placed(events: Sequence[Event]) -> tuple[Moment, ...]:
    """``events``, oldest first, each with its attempt.

    A host says itself when an attempt begins there. One that doesn't, such as a host that took a lost one's place, or
    the control plane, is in the attempt that has begun elsewhere.
    """
    begins = _begins(events)
    attempts = max((number for own in begins.values() for _, number in own), default=1)
    everywhere = begins.get("", [])
    found = []
    for event in events:
        own = begins.get(event.host, everywhere) if event.host else everywhere
        before = bisect_right(own, event.at, key=lambda begin: begin[0])
        attempt = own[before - 1][1] if before else 1
        found.append(Moment(*event, attempt, sentence(event.event, event.facts, attempt, attempts)))
    return tuple(found)


def _begins(events: Sequence[Event]) -> dict[str, list[tuple[float, int]]]:
    """When which attempt began, for each host that says so; and for the others, by the name of no host."""
    own: dict[str, dict[int, float]] = {}
    everywhere: dict[int, float] = {}
    for event in events:
        if event.event != "restart" or not event.host:
            continue
        here = own.setdefault(event.host, {})
        told = event.facts.get("attempt")
        number = max(here, default=1) + 1
        if isinstance(told, int) and number <= told + 1 < _MOST_ATTEMPTS:
            number = told + 1
        here[number] = event.at
        everywhere.setdefault(number, event.at)
    return {"": _ascending(everywhere), **{host: _ascending({**everywhere, **here}) for host, here in own.items()}}


def _ascending(begins: Mapping[int, float]) -> list[tuple[float, int]]:
    """In the order of time; a number never falls."""
    found: list[tuple[float, int]] = []
    for at, number in sorted((at, number) for number, at in begins.items()):
        found.append((at, max(number, found[-1][1] if found else 1)))
    return found
