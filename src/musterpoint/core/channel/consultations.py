"""Questions that all hosts take to the leader: each reports a text, the leader decides, every host gets the answer."""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple

from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import Decide, OnAnswer, Report

MOST_TEXT = 512 * 1024
"""Characters of a report."""
MOST_ANSWER = 8 * 1024 * 1024
"""Characters of an answer."""
LONGEST_POINT = 64
_MOST_POINTS = 4096
_MOST_OPEN = 16


def pack_report(point: str, text: str) -> bytes:
    """A worker's message. ``ValueError`` if the leader would refuse it."""
    if not 0 < len(point) <= LONGEST_POINT or len(text) > MOST_TEXT:
        raise ValueError(f"a report at {point!r} has {len(text)} characters, not at most {MOST_TEXT}")
    return wire.pack("report", point=point, text=text)


def pack_answer(point: str, text: str) -> bytes:
    """The leader's message."""
    return wire.pack("answer", point=point, text=text)


class _Question:
    """``reports`` by host; ``decide`` and ``on_answer`` once the leader itself has come to it; then ``answer``."""

    __slots__ = ("answer", "decide", "on_answer", "reports")

    def __init__(self) -> None:
        self.reports: dict[str, Report] = {}
        self.decide: Decide | None = None
        self.on_answer: OnAnswer | None = None
        self.answer: str | None = None


class Answered(NamedTuple):
    """``text`` goes to ``hosts`` (all that are here), and to ``on_answer`` on the leader itself (None: it has it)."""

    point: str
    text: str
    hosts: tuple[str, ...]
    on_answer: OnAnswer | None


class Consultations:
    """The leader's view: a question is answered when every host has reported that has neither left nor is lost.

    :meth:`expire` answers it before; who reports later gets the same answer, and until then nothing more is waited for
    from that host. ``me`` is the leader.
    """

    def __init__(self, me: str, hosts: Iterable[str]) -> None:
        self._me = me
        self._here = {me, *hosts}
        self._late: set[str] = set()
        self._questions: dict[str, _Question] = {}

    def ask(self, point: str, report: Report, decide: Decide, on_answer: OnAnswer) -> list[Answered]:
        """The leader itself has come to ``point``."""
        question = self._questions.setdefault(point, _Question())
        question.decide, question.on_answer = decide, on_answer
        question.reports[self._me] = report
        return self._answers()

    def report(self, host: str, message: dict[str, Any], at: float) -> list[Answered]:
        """Takes a worker's message.

        Raises:
            WireError: it is no report, one that came already, or one of too many.
        """
        point, text = wire.text(message, "point", LONGEST_POINT), wire.text(message, "text", MOST_TEXT)
        self._late.discard(host)
        question = self._questions.get(point)
        if question is None:
            opened = sum(host in each.reports for each in self._questions.values() if each.answer is None)
            if len(self._questions) >= _MOST_POINTS or opened >= _MOST_OPEN:
                raise wire.WireError("reports at more points than can be")
            question = self._questions[point] = _Question()
        if host in question.reports:
            raise wire.WireError(f"two reports at {point!r}")
        question.reports[host] = Report(text if question.answer is None else "", at)
        if question.answer is not None:
            return [Answered(point, question.answer, (host,), None)]
        return self._answers()

    def left(self, host: str) -> list[Answered]:
        """``host`` is done or gone: nothing is waited for from it any more."""
        self._here.discard(host)
        return self._answers()

    def expire(self, point: str) -> list[Answered]:
        """The time for ``point`` is over: those that have reported get an answer."""
        question = self._questions.get(point)
        if question is None or question.answer is not None or question.decide is None:
            return []
        self._late |= self._here - question.reports.keys()
        return [self._answer(point, question)]

    def _answers(self) -> list[Answered]:
        awaited = self._here - self._late
        return [
            self._answer(point, question)
            for point, question in self._questions.items()
            if question.answer is None and question.decide is not None and awaited <= question.reports.keys()
        ]

    def _answer(self, point: str, question: _Question) -> Answered:
        assert question.decide is not None
        question.answer = question.decide(question.reports)
        hosts = tuple(host for host in question.reports if host != self._me)
        question.reports = dict.fromkeys(question.reports, Report("", 0.0))
        return Answered(point, question.answer, hosts, question.on_answer)
