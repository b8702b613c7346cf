"""Who calls the leader once the roster is out: hosts that lost their connection, and hosts that may not."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable

from musterpoint.channel import session, wire
from musterpoint.channel.host_state import HostState
from musterpoint.channel.journal import Journal
from musterpoint.channel.link import Link
from musterpoint.channel.root_cause import RootCause
from musterpoint.channel.secret import same
from musterpoint.loop import Loop
from musterpoint.rollcall.hello import NO_SEAT, Hello, Resume
from musterpoint.rollcall.listener import Listener
from musterpoint.rollcall.roster import Roster


class LateCallers:
    """Calls ``on_return(link, member, got, replies)`` for a member whose session goes on there: it has received ``got``
    messages and is owed the frames ``replies``; ``on_restart(member)`` for one whose container was started anew.
    Refuses others.

    Without a secret, another process at a member's address can say that it is that member, started anew. So the member
    is asked for a sign of life first, and is given up only if none comes within ``asking`` seconds.
    """

    def __init__(
        self, loop: Loop, listener: Listener, roster: Roster, packed: bytes, members: dict[str, HostState],
        verdict: RootCause,
        asking: float, journal: Journal, on_return: Callable[[Link, HostState, int, list[bytes]], None],
        on_restart: Callable[[HostState], None],
    ) -> None:  # fmt: skip
        self._loop = loop
        self._listener = listener
        self._roster = roster
        self._packed = packed
        self._members = members
        self._verdict = verdict
        self._asking = asking
        self._journal = journal
        self._on_return = on_return
        self._on_restart = on_restart
        self._asked: set[str] = set()
        listener.on_hello, listener.on_resume, listener.on_doubt = self._hello, self._resume, self._doubted

    def _hello(self, link: Link, hello: Hello, proved: bool) -> None:
        member = self._members.get(hello.host)
        if member is None or hello.offer.job != self._roster.job:
            self._refuse(link, f"{hello.host} is not one of the hosts of {self._roster.job}" if proved else NO_SEAT)
        elif hello.incarnation == member.hello.incarnation:
            self._go_on(link, member, 0, [member.welcome(self._roster.me), self._packed])
        elif proved or link.peer == member.call.address:
            self._refuse(link, f"this job has already started with an earlier start of {hello.host}")
            if proved:
                self._on_restart(member)
            else:
                self._ask(member)
        else:
            self._refuse(link, NO_SEAT)

    def _ask(self, member: HostState) -> None:
        if member.name not in self._asked and member.session.state != session.OVER:
            self._asked.add(member.name)
            self._journal.record("asked-for-a-sign", host=member.name)
            member.beat()
            self._loop.call_later(self._asking, partial(self._judge, member, self._loop.clock()))

    def _judge(self, member: HostState, asked_at: float) -> None:
        self._asked.discard(member.name)
        if member.session.state != session.OVER and member.session.heard_at <= asked_at:
            self._on_restart(member)

    def _resume(self, link: Link, resume: Resume) -> None:
        member = self._members.get(resume.host)
        if member is None or resume.session != self._roster.session or not same(resume.token, member.token):
            self._refuse(link, "it knows no such session", over=True)
            return
        reply = wire.pack("resumed", answer=member.answer, got=member.mailbox.received)
        self._go_on(link, member, resume.got, [reply])

    def _go_on(self, link: Link, member: HostState, got: int, replies: list[bytes]) -> None:
        if member.session.state != session.OVER:
            self._on_return(link, member, got, replies)
            return
        verdict = self._verdict.fallen
        told = {"verdict": verdict.failure._asdict(), "secondary": verdict.secondary} if verdict else {}
        self._refuse(link, f"{member.name} was given up as lost", over=True, **told)

    def _refuse(self, link: Link, reason: str, **more: Any) -> None:
        self._journal.record("caller-refused", address=link.peer, reason=reason)
        self._listener.refuse(link, reason, **more)

    def _doubted(self, _host: str, address: str, claim: str) -> None:
        self._journal.record("caller-refused", address=address, reason=claim)
