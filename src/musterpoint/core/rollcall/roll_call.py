"""This host's roll call: as leader, as worker, or none, where it is the only one."""

from typing import TYPE_CHECKING, Callable, Mapping, NoReturn

from musterpoint.base.errors import StoppedEarly, UsageError
from musterpoint.base.loop import Loop
from musterpoint.base.settings import MASTER_PORT
from musterpoint.core.channel.lone import LoneChannel
from musterpoint.core.channel.peers import Peers
from musterpoint.core.ports import Ports
from musterpoint.core.rollcall.agreed_ports import leaders_master_port
from musterpoint.core.rollcall.roster import Participant, Roster, Seat

if TYPE_CHECKING:
    from musterpoint.core.channel.names import Answer
    from musterpoint.core.channel.timeouts import Timeouts
    from musterpoint.core.rollcall.gathering import Gathering


class Seams:
    """What tests replace: the lengths of time, and the look-up of a name.

    No named tuple: with these types one costs 1 ms of every start.
    """

    def __init__(
        self, timeouts: "Timeouts | None" = None, lookup: "Callable[[str, int], Answer] | None" = None
    ) -> None:
        self.timeouts, self.lookup = timeouts, lookup


class RollCall:
    """Waits until all hosts of a job are connected.

    ``say`` prints a line, ``record`` adds an event and its facts to the timeline. ``ports`` are held for the job.
    ``addresses`` gives names that need no look-up. ``master_port`` is the platform's own.
    """

    def __init__(
        self,
        loop: Loop,
        participant: Participant,
        say: Callable[[str], None],
        record: Callable[..., None],
        ports: Ports,
        addresses: Mapping[str, tuple[str, ...]] | None = None,
        seams: Seams | None = None,
        master_port: int = MASTER_PORT,
    ) -> None:
        self._loop = loop
        self._participant = participant
        self._hosts, self._group, self._me, self._offer, self._settings, *_ = participant
        self._say = say
        self._record = record
        self._addresses = addresses or {}
        self._seams = seams or Seams()
        self._preferred_port, self._ports = master_port, ports
        self._others: Gathering | None = None

    @property
    def _gathering(self) -> "Gathering":
        """The calls to other hosts, and their addresses."""
        if self._others is None:
            from musterpoint.core.rollcall.gathering import Gathering  # 8 ms, for jobs of several hosts

            seams = self._seams
            self._others = Gathering(
                self._loop,
                self._participant,
                self._say,
                self._record,
                self._addresses,
                lambda: (self._master_port(), self._ports.take_any()),
                self._ports,
                seams.timeouts,
                seams.lookup,
            )
        return self._others

    def report_stop(self, stop: StoppedEarly) -> NoReturn:
        """Tells the others, which would wait for this host, that it was told to stop before; raises ``stop``."""
        if len(self._hosts) > 1 and self._settings.rollcall_port:
            self._gathering.report_stop(stop)
        raise stop

    def run(self) -> tuple[Roster, Peers]:
        """Runs the loop until every host is here; returns the roster and this host's end of the channel.

        Raises:
            RollCallError: not every host was here by the deadline, or this one was refused; says who and why.
            UsageError: the leader's port is taken, the hosts file can't be read, or this host's node rank is too high.
            StoppedEarly: a host was told to stop in the meantime.
        """
        if len(self._hosts) == 1:
            return self._alone(), LoneChannel(self._loop, self._participant.worlds)
        if not self._settings.rollcall_port:
            raise UsageError("--rollcall-port 0: every host must know the leader's port; give them all the same")
        return self._gathering.run()

    def stop(self, signal: int) -> bool:
        """This host was told to stop by ``signal``: :meth:`run` raises :class:`StoppedEarly`, on every host reached.

        False: nothing is waited for, or the roster is here already, so the stop is for the supervisor.
        """
        call = self._others.call if self._others is not None else None
        if call is None or call.result is not None:
            return False
        call.stop(StoppedEarly(self._me, signal))
        return True

    def _master_port(self) -> int:
        several = len(self._hosts) > 1  # one host's ranks need no open port
        say = self._say if several else lambda text: None
        return leaders_master_port(self._settings.master_port, self._ports, say, self._preferred_port)

    def _alone(self) -> Roster:
        """The roster of a job's only host."""
        offer, me, loopback = self._offer, self._me, "127.0.0.1"
        slots = offer.slots if me in self._group else 0
        seat = Seat(me, loopback, slots, me in self._group, offer.version, offer.capacity, offer.ports)
        seat = seat._replace(role=offer.role, role_ports=offer.role_ports, launcher=offer.launcher)
        restarts, port = self._settings.max_restarts, self._master_port()
        return Roster(offer.job, offer.job, (seat,), loopback, port, me, 0, restarts, 0, me, port)
