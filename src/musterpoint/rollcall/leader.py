"""The leader's roll call: lets every host in, gives out the seats, publishes the roster."""

from __future__ import annotations

from signal import SIGINT
from typing import Any, Callable

from musterpoint.channel import wire
from musterpoint.channel.host_state import SHARES, Beats, HostState
from musterpoint.channel.journal import Journal
from musterpoint.channel.leader import LeaderChannel
from musterpoint.channel.link import Link, say_bye
from musterpoint.channel.names import Answer, Follower, Names
from musterpoint.channel.peers import Peers
from musterpoint.channel.session import Session
from musterpoint.channel.timeouts import Timeouts
from musterpoint.errors import MusterError, RollCallError, StoppedEarly
from musterpoint.loop import Loop, Timer
from musterpoint.rollcall.attendance import Attendance
from musterpoint.rollcall.hello import NO_SEAT, Hello, Refusal, Resume, draw, validate
from musterpoint.rollcall.listener import Listener, listen, raise_file_limit
from musterpoint.rollcall.progress import Teller
from musterpoint.rollcall.roster import Offer, Roster, Seat
from musterpoint.rollcall.seats import Change, Contested, Seated, Seats
from musterpoint.settings import Settings
from musterpoint.untrusted import printable


class LeaderCall:
    """:attr:`result` or :attr:`error` is set when it is over."""

    def __init__(
        self, loop: Loop, hosts: tuple[str, ...], group_hosts: tuple[str, ...], me: str, offer: Offer,
        settings: Settings, names: Names, timeouts: Timeouts, journal: Journal, choose_port: Callable[[], int],
    ) -> None:  # fmt: skip
        self.result: tuple[Roster, Peers] | None = None
        self.error: MusterError | None = None
        self._loop = loop
        self._hosts = hosts
        self._grouped = frozenset(group_hosts)
        self._group_hosts = group_hosts
        self._me = me
        self._offer = offer
        self._settings = settings
        self._names = names
        self._timeouts = timeouts
        self._journal = journal
        self._say, self._record = journal.say, journal.record
        self._choose_port = choose_port
        self._others = frozenset(hosts) - {me}
        checked = "off" if settings.secret else settings.rollcall_check
        self._seats = Seats(self._others, checked, timeouts.mismatch, timeouts.asked)
        self._follower = Follower(loop, names, timeouts, self._resolved)
        self._checked = checked != "off"
        self._view = Attendance(hosts, me, names, self._seats, self._checked)
        self._links: dict[Link, None] = {}
        self._stop: StoppedEarly | None = None
        self._told: set[str] = set()
        self._asked = False
        self._beats = Beats()
        self._listener: Listener
        self._teller: Teller
        self._timers: list[Timer] = []
        self._last_sweep = 0.0

    def start(self) -> None:
        """Raises UsageError if the port can't be listened on."""
        raise_file_limit(len(self._hosts))
        sock = listen(self._settings.rollcall_port, self._me)
        self._listener = Listener(
            self._loop, sock, self._settings.secret, len(self._hosts), self._timeouts, self._journal
        )
        self._listener.on_hello, self._listener.on_resume, self._listener.on_doubt = (
            self._hello,
            self._resume,
            self._doubted,
        )
        self._listener.open()
        self._teller = Teller(
            self._loop, self._say, lambda: self._view.sentence(self._listener.waiting()),
            self._timeouts.retry_most, self._timeouts.say,
        )  # fmt: skip
        self._last_sweep = self._loop.clock()
        self._timers = [
            self._loop.call_later(self._settings.rollcall_timeout, self._deadline),
            self._loop.call_later(self._timeouts.beat / SHARES, self._sweep),
        ]
        self._follower.follow(self._me)
        if self._checked:
            for host in self._hosts:
                self._follower.follow(host)

    def abandon(self, stop: StoppedEarly) -> None:
        """This host was told to stop: so are the others. A second time, and on Ctrl-C, it waits for none of them."""
        if self._asked or stop.signal == SIGINT:
            self._stop = self._stop or stop
            self._stop_now()
        self._asked = True
        self._pass_on(stop)

    def _pass_on(self, stop: StoppedEarly) -> None:
        """A host was told to stop: so are all that are here, and for a moment those that come late, or they would wait
        for this one until their deadline.
        """
        if self._stop is not None or self.result:
            return
        self._stop = stop
        for member in self._here():
            self._tell_of(stop, member)
        if self.error is None:
            self._say(f"{stop}: telling the others, for {self._timeouts.telling:g} s at most")
            self._teller.stop()
            self._timers[0].cancel()
            self._timers[0] = self._loop.call_later(self._timeouts.telling, self._stop_now)

    def _tell_of(self, stop: StoppedEarly, member: HostState) -> None:
        if member.link is not None:
            member.link.send(_packed(stop))
        self._told.add(member.name)
        if self._told == self._others:
            self._stop_now()

    def _stop_now(self) -> None:
        assert self._stop is not None
        self._end(self._stop, _packed(self._stop))

    def _here(self) -> list[HostState]:
        """Those with a seat. Others decide nothing and hear nothing."""
        return [call.key for call in self._seats.taken.values()]

    # hellos and seats

    def _hello(self, link: Link, hello: Hello, proved: bool) -> None:
        objection = validate(hello, self._me, self._offer, self._others, self._grouped, proved)
        if objection is not None:
            self._turn_away(link, hello, proved, objection)
            return
        now = self._loop.clock()
        member = HostState(hello, link, Session(now, False, self._settings.silence_timeout, self._timeouts), now)
        link.owner = member
        link.on_frame, link.on_end = self._frame, self._ended
        self._links[link] = None
        self._beats.add(member)
        changes = self._seats.claim(member.call, proved)
        if not any(change.call is member.call for change in changes if not isinstance(change, Contested)):
            link.send(wire.pack("wait"))
        self._apply(changes)
        if self._checked and hello.host not in self._seats.taken:
            self._follower.follow(hello.host)

    def _turn_away(self, link: Link, hello: Hello, proved: bool, objection: Refusal) -> None:
        """Ends the roll call too if it is certain that this was the host itself: nobody else will come for its seat."""
        if hello.host not in self._others:
            self._listener.refuse(link, objection.reason if proved else objection.answer)
            self._refused_stranger(objection.claim, link.peer)
            return
        sure = proved or self._view.is_sure(hello.host, link.peer)
        self._listener.refuse(link, objection.reason if sure else objection.answer)
        self._remember(hello.host, link.peer, objection, objection.reason if sure else objection.claim)
        if proved or (sure and hello.host not in self._seats.taken):
            self._fail(objection.reason)

    def _doubted(self, host: str, address: str, claim: str) -> None:
        """Nobody who lacks the secret can end the roll call; the table tells of it if the host stays away."""
        if host in self._others:
            self._remember(host, address, Refusal("", claim), claim)
        else:
            self._refused_stranger(claim, address)

    def _refused_stranger(self, claim: str, address: str) -> None:
        self._view.stranger(claim, address)
        self._record("caller-refused", address=address, reason=claim)

    def _remember(self, host: str, address: str, objection: Refusal, reason: str) -> None:
        if self._view.refused.get(host) != (objection, address):
            self._view.refused[host] = (objection, address)
            self._record("hello-refused", host=host, address=address, reason=reason)

    def _resume(self, link: Link, _resume: Resume) -> None:
        self._listener.refuse(link, "it has started anew since this session began", over=True)

    def _resolved(self, name: str, answer: Answer) -> None:
        if self.result or self.error:
            return
        if name == self._me:
            self._view.own = answer
        if answer.addresses:
            refused = self._view.refused.get(name)
            self._apply(self._seats.resolved(name, answer.addresses))
            if refused is not None and refused[0].reason and self._seats.matches(name, refused[1]):
                self._fail(refused[0].reason)
        if answer.addresses and not self._seats.waiting.get(name):
            self._follower.drop(name)

    def _apply(self, changes: list[Change]) -> None:
        for change in changes:
            member: HostState = change.call.key
            if isinstance(change, Seated):
                self._sit(member, change.warning)
            elif isinstance(change, Contested):
                change.holder.key.beat()
            elif member.link is not None:
                self._drop(member.link)
                self._listener.refuse(member.link, change.why)
                self._record("hello-refused", host=member.name, address=member.call.address, reason=change.why)
        if self._seats.filled and not self.error and not self.result and not self._stop:
            self._publish()

    def _sit(self, member: HostState, warning: str) -> None:
        """From here on what it said in its hello counts."""
        hello = member.hello
        self._follower.drop(member.name)
        self._view.refused.pop(member.name, None)
        self._view.hear(hello)
        if warning:
            self._view.note(f"warning: {warning}; nobody else came, so it has the seat")
        if hello.offer.version != self._offer.version:
            theirs = printable(hello.offer.version, 64)
            self._view.note(f"warning: {hello.host} runs musterpoint {theirs}, {self._me} {self._offer.version}")
        self._record("host-here", host=member.name, address=member.call.address)
        if member.link is not None:
            member.link.frames.limit = wire.MEMBER_LIMIT
            member.link.send(member.welcome(self._me))
        if self._stop is not None:
            self._tell_of(self._stop, member)
        elif hello.stop:
            self._pass_on(StoppedEarly(hello.host, hello.stop))

    # connections of hosts that are here

    def _frame(self, link: Link, payload: bytes) -> None:
        member: HostState = link.owner
        member.session.heard(self._loop.clock())
        if wire.is_beat(payload):
            wire.beat_count(payload)
        else:
            self._hear(member, wire.unpack(payload))
        if changes := self._seats.lives(member.call):
            self._apply(changes)

    def _hear(self, member: HostState, message: dict[str, Any]) -> None:
        if self._seats.taken.get(member.name) is not member.call:
            raise wire.WireError(f"a {message['t']!r} before it had a seat")
        if message["t"] == "abandon":
            self._pass_on(StoppedEarly(member.name, wire.stop_signal(message)))
        elif message["t"] == "leaving":
            self._deadline(f"{member.name} reached its deadline")
        else:
            raise wire.WireError(f"a {message['t']!r} before the roster")

    def _ended(self, link: Link, why: str, _eof: bool) -> None:
        self._drop(link)
        if self._seats.taken.get(link.owner.name) is link.owner.call:
            self._view.left[link.owner.name] = why
            self._record("connection-ended", host=link.owner.name, why=why)
        self._apply(self._seats.left(link.owner.call))

    def _drop(self, link: Link) -> None:
        self._links.pop(link, None)
        self._beats.remove(link.owner)

    def _sweep(self) -> None:
        now = self._loop.clock()
        period = self._timeouts.beat / SHARES
        for member in self._beats.next():
            member.beat()
        late = now - self._last_sweep - period
        for link in list(self._links):
            session: Session = link.owner.session
            if late > self._timeouts.beat:
                session.forgive(late, now)
            if now - session.heard_at >= self._timeouts.silence:
                link.close()
                self._ended(link, "it fell silent", False)
        self._apply(self._seats.tick(now))
        if not self.result and not self.error:
            self._last_sweep = now
            self._timers[1] = self._loop.call_later(period, self._sweep)

    # the end

    def _publish(self) -> None:
        members = {name: call.key for name, call in self._seats.taken.items()}
        try:
            roster = self._roster(members)
        except MusterError as error:  # no port for the framework
            self._end(error, wire.pack("over", text=str(error)))
            return
        self._finish()
        packed = wire.pack_large("roster", roster=roster.to_wire())
        for warning in self._view.remarks():
            self._say(warning)
        peers = LeaderChannel(
            self._loop, self._listener, roster, packed, members, self._settings.on_failure == "finish", self._timeouts,
            self._journal,
        )  # fmt: skip
        for link in self._links:
            link.send(packed)
        self.result = roster, peers

    def _roster(self, members: dict[str, Any]) -> Roster:
        address = self._view.address()
        seats = []
        for host in self._hosts:
            grouped = host in self._grouped
            if host == self._me:
                offer, where = self._offer, address
            else:
                member: HostState = members[host]
                offer, where = member.hello.offer, member.call.address
            slots = offer.slots if grouped else 0
            seats.append(Seat(host, where, slots, grouped, offer.version, offer.room, offer.ports))
        return Roster(self._offer.job, draw(), tuple(seats), address, self._choose_port(), self._me)

    def _deadline(self, why: str = "") -> None:
        rows = self._view.rows(self._listener.waiting())
        missing = ", ".join(row.host for row in rows[:4]) + (f" and {len(rows) - 4} more" if len(rows) > 4 else "")
        are = "is" if len(rows) == 1 else "are"
        waited = why or f"the roll call's {self._settings.rollcall_timeout:g} s are over"
        headline = f"{waited}, and {missing} {are} not here (seen from {self._me})"
        self._fail(headline)

    def _fail(self, headline: str) -> None:
        """Everybody gets the same table; not when it ends with a stop anyway."""
        if self._stop is not None:
            return
        text = self._view.table(headline, self._listener.waiting())
        self._end(RollCallError(text), wire.pack("over", text=text))

    def _end(self, error: MusterError, last_word: bytes) -> None:
        if self.error or self.result:
            return
        self._finish()
        here = {member.link for member in self._here()}
        refusal = wire.pack("refused", reason=NO_SEAT)
        for link in self._links:
            link.send(last_word if link in here else refusal)
        self._listener.close()
        self.error = error
        say_bye(self._links, self._timeouts.flush)

    def _finish(self) -> None:
        self._teller.stop()
        for timer in self._timers:
            timer.cancel()
        for host in self._hosts:
            self._follower.drop(host)


def _packed(stop: StoppedEarly) -> bytes:
    return wire.pack("abandon", host=stop.host, signal=stop.signal)
