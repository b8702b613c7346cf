"""The leader's roll call: accepts hosts, gives each its seat, and publishes the roster."""

from __future__ import annotations

import socket
from functools import partial
from signal import SIGINT
from typing import Any, Callable

from musterpoint.base.errors import MusterError, StoppedEarly, UsageError
from musterpoint.base.loop import Timer
from musterpoint.base.untrusted import printable
from musterpoint.core.channel import wire
from musterpoint.core.channel.leader_channel import LeaderChannel
from musterpoint.core.channel.link import Context, Link, say_bye
from musterpoint.core.channel.names import Answer, Follower, Names
from musterpoint.core.channel.other_hosts import JobHosts
from musterpoint.core.channel.peers import Peers
from musterpoint.core.channel.session import HostState, Resume
from musterpoint.core.rollcall.admission import LATER, Call, Change, Check, Contested, Seated, Seats
from musterpoint.core.rollcall.attendance import TO_OPEN, Attendance, ProgressPrinter
from musterpoint.core.rollcall.callers import Callers
from musterpoint.core.rollcall.hello import (
    ITSELF,
    NO_SEAT,
    PLACE_TAKEN,
    Hello,
    Refusal,
    check_offer,
    check_protocol,
    error_of,
    validate,
)
from musterpoint.core.rollcall.hosts_here import HostsHere
from musterpoint.core.rollcall.listener import Listener, ListenerOwner, listen, raise_file_limit
from musterpoint.core.rollcall.reconnects import Reconnects
from musterpoint.core.rollcall.rejoin import Members, Rejoin
from musterpoint.core.rollcall.roster import Participant, Roster
from musterpoint.core.rollcall.seat_columns import pack_roster
from musterpoint.core.rollcall.unnamed_seats import Places

_MOST_TOLD = 8
"""Addresses of which a line says that their call was refused."""


