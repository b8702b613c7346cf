"""The launch plan: every process this host will start, with a reason for every flag and variable."""

from __future__ import annotations

from typing import Any, NamedTuple


class Argument(NamedTuple):
    """One word of an argv. ``reason`` is empty where the word speaks for itself."""

    text: str
    reason: str = ""


class EnvSetting(NamedTuple):
    """One environment variable we set. Variables the user set never appear here."""

    name: str
    value: str
    reason: str


class ProcessPlan(NamedTuple):
    """One process of this host.

    ``role`` is ``rank`` (the supervisor is its parent, it counts), ``launcher`` (starts this host's ranks through the
    rank stub) or ``service`` (lives as long as the ranks do). A ``rank`` has its global and local rank.
    ``environment`` is set on top of the plan's.
    """

    role: str
    name: str
    argv: tuple[Argument, ...]
    environment: tuple[EnvSetting, ...] = ()
    cwd: str = "/"
    rank: int | None = None
    local_rank: int | None = None

    @property
    def words(self) -> list[str]:
        return [argument.text for argument in self.argv]


class LaunchPlan(NamedTuple):
    """What to start on this host.

    ``environment`` holds for every process, on top of the one we were started with; ``unset`` are variables removed
    from it. ``local_ranks`` is how many ranks this host will have, ``world_size`` how many there are in all;
    ``first_rank`` is the global rank of the first one here. ``user_cwd`` and ``user_pythonpath`` are what the rank
    stub restores for the user's program. ``tolerates_lost_peers`` is true for ``script``, where hosts may not need
    each other. ``notes`` are sentences for ``muster plan`` and the log.
    """

    launcher: str
    host: str
    processes: tuple[ProcessPlan, ...]
    environment: tuple[EnvSetting, ...]
    local_ranks: int
    world_size: int
    first_rank: int
    user_cwd: str
    user_pythonpath: str = ""
    unset: tuple[str, ...] = ()
    tolerates_lost_peers: bool = False
    notes: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """As a JSON object: named tuples become arrays in field order."""
        return self._asdict()

    @classmethod
    def from_wire(cls, value: Any) -> LaunchPlan:
        """Builds it from decoded JSON; ``ValueError`` where that isn't a plan."""
        try:
            plan = cls(**value)
            processes = tuple(_process(*row) for row in plan.processes)
            environment = tuple(EnvSetting(*row) for row in plan.environment)
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a launch plan: {error}") from None
        return plan._replace(
            processes=processes, environment=environment, unset=tuple(plan.unset), notes=tuple(plan.notes)
        )


def _process(*row: Any) -> ProcessPlan:
    process = ProcessPlan(*row)
    return process._replace(
        argv=tuple(Argument(*word) for word in process.argv),
        environment=tuple(EnvSetting(*setting) for setting in process.environment),
    )
