"""This host's roll call: as leader, as worker, by names only, or none."""

from typing import TYPE_CHECKING, Callable, Mapping

from musterpoint.base.errors import MusterError, StoppedEarly, UsageError
from musterpoint.base.loop import Loop
from musterpoint.base.settings import MASTER_PORT
from musterpoint.core.channel.lone import LoneChannel
from musterpoint.core.channel.peers import Peers
from musterpoint.core.rollcall.ports import agreed_master_port, is_free, leaders_master_port
from musterpoint.core.rollcall.roster import Participant, Roster, Seat

if TYPE_CHECKING:
    from musterpoint.core.channel.link import Context
    from musterpoint.core.channel.names import Answer, Names
    from musterpoint.core.channel.timeouts import Timeouts
    from musterpoint.core.job.model import UnnamedHosts
    from musterpoint.core.rollcall.endpoint import EndpointSearch, OtherLeader
    from musterpoint.core.rollcall.leader import LeaderCall
    from musterpoint.core.rollcall.names_call import NamesCall
    from musterpoint.core.rollcall.worker import WorkerCall

_MANY_HOSTS = 100
_SHORT_SECRET = 16
"""Characters below which a secret is warned about."""


class Seams:
    """What tests replace: the lengths of time, the look-up of a name, and whether a port is free.

    No named tuple: with these types one costs 1 ms of every start.
    """

    def __init__(
        self,
        timeouts: "Timeouts | None" = None,
        lookup: "Callable[[str, int], Answer] | None" = None,
        port_is_free: Callable[[int], bool] = is_free,
    ) -> None:
        self.timeouts, self.lookup, self.port_is_free = timeouts, lookup, port_is_free


_NO_SEAMS = Seams()