class LeaderCall:
    """:attr:`result` or :attr:`error` is set when it is over. ``choose_ports`` gives the framework's
    master port and that of launches, ``listening`` the socket of the roll call's port.

    Where the platform doesn't name the hosts, what stands for a name here is the label of a seat, until all are here.
    ``incarnation``: of this host's own calls, where it may call itself.
    """

    def __init__(
        self,
        context: Context,
        names: Names,
        participant: Participant,
        choose_ports: Callable[[], tuple[int, int]],
        incarnation: str = "",
        listening: Callable[[int, str], socket.socket] = listen,
    ) -> None:
        self.result: tuple[Roster, Peers] | None = None
        self.error: MusterError | None = None
        self._context = context
        self._loop, self._timeouts, log = context.loop, context.timeouts, context.log
        self._say, self._record = log.say, log.record
        self._participant = participant
        self._hosts, group, self._me, _, self._settings, unnamed, *_ = participant
        self._seen_as = participant.endpoint
        own = self._me
        self._places: Places | None = None
        if unnamed is not None:
            self._places = Places(unnamed, self._me, incarnation)
            self._hosts = group = self._places.labels
            own = self._hosts[0]
        roles = dict(zip(self._hosts, map(participant.role_of.get, participant.hosts))) if participant.role_of else {}
        self._role_of = {host: role for host, role in roles.items() if role is not None}
        self._grouped = frozenset(group)
        self._choose_ports = choose_ports
        self._listening = listening
        self._others = frozenset(self._hosts) - {own}
        check: Check = "off" if self._settings.secret or unnamed else self._settings.rollcall_check
        self._checked = check != "off"
        self._seats = Seats(self._others, check, self._timeouts.mismatch, self._timeouts.sign_of_life)
        self._names = names
        self._follower = Follower(context, names, self._resolved)
        self._attendance = Attendance(self._hosts, self._seen_as, names, self._seats, self._checked)
        self._callers = Callers(context, self._settings.silence_timeout, self._heard, self._ended, self._tick)
        self._unanswered: dict[str, tuple[Link, Refusal]] = {}
        self._told: set[str] = set()
        self._stopped: StoppedEarly | None = None
        self._stop_sent: set[str] = set()
        self._asked_to_stop = False
        self._listener: Listener
        self._progress: ProgressPrinter
        self._deadline_timer: Timer

    def start(self) -> None:
        """Raises UsageError if the port can't be listened on."""
        raise_file_limit(len(self._hosts))
        sock = self._listening(self._settings.rollcall_port, self._me)
        owner = ListenerOwner(self._hello, self._resume, self._unproved)
        self._listener = Listener(self._context, sock, self._settings.secret, len(self._hosts), owner)
        self._progress = ProgressPrinter(self._context, lambda: self._attendance.sentence(self._listener.waiting()))
        self._deadline_timer = self._loop.call_later(self._participant.seconds, self._deadline)
        self._follower.follow(self._seen_as)
        if self._checked:
            for host in self._hosts:
                self._follower.follow(host)

    def stop(self, stop: StoppedEarly) -> None:
        """This host was told to stop: tells the others. At the second call, or for Ctrl-C, it doesn't wait for them."""
        if self._asked_to_stop or stop.signal == SIGINT:
            self._stopped = self._stopped or stop
            self._stop_now()
        self._asked_to_stop = True
        self._broadcast_stop(stop)

    def _broadcast_stop(self, stop: StoppedEarly) -> None:
        """Sends the stop to all hosts here and, for 8 s, to late ones, which would wait until their deadline."""
        if self._stopped is not None or self.result:
            return
        self._stopped = stop
        for call in self._seats.taken.values():
            self._send_stop(stop, call.state)
        if self.error is None:
            self._say(f"{stop}: telling the others, for {self._timeouts.stop_notice:g} s at most")
            self._progress.stop()
            self._deadline_timer.cancel()
            self._deadline_timer = self._loop.call_later(self._timeouts.stop_notice, self._stop_now)

    def _send_stop(self, stop: StoppedEarly, member: HostState) -> None:
        if member.link is not None:
            member.link.send(_packed(stop))
        self._stop_sent.add(member.name)
        if self._stop_sent == self._others:
            self._stop_now()

    def _stop_now(self) -> None:
        assert self._stopped is not None
        self._end(self._stopped, _packed(self._stopped))

    # hellos and seats

    def _hello(self, link: Link, hello: Hello, proved: bool) -> None:
        hello, refusal = self._placed(hello, link.peer, proved)
        if refusal is not None:
            self._refuse(link, hello, proved, refusal)
            return
        self._claim(link, self._callers.take(link, hello), proved)

    def _placed(self, hello: Hello, address: str, proved: bool) -> tuple[Hello, Refusal | None]:
        """The caller with the seat that it claims, and why it is refused."""
        if self._places is None:
            return hello, validate(hello, self._me, self._participant.offer, self._others, self._grouped, proved)
        refusal = (
            check_protocol(hello, self._me)
            or check_offer(hello, self._me, self._participant.offer, not self._participant.role_of, proved)
            or self._places.refusal(hello, address)
        )
        if refusal is None:
            placed = self._places.place(hello, self._seats.taken)
            return (hello, self._places.too_many(hello)) if placed is None else (placed, None)
        return hello, refusal

    def _claim(self, link: Link, call: Call, proved: bool) -> None:
        changes = self._seats.claim(call, proved)
        if not any(change.call is call for change in changes if not isinstance(change, Contested)):
            link.send(wire.pack("wait"))
        self._apply(changes)
        if self._checked and call.name not in self._seats.taken:
            self._follower.follow(call.name)

    def _refuse(self, link: Link, hello: Hello, proved: bool, refusal: Refusal) -> None:
        """Refuses a caller; ends the roll call, too, if it certainly was the host and nobody has its seat: no other
        will take it.
        """
        if self._places is not None:
            self._refuse_unplaced(link, proved, refusal)
            return
        if hello.host not in self._others:
            self._listener.refuse(link, refusal.reason if proved else refusal.answer)
            self._refused_stranger(refusal.claim, link.peer)
            return
        sure = proved or self._attendance.is_sure(hello.host, link.peer)
        if sure or self._names.last_answer(hello.host).addresses or hello.host in self._unanswered:
            self._listener.refuse(link, refusal.reason if sure else refusal.answer, usage=int(refusal.usage))
        else:  # whether it is the host is known in a moment, and that host should hear the reason
            link.ignore()
            self._unanswered[hello.host] = link, refusal
            self._loop.call_later(self._timeouts.hello / 2, lambda: self._answer(hello.host))
        self._refused_host(hello.host, link.peer, refusal, refusal.reason if sure else refusal.claim)
        if sure and hello.host not in self._seats.taken:
            self._fail(refusal.reason, refusal.usage)

    def _answer(self, host: str) -> None:
        """Refuses the caller that claims to be ``host``, now that the name has addresses, or has had time to."""
        link, refusal = self._unanswered.pop(host, (None, None))
        if link is not None and refusal is not None and not link.ended:
            sure = self._attendance.is_sure(host, link.peer)
            self._listener.refuse(link, refusal.reason if sure else refusal.answer)

    def _refuse_unplaced(self, link: Link, proved: bool, refusal: Refusal) -> None:
        """Refuses a host where none has a name. Only one that knows the secret certainly is of this job, and ends the
        roll call, too, unless it is one too many.
        """
        self._listener.refuse(link, refusal.reason if proved else refusal.answer, usage=int(refusal.usage))
        if refusal.reason == ITSELF:
            return
        self._refused_stranger(refusal.claim, link.peer)
        # without a secret a host of this job that leads, too, has as much to say as one that takes a seat
        if not refusal.alone and (proved or (refusal.answer == PLACE_TAKEN and not self._settings.secret)):
            self._fail(refusal.reason, refusal.usage)
        else:
            self._tell_of_caller(link.peer, refusal.reason)

    def _tell_of_caller(self, address: str, why: str) -> None:
        """One line for each address, of a few: anybody in the network may call."""
        if address not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(address)
            self._attendance.note(f"a caller at {address} was refused: {why}; all hosts of a job need the same")
            self._say(f"warning: a caller at {address} was refused: {why}")

    def _unproved(self, host: str, address: str, claim: str) -> None:
        """Keeps the refusal for the table; a caller without the secret can't end the roll call."""
        if host in self._others:
            self._refused_host(host, address, Refusal("", claim), claim)
        else:
            self._refused_stranger(claim, address)

    def _refused_stranger(self, claim: str, address: str) -> None:
        self._attendance.refused_stranger(claim, address)
        self._record("caller-refused", address=address, reason=claim)

    def _refused_host(self, host: str, address: str, refusal: Refusal, reason: str) -> None:
        if self._attendance.refuse(host, refusal, address):
            self._record("hello-refused", host=host, address=address, reason=reason)

    def _resume(self, link: Link, _resume: Resume) -> None:
        self._listener.refuse(link, "it has started anew since this session began", over=True)

    def _resolved(self, name: str, answer: Answer) -> None:
        if self.result or self.error:
            return
        if name == self._seen_as:
            self._attendance.own_resolved(answer)
        if answer.addresses:
            refused = self._attendance.refused.get(name)
            self._apply(self._seats.resolved(name, answer.addresses))
            self._answer(name)
            if refused is not None and refused[0].reason and self._seats.matches(name, refused[1]):
                self._fail(refused[0].reason, refused[0].usage)
        if answer.addresses and not self._seats.waiting.get(name):
            self._follower.drop(name)

    def _apply(self, changes: list[Change]) -> None:
        for change in changes:
            call, link = change.call, change.call.state.link
            if isinstance(change, Seated):
                self._seated(call, change.warning)
            elif isinstance(change, Contested):
                change.holder.state.beat()
            elif link is not None:
                self._turn_away(link, call, change.why)
        if self._seats.filled and not self.error and not self.result and not self._stopped:
            self._publish()

    def _turn_away(self, link: Link, call: Call, why: str) -> None:
        holder = self._seats.taken.get(call.name)
        if self._places is not None and why != LATER and holder is not None:
            self._clash(self._places, link, call, holder)
        else:
            self._dismiss(link, call, why)

    def _clash(self, places: Places, link: Link, call: Call, holder: Call) -> None:
        """Another host claims ``holder``'s seat. By arrival it gets a free seat, since two hosts may have the same
        name; else that ends the roll call, if it certainly is a host of this job.
        """
        if places.by_rank:
            refusal = places.taken(call.hello, call.address, holder)
        else:
            refusal = places.too_many(call.hello)
            other = places.place(call.hello, self._seats.taken, apart=True)
            if other is not None:
                call.state.rename(other.host)
                elsewhere = call._replace(hello=other)
                self._callers.replace(link, elsewhere)
                self._claim(link, elsewhere, False)
                return
        proved = bool(self._settings.secret)
        self._dismiss(link, call, refusal.reason if proved else refusal.answer, refusal.usage)
        if proved and not refusal.alone:
            self._fail(refusal.reason, refusal.usage)
        else:
            self._refused_stranger(refusal.claim, call.address)
            self._tell_of_caller(call.address, refusal.reason)

    def _dismiss(self, link: Link, call: Call, why: str, usage: bool = False) -> None:
        self._callers.drop(link, call)
        self._listener.refuse(link, why, usage=int(usage))
        self._record("hello-refused", host=call.title, address=call.address, reason=why)

    def _seated(self, call: Call, warning: str) -> None:
        """The host has its seat, so its hello is trusted from now on."""
        hello, link = call.hello, call.state.link
        self._follower.drop(call.name)
        self._attendance.seated(hello)
        if warning:
            self._attendance.note(f"warning: {warning}; nobody else came, so it has the seat")
        if hello.offer.version != self._participant.offer.version:
            theirs, own = printable(hello.offer.version, 64), self._participant.offer.version
            self._attendance.note(f"warning: {call.title} runs musterpoint {theirs}, {self._me} {own}")
        self._record("host-here", host=call.title, address=call.address)
        if link is not None:
            link.set_limit(wire.MEMBER_LIMIT)
            link.send(call.welcome(self._me))
        if self._stopped is not None:
            self._send_stop(self._stopped, call.state)
        elif hello.stop:
            self._broadcast_stop(StoppedEarly(call.title, hello.stop))

    # connections of hosts that are here

    def _heard(self, call: Call, message: dict[str, Any] | None) -> None:
        if message is not None:
            self._message(call, message)
        if changes := self._seats.answered(call):
            self._apply(changes)

    def _message(self, call: Call, message: dict[str, Any]) -> None:
        if self._seats.taken.get(call.name) is not call:
            raise wire.WireError(f"a {message['t']!r} before it had a seat")
        if message["t"] == "abandon":
            self._broadcast_stop(StoppedEarly(call.title, wire.stop_signal(message)))
        elif message["t"] == "leaving":
            self._deadline(f"{call.title} reached its deadline")
        else:
            raise wire.WireError(f"a {message['t']!r} before the roster")

    def _ended(self, link: Link, why: str) -> None:
        call = self._callers[link]
        self._callers.drop(link, call)
        if self._seats.taken.get(call.name) is call:
            self._attendance.disconnected(call.name, f"{call.title}: {why}" if self._places else why)
            self._record("connection-ended", host=call.title, why=why)
        self._apply(self._seats.left(call))

    def _tick(self, now: float) -> None:
        self._apply(self._seats.tick(now))

    # the end

    def _publish(self) -> None:
        me = self._me if self._places is None else self._hosts[0]
        grouped = frozenset(self._role_of) or self._grouped
        here = HostsHere(self._hosts, me, self._participant.offer, self._seats.taken, grouped, self._role_of)
        try:
            here.check()
            here = here if self._places is None else here.named(self._me)
            roster = self._roster(here)
        except MusterError as error:  # no port for the framework
            self._end(error, wire.pack("over", text=str(error), usage=int(isinstance(error, UsageError))))
            return
        self._finish()
        packed = pack_roster(roster)
        for warning in (*self._attendance.remarks(), *here.different_libraries()):
            self._say(warning)
        others = {name: call.state for name, call in here.calls.items()}
        ranks = {host: each for host, each in roster.all_ranks.items() if host not in here.opaque}
        group = here.groups[roster.seat.role]
        worlds = roster.worlds(self._participant.worlds)
        hosts = JobHosts(here.me, others, group, here.opaque, ranks, roster.max_restarts, worlds)
        goes_on = self._settings.on_failure == "finish"
        channel = LeaderChannel(self._context, hosts, goes_on, lambda: self._close(reconnects))
        rejoin = partial(self._rejoin, roster) if self._may_rejoin else None
        reconnects = Reconnects(
            self._context, self._listener, roster, packed, dict(here.calls), channel, self._places, rejoin
        )
        for link in self._callers.calls:
            link.send(packed)
        self.result = roster, channel

    def _roster(self, here: HostsHere) -> Roster:
        if self._settings.host_order == "topology":
            here, told = here.by_topology()
            self._say(told)
        return here.roster(self._attendance.address(), self._choose_ports(), self._settings)

    @property
    def _may_rejoin(self) -> bool:
        """Whether a host that the platform starts anew may have its seat back."""
        return bool(self._settings.max_restarts and self._settings.rejoin_timeout and self._places is None)

    def _rejoin(self, roster: Roster, reconnects: Reconnects) -> Rejoin:
        members = Members(self._participant.offer, roster, self._settings)
        return Rejoin(
            self._context, self._names, self._listener, members, reconnects.earlier, reconnects.take, reconnects.lose
        )

    def _close(self, reconnects: Reconnects) -> None:
        reconnects.close()
        self._listener.close()

    def _deadline(self, why: str = "") -> None:
        rows = self._attendance.rows(self._listener.waiting())
        missing = ", ".join(row.host for row in rows[:4]) + (f" and {len(rows) - 4} more" if len(rows) > 4 else "")
        are = "is" if len(rows) == 1 else "are"
        waited = why or f"the roll call's {self._participant.seconds:g} s are over"
        headline = f"{waited}, and {missing} {are} not here (seen from {self._me})"
        if self._attendance.nobody_called(self._listener.waiting()):
            if len(rows) > 1:
                headline = f"{waited}, and none of the other {len(rows)} hosts has reached {self._me}"
            self._attendance.note(
                f"nobody's call has come to port {self._settings.rollcall_port} of {self._me}: if the others are "
                f"running, it is closed to them here, or they call another address: {TO_OPEN}"
            )
        self._fail(headline)

    def fail(self, headline: str, usage: bool) -> None:
        """Ends the roll call for all hosts here, unless it is over. ``usage``: they were started wrongly."""
        if not self.error and not self.result:
            self._fail(headline, usage)

    def _fail(self, headline: str, usage: bool = False) -> None:
        """Ends the roll call with the same table on every host, unless it is ending with a stop."""
        if self._stopped is not None:
            return
        text = self._attendance.table(headline, self._listener.waiting())
        self._end(error_of(headline, usage)(text), wire.pack("over", text=text, usage=int(usage)))

    def _end(self, error: MusterError, message: bytes) -> None:
        if self.error or self.result:
            return
        self._finish()
        for host in list(self._unanswered):
            self._answer(host)
        here = {call.state.link for call in self._seats.taken.values()}
        refusal = wire.pack("refused", reason=NO_SEAT)
        for link in self._callers.calls:
            link.send(message if link in here else refusal)
        self._listener.close()
        self.error = error
        say_bye(self._callers.calls, self._timeouts.flush)

    def _finish(self) -> None:
        self._progress.stop()
        self._deadline_timer.cancel()
        self._callers.stop()
        for host in (self._seen_as, *self._hosts):
            self._follower.drop(host)


def _packed(stop: StoppedEarly) -> bytes:
    return wire.pack("abandon", host=stop.host, signal=stop.signal)
