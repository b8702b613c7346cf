"""This host's roll call: as leader, as worker, by names only, or none."""

from typing import TYPE_CHECKING, Callable, Mapping

from musterpoint.channel.lone import LoneChannel
from musterpoint.channel.peers import Peers
from musterpoint.errors import MusterError, StoppedEarly, UsageError
from musterpoint.loop import Loop
from musterpoint.rollcall.ports import agreed_master_port, is_free, leaders_master_port
from musterpoint.rollcall.roster import Participant, Roster, Seat
from musterpoint.settings import MASTER_PORT

if TYPE_CHECKING:
    from musterpoint.channel.link import Context
    from musterpoint.channel.names import Answer, Names
    from musterpoint.channel.timeouts import Timeouts
    from musterpoint.rollcall.leader import LeaderCall
    from musterpoint.rollcall.names_call import NamesCall
    from musterpoint.rollcall.worker import WorkerCall

_MANY_HOSTS = 100
_SHORT_SECRET = 16
"""Characters below which a secret is warned about."""


class Seams:
    """What tests replace: the lengths of time, the look-up of a name, and whether a port is free.

    No named tuple: with these types one costs 1 ms of every start.
    """

    def __init__(
        self, timeouts: "Timeouts | None" = None, lookup: "Callable[[str, int], Answer] | None" = None,
        port_is_free: Callable[[int], bool] = is_free,
    ) -> None:  # fmt: skip
        self.timeouts, self.lookup, self.port_is_free = timeouts, lookup, port_is_free


_NO_SEAMS = Seams()


class RollCall:
    """Waits until all hosts of a job are connected.

    ``say`` prints a line, ``record`` adds an event and its facts to the timeline. ``addresses`` gives names that need
    no look-up. ``master_port`` is the platform's own.
    """

    def __init__(
        self, loop: Loop, participant: Participant, say: Callable[[str], None], record: Callable[..., None],
        addresses: Mapping[str, tuple[str, ...]] | None = None, seams: Seams = _NO_SEAMS,
        master_port: int = MASTER_PORT,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._participant = participant
        self._hosts, self._group, self._me, self._offer, self._settings = participant
        self._say = say
        self._record = record
        self._addresses = addresses or {}
        self._seams = seams
        self._preferred_port = master_port
        self._call: LeaderCall | WorkerCall | NamesCall | None = None

    def run(self, stop: StoppedEarly | None = None) -> tuple[Roster, Peers]:
        """Runs the loop until every host is here; returns the roster and this host's end of the channel.

        ``stop``: this host was told to stop before. It only tells the others then, as they would wait for it.

        Raises:
            RollCallError: not every host was here by the deadline, or this one was refused; says who and why.
            UsageError: the leader's port is taken, or the hosts file can't be read.
            StoppedEarly: a host was told to stop in the meantime, or ``stop`` was given.
        """
        if stop is not None:
            self._report_stop(stop)
            raise stop
        if self._settings.rollcall == "off":
            given = self._given_addresses()
            addresses = {host: given.get(host.lower(), (host,))[0] for host in self._hosts}
            return self._assumed(addresses), LoneChannel(self._loop)
        if len(self._hosts) == 1:
            return self._assumed({self._me: "127.0.0.1"}), LoneChannel(self._loop)
        if not self._settings.rollcall_port and self._settings.rollcall == "full":
            raise UsageError("--rollcall-port 0: every host must know the leader's port; give them all the same")
        started = self._loop.clock()
        self._record("rollcall-started", hosts=len(self._hosts), leader=self._participant.leader)
        call = self._call = self._names_call() if self._settings.rollcall == "names" else self._full_call()
        call.start()
        while call.result is None and call.error is None:
            self._loop.turn()
        if call.error is not None:
            self._record("rollcall-failed", reason=str(call.error))
            raise call.error
        assert call.result is not None
        seconds = round(self._loop.clock() - started, 3)
        self._record("rollcall-done", hosts=len(self._hosts), seconds=seconds)
        if isinstance(call.result, dict):
            return self._assumed(call.result), LoneChannel(self._loop)
        return call.result

    def stop(self, signal: int) -> bool:
        """This host was told to stop by ``signal``: :meth:`run` raises :class:`StoppedEarly`, on every host reached.

        False: nothing is waited for, or the roster is here already, so the stop is for the supervisor.
        """
        if self._call is None or self._call.result is not None:
            return False
        self._call.stop(StoppedEarly(self._me, signal))
        return True

    def _report_stop(self, stop: StoppedEarly) -> None:
        settings = self._settings
        if len(self._hosts) == 1 or settings.rollcall != "full" or not settings.rollcall_port:
            return
        try:
            call = self._call = self._full_call()
            call.start()
        except MusterError:
            return  # no other host can be reached
        call.stop(stop)
        while call.error is None:
            self._loop.turn()

    def _context(self) -> "tuple[Context, Names]":
        from musterpoint.channel.connection_log import ConnectionLog
        from musterpoint.channel.link import Context
        from musterpoint.channel.names import Names, resolve
        from musterpoint.channel.timeouts import Timeouts

        context = Context(self._loop, self._seams.timeouts or Timeouts(), ConnectionLog(self._say, self._record))
        return context, Names(self._loop, self._fixed_addresses(), self._seams.lookup or resolve)

    def _names_call(self) -> "NamesCall":
        from musterpoint.rollcall.names_call import NamesCall

        return NamesCall(*self._context(), self._participant)

    def _full_call(self) -> "LeaderCall | WorkerCall":
        context, names = self._context()
        if self._me == self._participant.leader:
            if 0 < len(self._settings.secret) < _SHORT_SECRET:
                self._say(
                    f"warning: --secret has {len(self._settings.secret)} characters, so who listens in the network can "
                    "guess it; python3 -c 'import secrets; print(secrets.token_hex(16))' makes one that can't"
                )
            from musterpoint.rollcall.leader import LeaderCall

            return LeaderCall(context, names, self._participant, self._master_port)
        from musterpoint.rollcall.worker import WorkerCall

        return WorkerCall(context, names, self._participant)

    def _fixed_addresses(self) -> dict[str, tuple[str, ...]]:
        """Names that need no look-up. Many hosts in ``/etc/hosts`` would make the C library read it once for each."""
        from musterpoint.channel.names import read_hosts

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
            from musterpoint.channel.names import read_hosts

            try:
                given = read_hosts(self._settings.hosts_file)
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                raise UsageError(f"--hosts-file {self._settings.hosts_file} can't be read: {why}") from None
        return {**given, **{name.lower(): found for name, found in self._addresses.items()}}

    def _master_port(self) -> int:
        return leaders_master_port(
            self._settings.master_port,
            self._seams.port_is_free,
            lambda text: self._say(f"{text} on {self._me}"),
            self._preferred_port,
        )

    def _agreed_port(self) -> int:
        return agreed_master_port(self._settings.master_port, self._preferred_port)

    def _assumed(self, addresses: Mapping[str, str]) -> Roster:
        """A roster without a roll call: every host of the group is assumed to have this one's slots."""
        offer = self._offer
        slots = dict.fromkeys(self._group, offer.slots)
        seats = tuple(
            Seat(host, addresses[host], slots.get(host, 0), host in slots, offer.version, offer.capacity, offer.ports)
            for host in self._hosts
        )
        # no host could learn of another port
        port = self._master_port() if len(self._hosts) == 1 else self._agreed_port()
        return Roster(offer.job, offer.job, seats, addresses[self._participant.leader], port, self._me)