class RollCall:
    """Waits until all hosts of a job are connected.

    ``say`` prints a line, ``record`` adds an event and its facts to the timeline. ``addresses`` gives names that need
    no look-up. ``master_port`` is the platform's own.
    """

    def __init__(
        self,
        loop: Loop,
        participant: Participant,
        say: Callable[[str], None],
        record: Callable[..., None],
        addresses: Mapping[str, tuple[str, ...]] | None = None,
        seams: Seams = _NO_SEAMS,
        master_port: int = MASTER_PORT,
    ) -> None:
        self._loop = loop
        self._participant = participant
        self._hosts, self._group, self._me, self._offer, self._settings, self._unnamed = participant
        self._say = say
        self._record = record
        self._addresses = addresses or {}
        self._seams = seams
        self._preferred_port = master_port
        self._call: LeaderCall | WorkerCall | NamesCall | EndpointSearch | None = None
        self._other: OtherLeader | None = None
        self._misplaced: UsageError | None = None
        if self._unnamed is not None:
            self._adopt(self._unnamed)

    def _adopt(self, unnamed: "UnnamedHosts") -> None:
        """The platform names no host: the leader is looked for at one place."""
        self._misplaced = unnamed.misplaced
        if self._misplaced is not None:  # it tells the leader, which refuses it and tells the others
            from musterpoint.core.channel.timeouts import Timeouts

            notice = (self._seams.timeouts or Timeouts()).stop_notice
            timeout = min(self._settings.rollcall_timeout, notice)
            self._settings = self._settings._replace(rollcall_timeout=timeout)
        self._participant = self._participant._replace(settings=self._settings)

    def run(self, stop: StoppedEarly | None = None) -> tuple[Roster, Peers]:
        """Runs the loop until every host is here; returns the roster and this host's end of the channel.

        ``stop``: this host was told to stop before. It only tells the others then, as they would wait for it.

        Raises:
            RollCallError: not every host was here by the deadline, or this one was refused; says who and why.
            UsageError: the leader's port is taken, the hosts file can't be read, or this host's node rank is too high.
            StoppedEarly: a host was told to stop in the meantime, or ``stop`` was given.
        """
        if stop is not None:
            self._report_stop(stop)
            raise stop
        if self._misplaced is not None and self._settings.rollcall != "full":  # no other host can be told
            raise self._misplaced
        if self._settings.rollcall == "off":
            return self._assumed(self._unlooked()), LoneChannel(self._loop)
        if len(self._hosts) == 1:
            return self._assumed({self._hosts[0]: "127.0.0.1"}), LoneChannel(self._loop)
        if not self._settings.rollcall_port and self._settings.rollcall == "full":
            raise UsageError("--rollcall-port 0: every host must know the leader's port; give them all the same")
        started = self._loop.clock()
        self._record("rollcall-started", hosts=len(self._hosts), leader=self._participant.endpoint)
        call: LeaderCall | WorkerCall | NamesCall
        call = self._names_call() if self._settings.rollcall == "names" else self._full_call()
        while call.result is None and call.error is None:
            self._loop.turn()
            if self._other is not None:
                self._other.check()
        if self._other is not None:
            self._other.close()
        if call.error is not None:
            self._record("rollcall-failed", reason=str(call.error))
            raise self._misplaced or call.error
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
            call = self._full_call(stopped=True)
        except MusterError:
            return  # no other host can be reached
        call.stop(stop)
        while call.error is None:
            self._loop.turn()

    def _context(self) -> "tuple[Context, Names]":
        from musterpoint.core.channel.connection_log import ConnectionLog
        from musterpoint.core.channel.link import Context
        from musterpoint.core.channel.names import Names, resolve
        from musterpoint.core.channel.timeouts import Timeouts

        context = Context(self._loop, self._seams.timeouts or Timeouts(), ConnectionLog(self._say, self._record))
        return context, Names(self._loop, self._fixed_addresses(), self._seams.lookup or resolve)

    def _names_call(self) -> "NamesCall":
        from musterpoint.core.rollcall.names_call import NamesCall

        participant = self._participant
        if self._unnamed is not None:  # of the others no name is known
            participant = participant._replace(hosts=(participant.endpoint,))
        call = self._call = NamesCall(*self._context(), participant)
        call.start()
        return call

    def _full_call(self, stopped: bool = False) -> "LeaderCall | WorkerCall":
        context, names = self._context()
        token = ""
        if self._leads(context, names, context.timeouts.stop_notice if stopped else self._settings.rollcall_timeout):
            from musterpoint.core.rollcall.leader import LeaderCall

            if self._unnamed is not None and self._unnamed.node_rank == 0:
                from musterpoint.core.channel.session import random_token

                token = random_token()
            leader = LeaderCall(context, names, self._participant, self._master_port, token)
            try:
                leader.start()
            except UsageError:
                if self._unnamed is None or self._unnamed.node_rank is not None:
                    raise
                self._say("another host on this machine listens at the leader's port already: it leads")
            else:
                self._warn_of_secret()
                if token:
                    from musterpoint.core.rollcall.endpoint import OtherLeader

                    self._other = OtherLeader(context, names, self._participant, token, leader.fail)
                    self._other.start()
                self._call = leader
                return leader
        from musterpoint.core.rollcall.worker import WorkerCall

        worker = self._call = WorkerCall(context, names, self._participant)
        worker.start()
        return worker

    def _leads(self, context: "Context", names: "Names", seconds: float) -> bool:
        """Whether this host is the leader. Where places go by arrival, that is who has the leader's address."""
        if self._unnamed is None:
            return self._me == self._participant.leader
        if self._unnamed.node_rank is not None:
            return self._unnamed.node_rank == 0
        from musterpoint.core.rollcall.endpoint import EndpointSearch

        search = self._call = EndpointSearch(context, names, self._unnamed, seconds)
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
                f"warning: --secret has {length} characters, so who listens in the network can guess it; {make} makes "
                "one that can't"
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
        from musterpoint.core.channel.names import read_hosts

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
            from musterpoint.core.channel.names import read_hosts

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

    def _unlooked(self) -> dict[str, str]:
        """Each host's address without any look-up: its name, where the hosts file has none."""
        given = self._given_addresses()
        hosts = self._hosts if self._unnamed is None else (self._participant.endpoint,)
        return {host: given.get(host.lower(), (host,))[0] for host in hosts}

    def _of_placeholders(self, unnamed: "UnnamedHosts", leader: str) -> tuple[dict[str, str], str]:
        """The addresses and this host's name where only the leader's address is known: enough for env://."""
        from musterpoint.core.channel.dial import systems_choice
        from musterpoint.core.channel.fields import is_address

        addresses = {host: host for host in self._hosts}
        me = self._hosts[unnamed.node_rank or 0]
        addresses[me] = (systems_choice(leader) if is_address(leader) else "") or self._me
        addresses[self._hosts[0]] = leader
        return addresses, me

    def _assumed(self, addresses: Mapping[str, str]) -> Roster:
        """A roster without a roll call: every host of the group is assumed to have this one's slots."""
        offer, me = self._offer, self._me
        if self._unnamed is not None:
            addresses, me = self._of_placeholders(self._unnamed, addresses[self._participant.endpoint])
        slots = dict.fromkeys(self._group, offer.slots)
        seats = tuple(
            Seat(host, addresses[host], slots.get(host, 0), host in slots, offer.version, offer.capacity, offer.ports)
            for host in self._hosts
        )
        # no host could learn of another port
        agreed = agreed_master_port(self._settings.master_port, self._preferred_port)
        port = self._master_port() if len(self._hosts) == 1 else agreed
        leader, restarts = addresses[self._participant.leader], self._settings.max_restarts
        return Roster(offer.job, offer.job, seats, leader, port, me, max_restarts=restarts)
