"""Questions that all hosts take to the leader: each reports, the leader decides, every host gets the answer.

A report and an answer are messages with a ``point``, and with typed fields: a host that
reports anything else is lost when that comes, whether or not the leader has come to that point.
"""

import re
from functools import partial
from typing import Annotated, Any, Iterable

from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import checked, read_json
from musterpoint.core.channel.bounds import Text, Which, WireError
from musterpoint.core.channel.peers import Decide, OnAnswer, Report
from musterpoint.core.channel.topic import LeaderHalf, LeaderSide, Topic, WorkerHalf, WorkerSide

MOST_TEXT = 512 * 1024
"""Characters of a report."""
MOST_ANSWER = 8 * 1024 * 1024
"""Characters of an answer."""
LONGEST_POINT = 64
_POINT = re.compile(r"[a-z]+(-[0-9]+)?")
_MOST_POINTS = 4096
_MOST_OPEN = 16


def is_point(text: Any) -> bool:
    """Tells whether ``text`` names a point: a word, and perhaps a number."""
    return isinstance(text, str) and len(text) <= LONGEST_POINT and _POINT.fullmatch(text) is not None


def is_json(text: Any) -> bool:
    """Tells whether ``text`` is JSON of at most :data:`MOST_TEXT` characters, with usable values."""
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        return False
    try:
        checked(read_json(text))
    except ValueError:
        return False
    return True


Point = Annotated[str, Which(is_point, "no name of a point")]


class Ask(NamedTuple):
    """A host's report at ``point``, as JSON."""

    point: Point
    text: Annotated[str, Which(is_json, f"no JSON of at most {MOST_TEXT} characters")]


class Answer(NamedTuple):
    """What the leader has decided."""

    point: Point
    text: Annotated[str, Text(MOST_ANSWER)]


class Consultations:
    """What a host asks the leader."""

    def consult(self, report: Any, decide: Decide, on_answer: OnAnswer, seconds: float) -> None:
        """Reports at the point of ``report``, which every host does once; ``on_answer`` gets what the leader's
        ``decide`` makes of all reports, None where the leader is lost. Hosts that have reported nothing ``seconds``
        after the leader are not waited for; those that left or are lost neither.

        ``ValueError``: the topic doesn't allow such a report.
        """
        raise NotImplementedError


_OVER = Report(None, 0.0)
"""Stands for a report that has been decided on."""


class _Question:
    """``reports`` by host; ``decide`` and ``on_answer`` once the leader itself has come to it; then ``answer``."""

    __slots__ = ("answer", "decide", "on_answer", "reports")

    def __init__(self) -> None:
        self.reports: dict[str, Report] = {}
        self.decide: Decide | None = None
        self.on_answer: OnAnswer | None = None
        self.answer: Any = None


class Answered(NamedTuple):
    """``answer`` goes to ``hosts`` (all that are here), and to ``on_answer`` on the leader itself (None: it has it)."""

    answer: Any
    hosts: tuple[str, ...]
    on_answer: OnAnswer | None


