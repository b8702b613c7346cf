"""A worker's roll call: reaches the leader, says who it is, waits for the roster."""

from __future__ import annotations

import socket
from signal import SIGINT
from typing import Any

from musterpoint.channel import wire
from musterpoint.channel.dial import NOTHING, VANISHED, Dialer, is_local
from musterpoint.channel.handshake import Handshake
from musterpoint.channel.host_state import SHARES
from musterpoint.channel.journal import Journal
from musterpoint.channel.link import Link, plain_address, say_bye
from musterpoint.channel.names import Answer, Follower, Names
from musterpoint.channel.peers import Peers
from musterpoint.channel.timeouts import Timeouts
from musterpoint.channel.worker import Ticket, WorkerChannel
from musterpoint.errors import MusterError, RollCallError, StoppedEarly
from musterpoint.loop import Loop, Timer
from musterpoint.rollcall.attendance import UNANSWERED, oddities
from musterpoint.rollcall.hello import MOST_ADDRESSES, Hello, draw
from musterpoint.rollcall.progress import Row, Teller, table
from musterpoint.rollcall.roster import Offer, Roster
from musterpoint.settings import Settings
from musterpoint.untrusted import printable

_OWN_NAME_PATIENCE = 1.0
_LONGEST_REASON = 600


class WorkerCall:
    """:attr:`result` or :attr:`error` is set when it is over."""

    def __init__(
        self, loop: Loop, leader: str, me: str, offer: Offer, settings: Settings, names: Names, timeouts: Timeouts,
        journal: Journal,
    ) -> None:  # fmt: skip
        self.result: tuple[Roster, Peers] | None = None
        self.error: MusterError | None = None
        self._loop = loop
        self._leader = leader
        self._me = me
        self._offer = offer
        self._settings = settings
        self._names = names
        self._timeouts = timeouts
        self._journal = journal
        self._say, self._record = journal.say, journal.record
        self._stop: StoppedEarly | None = None
        self._incarnation = draw()
        self._own = UNANSWERED
        self._sources: tuple[str, ...] = ()
        self._follower = Follower(loop, names, timeouts, self._own_name)
        self._dialer = Dialer(
            loop, names, leader, settings.rollcall_port, timeouts, lambda: self._sources, self._connected, self._missed
        )
        self._link: Link | None = None
        self._handshake: Handshake
        self._waits = False
        self._ticket: Ticket | None = None
        self._stage = Row(leader, "name", UNANSWERED.trouble)
        self._heard_at = 0.0
        self._dialling = False
        self._leaving = False
        self._teller: Teller
        self._hello_timer: Timer | None = None
        self._timers: list[Timer] = []

    def start(self) -> None:
        self._teller = Teller(self._loop, self._say, self._sentence, self._timeouts.retry_most, self._timeouts.say)
        self._timers = [
            self._loop.call_later(self._settings.rollcall_timeout, self._deadline),
            self._loop.call_later(self._timeouts.beat / SHARES, self._sweep),
            self._loop.call_later(_OWN_NAME_PATIENCE, self._dial),
        ]
        self._follower.follow(self._me)

    def abandon(self, stop: StoppedEarly) -> None:
        """This host was told to stop: the leader tells the others, and may be reached in a moment, or it would wait for
        this host until its deadline. A second time, and on Ctrl-C, nothing is waited for.
        """
        again, self._stop = self._stop is not None, stop
        if self._ticket is not None or again or stop.signal == SIGINT:
            self._stop_now()
            return
        self._say(f"{stop}: telling the others, for {self._timeouts.telling:g} s at most")
        self._teller.stop()
        self._timers[0].cancel()
        self._timers[0] = self._loop.call_later(self._timeouts.telling, self._stop_now)

    def _stop_now(self) -> None:
        assert self._stop is not None
        if self._ticket is not None and self._link is not None:
            self._link.send(wire.pack("abandon", signal=self._stop.signal))
        self._end(self._stop)

    # reaching the leader

    def _own_name(self, _name: str, answer: Answer) -> None:
        self._own = answer
        if answer.addresses:
            self._follower.drop(self._me)
            self._sources = tuple(filter(is_local, answer.addresses))
        self._dial()

    def _dial(self) -> None:
        if not self._dialling and not self.error:
            self._dialling = True
            self._dialer.start()

    def _missed(self, kind: str, detail: str) -> None:
        in_name = kind == VANISHED or (kind == NOTHING and not self._names.known(self._leader).addresses)
        self._stage = Row(self._leader, "name" if in_name else "connect", detail)
        self._dialer.again()

    def _connected(self, sock: socket.socket, address: str) -> None:
        if (self._stage.stage, self._stage.address) != ("hello", address):  # what it said last tells more
            self._stage = Row(self._leader, "hello", "connected, but it has not answered the hello", address)
        self._link = Link(self._loop, sock, address, wire.HELLO_LIMIT, self._frame, self._ended, self._journal)
        nonce = draw() if self._settings.secret else ""
        known = map(plain_address, self._names.known(self._leader).addresses)
        sees = tuple(filter(wire.is_address, known))[:MOST_ADDRESSES]
        stop = self._stop.signal if self._stop else 0
        hello = Hello(self._me, self._offer, self._incarnation, sees, address, nonce, stop=stop)
        self._heard_at = self._loop.clock()
        self._hello_timer = self._loop.call_later(self._timeouts.hello, self._no_answer)
        self._handshake = Handshake(self._loop, self._link, self._settings.secret, hello.pack())

    def _no_answer(self) -> None:
        if self._link is not None:
            self._link.close()
            self._ended(self._link, f"it did not answer the hello within {self._timeouts.hello:g} s", True)

    def _ended(self, link: Link, why: str, _eof: bool) -> None:
        self._link = self._ticket = None
        self._waits = False
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self._stage = Row(self._leader, "hello", f"connected, then {why}", link.peer)
        if self._leaving:
            self._give_up()
        elif not self.error:
            self._dialer.again()

    # what the leader says

    def _frame(self, link: Link, payload: bytes) -> None:
        taken = self._handshake.take(payload)
        if taken is None:
            return
        self._heard_at = self._loop.clock()
        if wire.is_beat(taken):
            wire.beat_count(taken)
            if not link.busy:
                link.send(wire.pack_beat(0))
            return
        message = wire.unpack(taken, compressed=self._ticket is not None)
        kind = message["t"]
        if kind == "wait" and self._ticket is None:
            self._wait(link)
        elif kind == "challenge" and self._ticket is None:
            pass  # it has a secret and we have none: it refuses us in a moment
        elif kind == "welcome" and self._ticket is None:
            self._welcome(link, message)
        elif kind == "refused":
            reason = printable(wire.text(message, "reason"), _LONGEST_REASON)
            self._end(RollCallError(f"{self._leader} ({link.peer}) refused {self._me}: {reason}"))
        elif kind == "roster" and self._ticket is not None:
            self._start(link, message)
        elif kind == "over" and self._ticket is not None:
            self._end(RollCallError(printable(wire.text(message, "text", 65536), 65536, lines=True)))
        elif kind == "abandon" and self._ticket is not None:
            self._end(StoppedEarly(wire.host(message), wire.stop_signal(message)))
        else:
            raise wire.WireError(f"an unexpected {kind!r}")

    def _wait(self, link: Link) -> None:
        self._waits = True
        why = "connected; it waits, since it knows another address of this host, or another process has our seat"
        self._stage = Row(self._leader, "hello", why, link.peer)
        if self._hello_timer is not None:
            self._hello_timer.cancel()

    def _welcome(self, link: Link, message: dict[str, Any]) -> None:
        if wire.host(message) != self._leader or wire.text(message, "job") != self._offer.job:
            raise wire.WireError("the welcome of another job's leader")
        self._ticket = Ticket(wire.token(message, "token"), wire.token(message, "answer"))
        link.frames.limit = wire.LEADER_LIMIT
        self._stage = Row(self._leader, "seated", "here, and so are we; it waits for other hosts", link.peer)
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self._record("seated", leader=self._leader, address=link.peer)
        if self._stop is not None:
            self._stop_now()

    def _start(self, link: Link, message: dict[str, Any]) -> None:
        try:
            roster = Roster.from_wire(message.get("roster"), self._me)
        except ValueError as error:
            raise wire.WireError(str(error)) from None
        if roster.job != self._offer.job or self._leader not in {seat.name for seat in roster.seats}:
            raise wire.WireError("the roster of another job")
        assert self._ticket is not None
        self._finish()
        for warning in oddities(self._me, self._own, over=False):
            self._say(warning)
        peers = WorkerChannel(
            self._loop, roster, self._leader, self._ticket, link, self._names, self._settings, self._timeouts,
            self._journal,
        )  # fmt: skip
        self.result = roster, peers

    # time

    def _sweep(self) -> None:
        now = self._loop.clock()
        link = self._link
        there = self._ticket is not None or self._waits
        if link is not None and there and now - self._heard_at >= self._timeouts.silence:
            link.close()
            self._ended(link, "it fell silent", False)
        self._timers[1] = self._loop.call_later(self._timeouts.beat / SHARES, self._sweep)

    def _deadline(self) -> None:
        """The leader knows who is missing, so it is asked for its table first."""
        if self._link is not None and self._ticket is not None:
            self._leaving = True
            self._link.send(wire.pack("leaving"))
            self._timers.append(self._loop.call_later(2 * self._timeouts.flush, self._give_up))
        else:
            self._give_up()

    def _give_up(self) -> None:
        seconds = self._settings.rollcall_timeout
        headline = f"the roll call's {seconds:g} s are over, and {self._me} has no roster from {self._leader}"
        self._end(RollCallError(table(headline, 2, [self._stage], oddities(self._me, self._own, over=True))))

    def _end(self, error: MusterError) -> None:
        if self.error or self.result:
            return
        self.error = self._stop or error
        self._finish()
        if self._link is not None:
            say_bye([self._link], self._timeouts.flush)

    def _finish(self) -> None:
        self._teller.stop()
        self._dialer.stop()
        self._follower.drop(self._me)
        for timer in self._timers:
            timer.cancel()
        if self._hello_timer is not None:
            self._hello_timer.cancel()

    def _sentence(self) -> str:
        stage = self._stage
        if stage.stage == "seated":
            return f"waiting for the other hosts; {self._leader} is here and knows who is missing"
        where = f" at {stage.address}" if stage.address else ""
        return f"waiting for {self._leader}{where}: {stage.detail}"
