"""A worker's roll call: connects to the leader, sends its hello, waits for the roster."""

from __future__ import annotations

import socket
from functools import partial
from signal import SIGINT
from typing import Any

from musterpoint.base.errors import MusterError, RollCallError, StoppedEarly
from musterpoint.base.loop import Timer
from musterpoint.base.untrusted import printable
from musterpoint.core.channel import wire
from musterpoint.core.channel.beats import Sweeper
from musterpoint.core.channel.bounds import is_address
from musterpoint.core.channel.dial import NOTHING, VANISHED, Dialer, Miss, Target, is_local
from musterpoint.core.channel.handshake import Handshake
from musterpoint.core.channel.link import Context, Link, LinkOwner, plain_address, say_bye
from musterpoint.core.channel.names import Answer, Follower, Names
from musterpoint.core.channel.peers import Peers
from musterpoint.core.channel.redial import DialerMaker, Membership
from musterpoint.core.channel.session import Ticket, random_token
from musterpoint.core.channel.worker_channel import WorkerChannel
from musterpoint.core.rollcall.attendance import TO_OPEN, UNANSWERED, HostRow, ProgressPrinter, oddities, table
from musterpoint.core.rollcall.hello import MOST_ADDRESSES, NO_SEAT, Hello, error_of
from musterpoint.core.rollcall.roster import Participant, Roster
from musterpoint.core.rollcall.seat_columns import read_roster

_OWN_NAME_PATIENCE = 1.0
_LONGEST_REASON = 600


