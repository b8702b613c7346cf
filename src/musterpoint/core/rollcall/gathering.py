"""The roll call of several hosts: this one calls the others, or is called, as leader or as worker."""

from __future__ import annotations

from signal import SIGINT
from typing import Callable, Mapping

from musterpoint.base.errors import MusterError, RollCallError, StoppedEarly, UsageError
from musterpoint.base.loop import Loop
from musterpoint.core.channel.connection_log import ConnectionLog
from musterpoint.core.channel.dial import is_local
from musterpoint.core.channel.link import Context
from musterpoint.core.channel.names import Answer, Follower, Names, read_hosts, resolve
from musterpoint.core.channel.peers import Peers
from musterpoint.core.channel.session import random_token
from musterpoint.core.channel.timeouts import Timeouts
from musterpoint.core.job.model import UnnamedHosts
from musterpoint.core.ports import Ports
from musterpoint.core.rollcall.agreed_ports import hold_rollcall_port
from musterpoint.core.rollcall.attendance import ProgressPrinter
from musterpoint.core.rollcall.hello import ITSELF
from musterpoint.core.rollcall.leader_call import LeaderCall
from musterpoint.core.rollcall.roster import Participant, Roster
from musterpoint.core.rollcall.worker_call import WorkerCall

_MANY_HOSTS = 100
_SHORT_SECRET = 16
"""Characters below which a secret is warned about."""


class Gathering:
    """The calls of this host. The arguments are :class:`~musterpoint.core.rollcall.roll_call.RollCall`'s;
    ``choose_ports`` are as for :class:`LeaderCall`. ``ports`` are held for the job. ``call``: the one that is made now.
    """

    def __init__(
        self,
        loop: Loop,
        participant: Participant,
        say: Callable[[str], None],
        record: Callable[..., None],
        addresses: Mapping[str, tuple[str, ...]],
        choose_ports: Callable[[], tuple[int, int]],
        ports: Ports,
        timeouts: Timeouts | None = None,
        lookup: Callable[[str, int], Answer] | None = None,
    ) -> None:
        self._loop, self._say, self._record, self._addresses = loop, say, record, addresses
        self._timeouts, self._lookup = timeouts or Timeouts(), lookup or resolve
        self._choose_ports, self._ports = choose_ports, ports
        self._hosts, _, self._me, _, self._settings, self._unnamed, *_ = participant
        self._misplaced = self._unnamed.misplaced if self._unnamed is not None else None
        self._taken: UsageError | None = None
        self._participant = participant
        if self._misplaced is not None:  # it tells the leader, which refuses it and tells the others
            self._participant = self._briefly(participant)
        self.call: LeaderCall | WorkerCall | _EndpointSearch | None = None
        self._other: _OtherLeader | None = None

    def run(self) -> tuple[Roster, Peers]:
        """Waits for the others; returns the roster and the channel.

        Raises:
            MusterError: as of :meth:`RollCall.run`.
        """
        started = self._loop.clock()
        self._record("rollcall-started", hosts=len(self._hosts), leader=self._participant.endpoint)
        call = self._call()
        while call.result is None and call.error is None:
            self._loop.turn()
            if self._other is not None:
                self._other.check()
        if self._other is not None:
            self._other.close()
        if call.error is not None:
            self._record("rollcall-failed", reason=str(call.error))
            said = call.error if isinstance(call.error, UsageError) else self._taken or call.error
            raise self._misplaced or said
        assert call.result is not None
        seconds = round(self._loop.clock() - started, 3)
        self._record("rollcall-done", hosts=len(self._hosts), seconds=seconds)
        return call.result

    def _briefly(self, participant: Participant) -> Participant:
        """``participant`` that calls for a few seconds only."""
        return participant._replace(at_most=self._timeouts.stop_notice)

    def report_stop(self, stop: StoppedEarly) -> None:
        """Tells the others that this host was told to stop."""
        try:
            call = self._call(stopped=True)
        except MusterError:
            return  # no other host can be reached
        call.stop(stop)
        while call.error is None:
            self._loop.turn()

    def _context(self) -> tuple[Context, Names]:
        context = Context(self._loop, self._timeouts, ConnectionLog(self._say, self._record))
        return context, Names(self._loop, self._fixed_addresses(), self._lookup)

    def _call(self, stopped: bool = False) -> LeaderCall | WorkerCall:
        context, names = self._context()
        token = ""
        if self._leads(context, names, context.timeouts.stop_notice if stopped else self._participant.seconds):
            if self._unnamed is not None and self._unnamed.node_rank == 0:
                token = random_token()
            leader = LeaderCall(context, names, self._participant, self._choose_ports, token)
            try:
                hold_rollcall_port(self._settings.rollcall_port, self._me, self._ports)
                leader.start()
            except UsageError as error:
                if self._unnamed is None:
                    raise
                if self._unnamed.node_rank is None:
                    self._say("another host on this machine listens at the leader's port already: it leads")
                else:  # whoever listens there says whether it is a host of this job
                    self._taken = error
                    self._participant = self._briefly(self._participant)
            else:
                self._warn_of_secret()
                if token:
                    self._other = _OtherLeader(context, names, self._participant, token, leader.fail)
                    self._other.start()
                self.call = leader
                return leader
        worker = self.call = WorkerCall(context, names, self._participant)
        worker.start()
        return worker

    def _leads(self, context: Context, names: Names, seconds: float) -> bool:
        """Whether this host is the leader. Where places go by arrival, that is who has the leader's address."""
        if self._unnamed is None:
            return self._me == self._participant.leader
        if self._unnamed.node_rank is not None:
            return self._unnamed.node_rank == 0
        search = self.call = _EndpointSearch(context, names, self._unnamed, seconds)
        search.start()
        while search.result is None and search.error is None:
            self._loop.turn()
        if search.error is not None:
            raise search.error
        return bool(search.result)

    def _warn_of_secret(self) -> None:
        length = len(self._settings.secret)
        make = "python3 -c 'import secrets; print(secrets.token_hex(16))'"
        if 0 < length < _SHORT_SECRET:
            self._say(
                f"warning: MUSTER_SECRET (--secret) has {length} characters: who listens in the network can guess it; "
                f"{make} makes one that can't"
            )
        elif not length and (self._unnamed is not None or self._settings.max_restarts):
            port = f"port {self._settings.rollcall_port} of this host"
            can = f"whoever takes a lost host's address, or answers for its name, and reaches {port} gets its seat"
            if self._unnamed is not None:
                can = f"no host's name is known before the roll call, so whoever reaches {port} could take a seat"
            self._say(
                f"warning: without a secret {can}, and learns what the hosts are told; set MUSTER_SECRET, the same on "
                f"all hosts ({make} makes one)"
            )

    def _fixed_addresses(self) -> dict[str, tuple[str, ...]]:
        """Names that need no look-up. Many hosts in ``/etc/hosts`` would make the C library read it once for each."""
        fixed: dict[str, tuple[str, ...]] = {}
        if len(self._hosts) > _MANY_HOSTS:
            try:
                fixed = read_hosts("/etc/hosts")
            except OSError:
                pass
        return {**fixed, **self._given_addresses()}

    def _given_addresses(self) -> dict[str, tuple[str, ...]]:
        """The addresses that this job's own settings give, by names in lower case."""
        given: dict[str, tuple[str, ...]] = {}
        if self._settings.hosts_file:
            try:
                given = read_hosts(self._settings.hosts_file)
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                raise UsageError(f"--hosts-file {self._settings.hosts_file} can't be read: {why}") from None
        return {**given, **{name.lower(): found for name, found in self._addresses.items()}}


