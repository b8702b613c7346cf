"""``ssh``: the program once, on the leader, with ssh to all hosts: it starts what it needs there itself.

:mod:`musterpoint.core.launch.ssh_settings` has what goes over ssh, which other launchers have with ``--ssh on``.
"""

from __future__ import annotations

import os
from typing import Sequence

from musterpoint.core.launch.identity import IDENTITY
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import Argument, LaunchPlan, rank_process
from musterpoint.core.launch.launcher import MISLEADING, Hidden, Launcher


def plan_ssh(inputs: LaunchInputs) -> LaunchPlan:
    """This host's plan: the program on the leader; elsewhere only the ssh server, which a later step adds."""
    workspace, roster = inputs.workspace, inputs.roster
    environment = tuple(setting for setting in inputs.program_environment() if setting.name not in IDENTITY)
    if roster.node_rank:
        return inputs.plan((), environment)
    program = rank_process(workspace, 0)
    return inputs.plan((program._replace(argv=_with_hostfile(inputs, program.argv)),), environment)


def _with_hostfile(inputs: LaunchInputs, argv: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """``argv``, with what the ``deepspeed`` command has to be told, if it is that; options of the user's come later
    and win.
    """
    at = deepspeed_at([argument.text for argument in argv])
    if not at or inputs.hosts == 1 or inputs.ssh is None:
        return argv
    hostfile = os.path.join(inputs.ssh.folder, "hostfile")
    told = (
        Argument(f"--hostfile={hostfile}", "all hosts and their slots, from the roster"),
        Argument(f"--master_addr={inputs.master_address}", "the leader; it would take what `hostname -I` says first"),
        Argument(f"--master_port={inputs.roster.master_port}", "free on the leader"),
    )
    return (*argv[:at], *told, *argv[at:])


def deepspeed_at(words: Sequence[str]) -> int:
    """The place of the options of DeepSpeed's runner in a program's words; 0: it is another program."""
    for at, word in enumerate(words[:3]):
        if os.path.basename(word) in ("deepspeed", "ds") or (word == _RUNNER and words[at - 1] == "-m"):
            return at + 1
    return 0


_RUNNER = "deepspeed.launcher.runner"


LAUNCHER = Launcher(
    name="ssh",
    summary="the program once, on the leader, with ssh between all hosts",
    starts="leader",
    leads=True,
    plan=plan_ssh,
    ssh=True,
    reads=("slots",),
    hides=(Hidden(IDENTITY, MISLEADING),),
)