class Questions:
    """The leader's view: a question is answered when every host has reported that has neither left nor is lost.

    :meth:`expire` answers it before; who reports later gets the same answer, and until then nothing more is waited for
    from that host. ``me`` is the leader.
    """

    def __init__(self, me: str, hosts: Iterable[str]) -> None:
        self._me = me
        self._here = {me, *hosts}
        self._late: set[str] = set()
        self._awaited = set(self._here)
        self._questions: dict[str, _Question] = {}

    def ask(self, report: Report, decide: Decide, on_answer: OnAnswer) -> list[Answered]:
        """The leader itself has come to the point of its ``report``."""
        question = self._questions.setdefault(report.said.point, _Question())
        question.decide, question.on_answer = decide, on_answer
        question.reports[self._me] = report
        return self._answers()

    def report(self, host: str, report: Report) -> list[Answered]:
        """Takes a worker's report.

        Raises:
            WireError: it came already, or is one of too many.
        """
        point: str = report.said.point
        if host in self._late:
            self._late.remove(host)
            self._awaited |= self._here & {host}
        question = self._questions.get(point)
        if question is None:
            opened = sum(host in each.reports for each in self._questions.values() if each.answer is None)
            if len(self._questions) >= _MOST_POINTS or opened >= _MOST_OPEN:
                raise WireError("reports at more points than can be")
            question = self._questions[point] = _Question()
        if host in question.reports:
            raise WireError(f"two reports at {point!r}")
        question.reports[host] = report if question.answer is None else _OVER
        if question.answer is not None:
            return [Answered(question.answer, (host,), None)]
        return self._answers()

    def begin(self, hosts: Iterable[str]) -> None:
        """Another attempt begins, with ``hosts``: those that were done in the last one are asked again."""
        self._here = {self._me, *hosts}
        self._awaited = self._here - self._late

    def gone(self, host: str) -> None:
        """``host`` is gone. If it is started anew, it asks again, also what it was told before."""
        for question in self._questions.values():
            question.reports.pop(host, None)

    def left(self, host: str) -> list[Answered]:
        """``host`` is done or gone: nothing is waited for from it any more."""
        self._here.discard(host)
        self._awaited.discard(host)
        return self._answers()

    def awaited(self) -> set[str]:
        """Who has not reported where something is asked; hosts that are late are waited for no more."""
        open_ones = [each for each in self._questions.values() if each.answer is None]
        reported = [each.reports.keys() for each in open_ones if each.decide is not None]
        return {host for hosts in reported for host in self._here - self._late - hosts} | (
            {self._me} if any(each.decide is None for each in open_ones) else set()
        )

    def expire(self, point: str) -> list[Answered]:
        """The time for ``point`` is over: those that have reported get an answer."""
        question = self._questions.get(point)
        if question is None or question.answer is not None or question.decide is None:
            return []
        self._late |= self._here - question.reports.keys()
        self._awaited -= self._late
        return [self._answer(question)]

    def _answers(self) -> list[Answered]:
        return [
            self._answer(question)
            for question in self._questions.values()
            if question.answer is None and question.decide is not None and self._have_reported(question)
        ]

    def _have_reported(self, question: _Question) -> bool:
        # the sizes first: each of many hosts reports, and few of the reports are the last
        return len(self._awaited) <= len(question.reports) and self._awaited <= question.reports.keys()

    def _answer(self, question: _Question) -> Answered:
        assert question.decide is not None
        question.answer = question.decide(question.reports)
        hosts = tuple(host for host in question.reports if host != self._me)
        question.reports = dict.fromkeys(question.reports, _OVER)
        return Answered(question.answer, hosts, question.on_answer)


class LeadersConsultations(LeaderHalf, Consultations):
    """Questions go on over attempts."""

    is_owed = True

    def __init__(self, side: LeaderSide) -> None:
        self._questions = Questions(side.me, side.others)
        super().__init__(side)

    def begin(self) -> None:
        self._questions.begin(set(self._side.others) - self._side.away)

    def gone(self, host: str, why: str) -> None:
        self._questions.gone(host)

    def consult(self, report: Any, decide: Decide, on_answer: OnAnswer, seconds: float) -> None:
        self._answer(self._questions.ask(Report(report, self._side.wall()), decide, on_answer))
        self._side.call_later(seconds, partial(self._expire, report.point))

    def hear(self, host: str, message: Any) -> None:
        self._answer(self._questions.report(host, Report(message, self._side.wall())))

    def awaits(self) -> set[str]:
        return self._questions.awaited()

    def left(self, host: str) -> None:
        self._answer(self._questions.left(host))

    def _expire(self, point: str) -> None:
        self._answer(self._questions.expire(point))

    def _answer(self, answers: list[Answered]) -> None:
        for answer, hosts, on_answer in answers:
            for host in hosts:
                self._side.send(host, answer)
            if on_answer is not None:
                self._side.call_later(0, partial(on_answer, answer))


class WorkersConsultations(WorkerHalf, Consultations):
    """The worker's half: reports go to the leader, which sends the answer."""

    def __init__(self, side: WorkerSide) -> None:
        super().__init__(side)
        self._waiting: dict[str, OnAnswer] = {}

    def consult(self, report: Any, decide: Decide, on_answer: OnAnswer, seconds: float) -> None:
        if self._side.is_alone:
            self._side.call_later(0, partial(on_answer, None))
            return
        self._side.check(report)
        self._side.post(report)
        self._waiting[report.point] = on_answer

    def hear(self, message: Any, size: int) -> None:
        on_answer = self._waiting.pop(message.point, None)
        if on_answer is None:
            raise WireError(f"an answer at {message.point!r}, where nothing was asked")
        self._side.call_later(0, partial(on_answer, message))

    def awaits_leader(self) -> bool:
        return bool(self._waiting)

    def alone(self) -> None:
        for on_answer in self._waiting.values():
            self._side.call_later(0, partial(on_answer, None))
        self._waiting = {}


TOPIC: Topic[Consultations] = Topic("consultations", (Ask,), (Answer,), LeadersConsultations, WorkersConsultations)
