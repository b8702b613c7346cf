"""The user's program in a plan: as a process of the supervisor's own, or behind the rank stub of a foreign launcher."""

from __future__ import annotations

from typing import Sequence

from musterpoint.fabric.setting import EnvSetting
from musterpoint.launch.inputs import LaunchInputs
from musterpoint.launch.plan import Argument, ProcessPlan

BOOT = (
    "from __future__ import annotations;import os;"
    '[exec(part,globals())for part in open(os.environ["MUSTER_STUB"]).read().split("\\n\\n\\n")]'
)
"""Starts the stub; the same on all hosts. Each host's supervisor says in MUSTER_STUB where its stub lies.

Compiled function by function it takes 0.5 MiB less, on every rank; the first words hold for all of them.
"""


def rank_process(
    inputs: LaunchInputs, rank: int, settings: tuple[EnvSetting, ...] = (), local_rank: int = 0
) -> ProcessPlan:
    """The program as ``rank``, started by the supervisor itself."""
    workspace = inputs.workspace
    return ProcessPlan(
        "rank", f"rank {rank}", program_arguments(workspace.argv), settings, workspace.cwd, rank, local_rank
    )


def service_process(inputs: LaunchInputs, name: str, settings: tuple[EnvSetting, ...] = ()) -> ProcessPlan:
    """The program as a service called ``name``."""
    workspace = inputs.workspace
    return ProcessPlan("service", name, program_arguments(workspace.argv), settings, workspace.cwd, users=True)


def program_arguments(argv: Sequence[str]) -> tuple[Argument, ...]:
    """The user's program and its arguments."""
    return tuple(Argument(word, "the program" if at == 0 else "") for at, word in enumerate(argv))


def through_stub(interpreter: str, argv: Sequence[str]) -> tuple[str, ...]:
    """The argv that starts ``argv`` through the rank stub, run by ``interpreter``."""
    return (interpreter, "-I", "-S", "-c", BOOT, "--", *argv)


def stub_arguments(interpreter: str, argv: Sequence[str], for_stub: tuple[Argument, ...] = ()) -> tuple[Argument, ...]:
    """:func:`through_stub`, each word with its reason; ``for_stub`` are words that the stub itself reads."""
    python, isolated, no_site, command, boot, end, *program = through_stub(interpreter, argv)
    return (
        Argument(python, "runs the rank stub, which starts the program and reports exactly how it ended"),
        Argument(isolated, "nothing of the user's is imported into the stub"),
        Argument(no_site, "starts in 10 ms"),
        Argument(command, "reads the stub from where this host's supervisor put it"),
        Argument(boot),
        *for_stub,
        Argument(end, "the program follows"),
        *program_arguments(program),
    )