class WorkerCall:
    """:attr:`result` or :attr:`error` is set when it is over; :attr:`refusal` is why the leader refused this host.

    ``dialer`` makes what dials the leader, if that isn't a :class:`Dialer`.
    """

    def __init__(
        self,
        context: Context,
        names: Names,
        participant: Participant,
        incarnation: str = "",
        dialer: DialerMaker | None = None,
    ) -> None:
        self.result: tuple[Roster, Peers] | None = None
        self.error: MusterError | None = None
        self.refusal = ""
        self._context = context
        self._loop, self._timeouts, log = context.loop, context.timeouts, context.log
        self._say, self._record = log.say, log.record
        self._names = names
        self._unnamed = participant.unnamed
        self._leader = self._endpoint = participant.endpoint
        self._seat = 0
        self._me = participant.me
        self._participant = participant
        self._settings = participant.settings
        self._stopped: StoppedEarly | None = None
        self._incarnation = incarnation or random_token()
        self._own = UNANSWERED
        self._sources: tuple[str, ...] = ()
        self._follower = Follower(context, names, self._own_name)
        target = Target(self._leader, self._settings.rollcall_port, lambda: self._sources)
        self._dialer_of: DialerMaker = dialer or partial(Dialer, context, names)
        self._dialer = self._dialer_of(target, self._connected, self._missed)
        self._link_owner = LinkOwner(self._frame, self._ended)
        self._link: Link | None = None
        self._handshake: Handshake
        self._waits = False
        self._heard = False  # any word of musterpoint's
        self._ticket: Ticket | None = None
        self._stage = HostRow(self._leader, "name", UNANSWERED.trouble)
        self._received_at = 0.0
        self._dialling = False
        self._leaving = False
        self._progress: ProgressPrinter
        self._sweeper: Sweeper
        self._hello_timer: Timer | None = None
        self._timers: list[Timer] = []

    def start(self) -> None:
        self._progress = ProgressPrinter(self._context, self._sentence)
        # a standstill of this host isn't subtracted here: a new connection costs little during the roll call
        self._sweeper = Sweeper(self._context, lambda _seconds, _now: None, self._sweep)
        self._timers = [
            self._loop.call_later(self._participant.seconds, self._deadline),
            self._loop.call_later(_OWN_NAME_PATIENCE, self._dial),
        ]
        if self._unnamed is None:
            self._follower.follow(self._me)
        else:  # no name of ours is known to the others
            self._dial()

    def stop(self, stop: StoppedEarly) -> None:
        """This host was told to stop: tries for 8 s to tell the leader, which tells the others.

        At the second call, or for Ctrl-C, it doesn't wait.
        """
        again, self._stopped = self._stopped is not None, stop
        if self._ticket is not None or again or stop.signal == SIGINT:
            self._stop_now()
            return
        self._say(f"{stop}: telling the others, for {self._timeouts.stop_notice:g} s at most")
        self._progress.stop()
        self._timers[0].cancel()
        self._timers[0] = self._loop.call_later(self._timeouts.stop_notice, self._stop_now)

    def _stop_now(self) -> None:
        assert self._stopped is not None
        if self._ticket is not None and self._link is not None:
            self._link.send(wire.pack("abandon", signal=self._stopped.signal))
        self._end(self._stopped)

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

    def _missed(self, kind: Miss, detail: str) -> None:
        in_name = kind == VANISHED or (kind == NOTHING and not self._names.last_answer(self._endpoint).addresses)
        self._stage = HostRow(self._leader, "name" if in_name else "connect", detail)
        self._dialer.again()

    def _connected(self, sock: socket.socket, address: str) -> None:
        if (self._stage.stage, self._stage.address) != ("hello", address):  # its last answer says more
            self._stage = HostRow(self._leader, "hello", "connected, but it has not answered the hello", address)
        self._link = Link(self._context, sock, address, wire.HELLO_LIMIT, self._link_owner)
        nonce = random_token() if self._settings.secret else ""
        known = map(plain_address, self._names.last_answer(self._endpoint).addresses)
        sees = tuple(filter(is_address, known))[:MOST_ADDRESSES]
        stop = self._stopped.signal if self._stopped else 0
        hello = Hello(self._me, self._participant.offer, self._incarnation, sees, address, nonce, stop=stop)
        if self._unnamed is not None:
            rank = self._unnamed.node_rank
            hello = hello._replace(nnodes=self._unnamed.nnodes, place=-1 if rank is None else rank)
        self._received_at = self._loop.clock()
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
        other = "" if self._heard else f"; another program may listen on port {self._settings.rollcall_port} there"
        self._stage = HostRow(self._leader, "hello", f"connected, then {why}{other}", link.peer)
        if self._leaving:
            self._give_up()
        elif not self.error:
            self._dialer.again()

    # what the leader sends

    def _frame(self, link: Link, payload: bytes) -> None:
        taken = self._handshake.receive(payload)
        if taken is None:
            return
        self._received_at = self._loop.clock()
        if wire.is_beat(taken):
            wire.read_beat(taken)
            if not link.busy:
                link.send(wire.pack_beat(0))
            return
        message = wire.unpack(taken, compressed=self._ticket is not None)
        self._heard, kind = True, message["t"]
        if kind == "wait" and self._ticket is None:
            self._wait(link)
        elif kind == "challenge" and self._ticket is None:
            pass  # it has a secret and we have none: its refusal follows
        elif kind == "welcome" and self._ticket is None:
            self._welcome(link, message)
        elif kind == "refused":
            reason = self.refusal = printable(wire.text(message, "reason"), _LONGEST_REASON)
            error = error_of(reason, message.get("usage") == 1)
            own = f". {self._described()}" if reason == NO_SEAT else ""
            self._end(error(f"{self._leader} ({link.peer}) refused {self._me}: {reason}{own}"))
        elif kind == "roster" and self._ticket is not None:
            self._roster(link, message)
        elif kind == "over" and self._ticket is not None:
            text = printable(wire.text(message, "text", 65536), 65536, lines=True)
            self._end(error_of(text.partition("\n")[0], message.get("usage") == 1)(text))
        elif kind == "abandon" and self._ticket is not None:
            self._end(StoppedEarly(wire.host(message), wire.stop_signal(message)))
        else:
            raise wire.WireError(f"an unexpected {kind!r}")

    def _described(self) -> str:
        """What this host said of itself, to be compared with the leader's side: strangers learn nothing of it."""
        count = f", {self._unnamed.nnodes} hosts (--nnodes)" if self._unnamed is not None else ""
        return (
            f"This host's job is {self._participant.offer.job!r} (the program's name, or --job-name), its launcher "
            f"{self._participant.offer.launcher}{count}: all hosts need the same"
        )

    def _wait(self, link: Link) -> None:
        self._waits = True
        why = "connected; it waits, since it knows another address of this host, or another process has our seat"
        self._stage = HostRow(self._leader, "hello", why, link.peer)
        if self._hello_timer is not None:
            self._hello_timer.cancel()

    def _welcome(self, link: Link, message: dict[str, Any]) -> None:
        leader = wire.host(message)
        if self._unnamed is not None:
            self._seat = wire.number(message, "seat", self._unnamed.nnodes - 1, 1)
        elif leader != self._leader:
            raise wire.WireError("the welcome of another job's leader")
        if wire.text(message, "job") != self._participant.offer.job:
            raise wire.WireError("the welcome of another job's leader")
        self._leader = leader
        self._ticket = Ticket(wire.token(message, "token"), wire.token(message, "answer"))
        link.set_limit(wire.LEADER_LIMIT)
        self._stage = HostRow(self._leader, "seated", "here, and so are we; it waits for other hosts", link.peer)
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self._record("seated", leader=self._leader, address=link.peer)
        if self._stopped is not None:
            self._stop_now()

    def _roster(self, link: Link, message: dict[str, Any]) -> None:
        try:
            roster = read_roster(message.get("roster"), self._me if self._unnamed is None else self._seat)
        except ValueError as error:
            raise wire.WireError(str(error)) from None
        hosts = frozenset(seat.name for seat in roster.seats)
        if self._unnamed is not None:
            self._me, self._leader = roster.me, roster.seats[0].name
        if roster.job != self._participant.offer.job or self._leader not in hosts:
            raise wire.WireError("the roster of another job")
        assert self._ticket is not None
        self._finish()
        for warning in oddities(self._me, self._own, over=False) if self._unnamed is None else ():
            self._say(warning)
        membership = Membership(
            self._me, self._leader, hosts, roster.seat.address, roster.session, self._ticket, self._endpoint
        )
        self.result = roster, WorkerChannel(self._context, self._dialer_of, link, membership, self._settings)

    # time

    def _sweep(self, now: float) -> None:
        link = self._link
        answered = self._ticket is not None or self._waits
        if link is not None and answered and now - self._received_at >= self._timeouts.silence:
            link.close()
            self._ended(link, "it fell silent", False)

    def _deadline(self) -> None:
        """Asks the leader for its table first, since it knows who is missing."""
        if self._link is not None and self._ticket is not None:
            self._leaving = True
            self._link.send(wire.pack("leaving"))
            self._timers.append(self._loop.call_later(2 * self._timeouts.flush, self._give_up))
        else:
            self._give_up()

    def _give_up(self) -> None:
        seconds = self._participant.seconds
        headline = f"the roll call's {seconds:g} s are over, and {self._me} has no roster from {self._leader}"
        notes = oddities(self._me, self._own, over=True) if self._unnamed is None else [self._where()]
        if self._stage.stage == "hello" and not self._heard:
            notes.append("--rollcall-port gives the roll call another port, the same one on every host")
        elif self._stage.stage == "connect":
            notes.append(f"no call to port {self._settings.rollcall_port} of {self._leader} came through: {TO_OPEN}")
        self._end(RollCallError(table(headline, 2, [self._stage], notes)))

    def _where(self) -> str:
        assert self._unnamed is not None
        sources = self._unnamed.sources
        leads = "node rank 0" if self._unnamed.node_rank is not None else "that address"
        return (
            f"the leader was looked for at {self._endpoint} port {self._settings.rollcall_port}, as {sources.leader} "
            f"says on {self._me}: it is the host with {leads}"
        )

    def _end(self, error: MusterError) -> None:
        if self.error or self.result:
            return
        self.error = self._stopped or error
        self._finish()
        if self._link is not None:
            say_bye([self._link], self._timeouts.flush)

    def _finish(self) -> None:
        self._progress.stop()
        self._dialer.stop()
        self._sweeper.stop()
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
