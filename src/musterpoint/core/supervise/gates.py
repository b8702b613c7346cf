"""The gates of a job's roles on this host: which programs start once which other roles are ready, and who waits."""

from __future__ import annotations

from typing import Callable, Iterable

from musterpoint.base import exit_codes
from musterpoint.base.failure import Failure, fit
from musterpoint.base.loop import Timer
from musterpoint.core.channel.peers import NotReady, Peers, RoleReady
from musterpoint.core.channel.topics import ready_roles
from musterpoint.core.launch.launch_plan import Gate
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.readiness import ReadyWatch

SAID_AFTER = 10.0
"""Seconds after which who waits says for whom; three times as long before it says so again."""


class Gates:
    """``open_gate`` starts the programs of a role here; ``pids`` gives those that run of it. ``hosts_of``: the hosts of
    each role of the job. ``fail`` gets the failure of a role that isn't ready in time; only the leader's.
    """

    def __init__(
        self,
        context: SupervisorContext,
        peers: Peers,
        gates: tuple[Gate, ...],
        open_gate: Callable[[str], None],
        pids: Callable[[str], Iterable[int]],
        fail: Callable[[Failure], None],
    ) -> None:
        self._context, self._open_gate, self._fail = context, open_gate, fail
        self._gates = gates
        self._ready: set[str] = set()
        self._closed = {gate.role for gate in gates}
        own = gates[0].role
        self._watches = {
            gate.role: ReadyWatch(
                context.loop,
                context.pump,
                gate.ready,
                "" if gate.role == own else gate.role,
                lambda role=gate.role: pids(role),  # type: ignore[misc]
                lambda role=gate.role: self._is_ready(role),  # type: ignore[misc]
            )
            for gate in gates
            if gate.needed
        }
        self._topic = peers.topic(ready_roles.TOPIC)  # a lone host's counts from now on
        self._pause = SAID_AFTER
        self._timer: Timer | None = context.loop.call_later(SAID_AFTER, self._tell)

    def begin(self) -> None:
        """Starts what waits for nobody. Roles beside this host's own come first."""
        for gate in (*self._gates[1:], self._gates[0]):
            self._try(gate)

    def hear(self, event: RoleReady | NotReady) -> None:
        """Another role is ready, or isn't in time."""
        if isinstance(event, NotReady):
            self._fail(not_ready(event, self._context.host, self._waiting_for(event.role)))
            return
        self._ready.add(event.role)
        self._context.record("role-ready", role=event.role)
        self.begin()

    def _try(self, gate: Gate) -> None:
        if gate.role not in self._closed or not self._ready.issuperset(gate.after):
            return
        self._closed.remove(gate.role)
        self._open_gate(gate.role)
        if gate.role in self._watches:
            self._watches[gate.role].begin()

    def _is_ready(self, role: str) -> None:
        self._context.record("program-ready", role=role)
        self._topic.ready(role)

    def ended(self, role: str) -> None:
        """The programs of ``role`` here have ended with 0: it will never be ready, if it wasn't."""
        watch = self._watches.get(role)
        if watch is not None and role not in self._closed and not watch.is_over:
            self._fail(never_ready(role, self._context.host))

    @property
    def sentence(self) -> str:
        """The roles that wait here, each with whom for; empty: none."""
        parts = []
        for gate in self._gates:
            missing = [role for role in gate.after if role not in self._ready]
            if gate.role in self._closed and missing:
                parts.append(f"{gate.role} waits for {' and '.join(missing)} to be ready")
        return "; ".join(parts)

    def _waiting_for(self, role: str) -> str:
        return " and ".join(gate.role for gate in self._gates if role in gate.after)

    def _tell(self) -> None:
        said = [self.sentence] if self.sentence else []
        said += [
            f"{gate.role} isn't ready here yet: {gate.ready}{self._watches[gate.role].remark}"
            for gate in self._gates
            if gate.role in self._watches and gate.role not in self._closed and not self._watches[gate.role].is_over
        ]
        for text in said:
            self._context.say(text)
        self._pause *= 3
        self._timer = self._context.loop.call_later(self._pause, self._tell) if said else None

    def close(self) -> None:
        """The ranks are told to end: nothing starts, or gets ready, any more."""
        self._closed.clear()
        for watch in self._watches.values():
            watch.close()
        if self._timer is not None:
            self._timer.cancel()


def not_ready(event: NotReady, host: str, waiting: str) -> Failure:
    """The failure of a role that isn't ready in time: a table."""
    rows = []
    for role, hosts, waits in event.roles:
        state = f"not ready on {_named(hosts)}" if hosts else "ready"
        rows.append(f"  {role}: {'waits for ' + ' and '.join(waits) if waits else state}")
    lead = f"muster: {event.role} isn't ready after {event.seconds:g} s (--ready-timeout)"
    lead += f", and {waiting} waits for it" if waiting else ""
    reason = fit([lead, *rows, f"exit code {exit_codes.ROLLCALL}"], last_first=True)
    return Failure(host, exit_codes.ROLLCALL, "muster", "infra", reason)


def never_ready(role: str, host: str) -> Failure:
    """The failure of a role that has ended with 0 before it was ready."""
    reason = f"{role} on {host} ended with exit code 0 before it was ready, and others wait for it"
    return Failure(host, exit_codes.ROLLCALL, "user", "user", reason, role=role)


def _named(hosts: tuple[str, ...]) -> str:
    """``hosts``, the first of them by name; a lone host has none."""
    names = [host or "this host" for host in hosts]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
