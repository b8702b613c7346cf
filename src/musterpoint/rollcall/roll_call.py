"""The roll call as the road calls it: one host's part, chosen by who it is and what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Mapping

from musterpoint.channel.lone import LoneChannel
from musterpoint.channel.peers import Peers
from musterpoint.errors import MusterError, StoppedEarly, UsageError
from musterpoint.loop import Loop
from musterpoint.rollcall.ports import any_free, is_free
from musterpoint.rollcall.roster import Offer, Roster, Seat
from musterpoint.settings import MASTER_PORT, Settings

if TYPE_CHECKING:
    from musterpoint.channel.names import Answer, Names
    from musterpoint.channel.timeouts import Timeouts
    from musterpoint.rollcall.leader import LeaderCall
    from musterpoint.rollcall.names_call import NamesCall
    from musterpoint.rollcall.worker import WorkerCall

_MANY_HOSTS = 100
_SHORT_SECRET = 16
"""Characters below which a secret is warned about."""


class RollCall:
    """Gathers the hosts of a job.

    ``hosts`` are all of them in rank order and ``group_hosts`` those of the distribution, whose first is the leader;
    ``me`` is this one. ``say`` prints a line, ``record`` takes a moment's name and facts. ``addresses`` gives names
    that need no look-up. ``lookup``, ``timeouts`` and ``port_is_free`` are there for tests.
    """

    def __init__(
        self, loop: Loop, hosts: tuple[str, ...], group_hosts: tuple[str, ...], me: str, offer: Offer,
        settings: Settings, say: Callable[[str], None], record: Callable[..., None],
        addresses: Mapping[str, tuple[str, ...]] | None = None, *, timeouts: Timeouts | None = None,
        lookup: Callable[[str, int], Answer] | None = None, port_is_free: Callable[[int], bool] = is_free,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._hosts = hosts
        self._group_hosts = group_hosts
        self._me = me
        self._offer = offer
        self._settings = settings
        self._say = say
        self._record = record
        self._addresses = addresses or {}
        self._timeouts = timeouts
        self._lookup = lookup
        self._port_is_free = port_is_free
        self._call: LeaderCall | WorkerCall | NamesCall | None = None
        self._stopped: StoppedEarly | None = None

    def run(self) -> tuple[Roster, Peers]:
        """The roster and this host's end of the channel; blocks in the loop until every host is here.

        Raises:
            RollCallError: not every host was here by the deadline, or this one was refused; says who and why.
            UsageError: the leader's port is taken, or the hosts file can't be read.
            StoppedEarly: a host was told to stop in the meantime, or this one before (:meth:`pass_on`).
        """
        if self._stopped is not None:
            self._tell_of(self._stopped)
            raise self._stopped
        leader = self._group_hosts[0]
        if self._settings.rollcall == "off":
            told = self._told()
            addresses = {host: told.get(host.lower(), (host,))[0] for host in self._hosts}
            return self._assumed(addresses), LoneChannel(self._loop)
        if len(self._hosts) == 1:
            return self._assumed({self._me: "127.0.0.1"}), LoneChannel(self._loop)
        if not self._settings.rollcall_port and self._settings.rollcall == "full":
            raise UsageError("--rollcall-port 0: every host must know the leader's port; give them all the same")
        started = self._loop.clock()
        self._record("rollcall-started", hosts=len(self._hosts), leader=leader)
        call = self._call = self._names_part() if self._settings.rollcall == "names" else self._part(leader)
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

    def pass_on(self, stop: StoppedEarly) -> None:
        """To be called before :meth:`run`: this host was told to stop. It attends the roll call for a moment to say so;
        else the others would wait for it until their deadline.
        """
        self._stopped = stop

    def _tell_of(self, stop: StoppedEarly) -> None:
        settings = self._settings
        if len(self._hosts) == 1 or settings.rollcall != "full" or not settings.rollcall_port:
            return
        try:
            call = self._call = self._part(self._group_hosts[0])
            call.start()
        except MusterError:
            return  # nobody can reach this host
        call.abandon(stop)
        while call.error is None:
            self._loop.turn()

    def abandon(self, signal: int) -> None:
        """This host was told to stop by ``signal``: :meth:`run` raises :class:`StoppedEarly`, on every host reached."""
        stop = StoppedEarly(self._me, signal)
        if self._call is None:
            self.pass_on(stop)
        else:
            self._call.abandon(stop)

    def _known(self) -> tuple[Names, Timeouts]:
        from musterpoint.channel.names import Names, resolve
        from musterpoint.channel.timeouts import Timeouts

        return Names(self._loop, self._fixed(), self._lookup or resolve), self._timeouts or Timeouts()

    def _names_part(self) -> NamesCall:
        from musterpoint.rollcall.names_call import NamesCall

        names, timeouts = self._known()
        return NamesCall(self._loop, self._hosts, self._me, self._settings.rollcall_timeout, names, timeouts, self._say)

    def _part(self, leader: str) -> LeaderCall | WorkerCall:
        from musterpoint.channel.journal import Journal

        names, timeouts = self._known()
        journal = Journal(self._say, self._record)
        if self._me == leader:
            if 0 < len(self._settings.secret) < _SHORT_SECRET:
                self._say(
                    f"warning: --secret has {len(self._settings.secret)} characters, so who listens in the network can "
                    "guess it; python3 -c 'import secrets; print(secrets.token_hex(16))' makes one that can't"
                )
            from musterpoint.rollcall.leader import LeaderCall

            return LeaderCall(
                self._loop, self._hosts, self._group_hosts, self._me, self._offer, self._settings, names,
                timeouts, journal, self._master_port,
            )  # fmt: skip
        from musterpoint.rollcall.worker import WorkerCall

        return WorkerCall(self._loop, leader, self._me, self._offer, self._settings, names, timeouts, journal)

    def _fixed(self) -> dict[str, tuple[str, ...]]:
        """Names that need no look-up. Many hosts in ``/etc/hosts`` would make the C library read it once for each."""
        from musterpoint.channel.names import read_hosts

        fixed: dict[str, tuple[str, ...]] = {}
        if len(self._hosts) > _MANY_HOSTS:
            try:
                fixed = read_hosts("/etc/hosts")
            except OSError:
                pass
        return {**fixed, **self._told()}

    def _told(self) -> dict[str, tuple[str, ...]]:
        """The addresses that this job's own settings give, by names in lower case."""
        told: dict[str, tuple[str, ...]] = {}
        if self._settings.hosts_file:
            from musterpoint.channel.names import read_hosts

            try:
                told = read_hosts(self._settings.hosts_file)
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                raise UsageError(f"--hosts-file {self._settings.hosts_file} can't be read: {why}") from None
        return {**told, **{name.lower(): found for name, found in self._addresses.items()}}

    def _master_port(self) -> int:
        wanted = self._settings.master_port
        if wanted is None:
            return MASTER_PORT if self._port_is_free(MASTER_PORT) else any_free()
        if wanted and not self._port_is_free(wanted):
            self._say(f"warning: --master-port {wanted} is in use on {self._me}")
        return wanted or any_free()

    def _assumed(self, addresses: Mapping[str, str]) -> Roster:
        """A roster without a roll call: every host of the group is taken to bring as many slots as this one."""
        offer = self._offer
        slots = dict.fromkeys(self._group_hosts, offer.slots)
        seats = tuple(
            Seat(host, addresses[host], slots.get(host, 0), host in slots, offer.version, offer.room, offer.ports)
            for host in self._hosts
        )
        leader = self._group_hosts[0]
        # nobody could tell the others of another port
        port = self._master_port() if len(self._hosts) == 1 else self._settings.master_port or MASTER_PORT
        return Roster(offer.job, offer.job, seats, addresses[leader], port, self._me)