class _EndpointSearch:
    """Looks the leader's name up until it has addresses, for at most ``seconds``.

    :attr:`result` (whether one of them is this host's) or :attr:`error` is set when it is over.
    """

    def __init__(self, context: Context, names: Names, unnamed: UnnamedHosts, seconds: float) -> None:
        self.result: bool | None = None
        self.error: MusterError | None = None
        self._unnamed = unnamed
        self._names = names
        self._seconds = seconds
        self._follower = Follower(context, names, self._resolved)
        self._timer = context.loop.call_later(seconds, self._deadline)
        self._progress = ProgressPrinter(context, lambda: f"waiting for the leader's name: {self._trouble()}")

    def start(self) -> None:
        self._follower.follow(self._unnamed.leader)

    def stop(self, stop: StoppedEarly) -> None:
        self._end(error=stop)

    def _resolved(self, _name: str, answer: Answer) -> None:
        if answer.addresses:
            self._end(any(map(is_local, answer.addresses)))

    def _trouble(self) -> str:
        return f"{self._unnamed.leader}: {self._names.last_answer(self._unnamed.leader).trouble}"

    def _deadline(self) -> None:
        source = self._unnamed.sources.leader
        text = f"the roll call's {self._seconds:g} s are over, and the leader's name ({source}) is not known here"
        self._end(error=RollCallError(f"{text}: {self._trouble()}"))

    def _end(self, result: bool | None = None, error: MusterError | None = None) -> None:
        if self.result is None and self.error is None:
            self.result, self.error = result, error
            self._follower.drop(self._unnamed.leader)
            self._progress.stop()
            self._timer.cancel()


class _OtherLeader:
    """Calls the endpoint from a host that has node rank 0 and isn't found there.

    Another host that has node rank 0, too, would lead there, and each would wait for the others: ``on_found`` gets what
    it says then. A host that is reached there by another address (a published port) finds itself.
    """

    def __init__(
        self,
        context: Context,
        names: Names,
        participant: Participant,
        incarnation: str,
        on_found: Callable[[str, bool], None],
    ) -> None:
        quiet = Context(context.loop, context.timeouts, ConnectionLog(lambda _text: None, lambda _name, **_facts: None))
        self._on_found = on_found
        self._endpoint = participant.endpoint
        self._call = WorkerCall(quiet, names, participant, incarnation)
        self._follower = Follower(quiet, names, self._resolved)
        self._calling = False

    def start(self) -> None:
        self._follower.follow(self._endpoint)

    def check(self) -> None:
        """To be called after every turn of the loop."""
        if self._call.refusal not in ("", ITSELF):
            self._on_found(self._call.refusal, isinstance(self._call.error, UsageError))

    def close(self) -> None:
        self._follower.drop(self._endpoint)
        if self._calling:
            self._call.stop(StoppedEarly("", SIGINT))

    def _resolved(self, _name: str, answer: Answer) -> None:
        if answer.addresses:
            self._follower.drop(self._endpoint)
            if not any(map(is_local, answer.addresses)):
                self._calling = True
                self._call.start()
