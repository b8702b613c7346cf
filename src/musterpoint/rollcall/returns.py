"""Who comes to the leader's door once the roster is out: hosts that lost their connection, and hosts that may not."""

from __future__ import annotations

from typing import Callable

from musterpoint.rollcall import session, wire
from musterpoint.rollcall.door import Door
from musterpoint.rollcall.hello import Hello, Resume
from musterpoint.rollcall.link import Link
from musterpoint.rollcall.member import Member
from musterpoint.rollcall.proof import same
from musterpoint.rollcall.roster import Roster
from musterpoint.rollcall.verdict import Verdict


class Returns:
    """Calls ``on_return(link, member, got, reply)`` for a member whose session goes on there: it has received ``got``
    messages and is owed ``reply``; ``on_restart(member)`` for one whose container was started anew. Refuses others.
    """

    def __init__(
        self, door: Door, roster: Roster, packed: bytes, members: dict[str, Member], verdict: Verdict,
        on_return: Callable[[Link, Member, int, bytes], None], on_restart: Callable[[Member], None],
    ) -> None:  # fmt: skip
        self._door = door
        self._roster = roster
        self._packed = packed
        self._members = members
        self._verdict = verdict
        self._on_return = on_return
        self._on_restart = on_restart
        door.on_hello, door.on_resume, door.on_doubt = self._hello, self._resume, lambda host, address: None

    def _hello(self, link: Link, hello: Hello, proved: bool) -> None:
        member = self._members.get(hello.host)
        if member is None or hello.offer.job != self._roster.job:
            self._door.refuse(link, f"{hello.host} is not one of the hosts of {self._roster.job}")
        elif proved != bool(member.hello.nonce):
            self._door.refuse(link, f"{hello.host} took its seat with a secret (--secret, MUSTER_SECRET)")
        elif hello.incarnation == member.hello.incarnation:
            self._go_on(link, member, 0, member.welcome(self._roster.me) + self._packed)
        else:
            self._door.refuse(link, f"{self._roster.job} has already started with an earlier start of {hello.host}")
            if proved or link.peer == member.call.address:
                self._on_restart(member)

    def _resume(self, link: Link, resume: Resume) -> None:
        member = self._members.get(resume.host)
        if member is None or resume.session != self._roster.session or not same(resume.token, member.token):
            self._door.refuse(link, f"{self._roster.me} knows no such session", over=True)
            return
        reply = wire.pack("resumed", answer=member.answer, got=member.mailbox.received)
        self._go_on(link, member, resume.got, reply)

    def _go_on(self, link: Link, member: Member, got: int, reply: bytes) -> None:
        if member.session.state != session.OVER:
            self._on_return(link, member, got, reply)
            return
        verdict = self._verdict.fallen
        told = {"verdict": verdict.failure._asdict(), "secondary": verdict.secondary} if verdict else {}
        self._door.refuse(link, f"{member.name} was given up as lost", over=True, **told)
