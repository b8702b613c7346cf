"""Horovod without mpirun: the variables of its Gloo controller under ``ranks``, and its rendezvous server.

Names, meanings and the numbering of uneven hosts are as in Horovod 0.28: ``common/gloo/gloo_context.cc`` (what is
read), ``runner/gloo_run.py`` (what ``horovodrun --gloo`` sets), ``runner/common/util/hosts.py`` (who has which place).
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import Argument, ProcessPlan, program_of_ours

AUTOTUNE_NOTE = (
    "HOROVOD_AUTOTUNE is on: Horovod tries out settings while it trains, and the first samples are slower; measure "
    "with it, then set what it found (HOROVOD_AUTOTUNE_LOG) for production"
)
IPV6_NOTE = (
    "this program's Python has Horovod, whose Gloo rendezvous knows IPv4 only, and this job's hosts have IPv6 "
    "addresses: no HOROVOD_* variables are set"
)


class Gloo(NamedTuple):
    """What Horovod without MPI adds to one host's plan.

    environment: variables of every rank.
    identities: variables of each rank, slot by slot.
    services: the rendezvous server, on the leader.
    notes: sentences for ``muster plan`` and the log.
    """

    environment: tuple[EnvSetting, ...] = ()
    identities: tuple[tuple[EnvSetting, ...], ...] = ()
    services: tuple[ProcessPlan, ...] = ()
    notes: tuple[str, ...] = ()


def notes(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Notes about the ``HOROVOD_*`` variables of ``environ``, for the plan of any launcher."""
    return (AUTOTUNE_NOTE,) if _is_on(environ.get("HOROVOD_AUTOTUNE", "")) else ()


def stall_warnings(inputs: LaunchInputs) -> tuple[EnvSetting, ...]:
    """Horovod warns of a collective that waits every 60 s, which is output: a hang would never be silent."""
    seconds, name = inputs.settings.stall_timeout, "HOROVOD_STALL_CHECK_TIME_SECONDS"
    if seconds is None or any(each.startswith("HOROVOD_STALL_") for each in inputs.environ):
        return ()
    return (EnvSetting(name, str(60 + 2 * int(seconds)), "after --stall-timeout: its warnings are output"),)


def _is_on(text: str) -> bool:
    """Whether C's ``strtol`` finds a number above 0, which is how Horovod reads its switches."""
    digits = text.strip().removeprefix("+")
    return digits[: len(digits) - len(digits.lstrip("0123456789"))].strip("0") != ""


def plan_gloo(inputs: LaunchInputs) -> Gloo:
    """What Horovod adds to the plan: nothing where the program's Python has no Horovod, or there is one rank.

    Only notes where the user chose another controller, or the leader has an IPv6 address.
    """
    roster = inputs.roster
    if "horovod" not in inputs.modules or roster.world_size == 1:
        return Gloo()
    about_options = notes(inputs.environ)
    if inputs.environ.get("HOROVOD_CONTROLLER", "gloo").lower() != "gloo":
        return Gloo(notes=about_options)
    if ":" in inputs.master_address:
        return Gloo(notes=(*about_options, IPV6_NOTE))
    serves = roster.node_rank == 0 and "HOROVOD_GLOO_RENDEZVOUS_ADDR" not in inputs.environ
    return Gloo(
        environment=_environment(inputs),
        identities=tuple(_identity(inputs, local_rank) for local_rank in range(roster.seat.slots)),
        services=(_server(inputs),) if serves else (),
        notes=about_options,
    )


def _environment(inputs: LaunchInputs) -> tuple[EnvSetting, ...]:
    interface = _interface(inputs)
    return (
        EnvSetting("HOROVOD_CONTROLLER", "gloo", "Horovod's ranks meet without MPI"),
        EnvSetting("HOROVOD_CPU_OPERATIONS", "gloo", "ranks reduce what is in host memory by Gloo, too"),
        EnvSetting(
            "HOROVOD_GLOO_RENDEZVOUS_ADDR", inputs.master_address, "the leader, which runs the rendezvous server"
        ),
        EnvSetting("HOROVOD_GLOO_RENDEZVOUS_PORT", str(inputs.port("horovod")), "free on the leader"),
        *([EnvSetting("HOROVOD_GLOO_IFACE", interface, "the interface Gloo uses")] if interface else []),
    )


def _identity(inputs: LaunchInputs, local_rank: int) -> tuple[EnvSetting, ...]:
    roster = inputs.roster
    # hosts that have a slot of this number
    peers = [seat.name for seat in roster.group if seat.slots > local_rank]
    return (
        EnvSetting("HOROVOD_RANK", str(roster.first_rank + local_rank), "global rank, to Horovod"),
        EnvSetting("HOROVOD_SIZE", str(roster.world_size), "ranks in all"),
        EnvSetting("HOROVOD_LOCAL_RANK", str(local_rank), "slot on this host"),
        EnvSetting("HOROVOD_LOCAL_SIZE", str(roster.seat.slots), "slots of this host"),
        EnvSetting("HOROVOD_CROSS_RANK", str(peers.index(roster.me)), "this host's place among those with this slot"),
        EnvSetting("HOROVOD_CROSS_SIZE", str(len(peers)), "hosts that have this slot"),
        EnvSetting("HOROVOD_HOSTNAME", roster.me, "ranks of one name form a local group"),
    )


def _server(inputs: LaunchInputs) -> ProcessPlan:
    return ProcessPlan(
        "service",
        "Horovod's rendezvous server",
        (
            Argument(inputs.workspace.interpreter, "the program's Python, which has Horovod"),
            program_of_ours("horovod_rendezvous", "the key-value store that Horovod's ranks find each other in"),
            Argument(str(inputs.port("horovod")), "its port, free on this host"),
            Argument(inputs.master_address, "the one address it listens on"),
        ),
        cwd=inputs.workspace.cwd,
    )


def _interface(inputs: LaunchInputs) -> str:
    """The interface of torch's Gloo; on one host the loopback. Empty: Horovod resolves the host's name."""
    if inputs.hosts == 1:
        return "lo"
    return inputs.gloo_interface.partition(",")[0]
