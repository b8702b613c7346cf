"""A platform's own mpirun over the hosts of a local job: on the first host, with a daemon on each of the others.

Open MPI starts its daemons through an agent (ssh elsewhere). Here the agent writes the daemon's command line into a
named pipe of the other host, which waits for it there.
"""

from __future__ import annotations

import os
from typing import Sequence

from musterpoint.base.errors import UsageError
from musterpoint.core.job.fields import is_loopback
from musterpoint.local.platforms.platform import HostProcess, PlayedHost

ROOT = "AZUREML_CR_EXECUTION_WORKING_DIR_PATH"
"""The variable with the directory above the working directory, which is called ``wd``, on every host."""
_AGENT = """#!/bin/sh
# ADDRESS COMMAND...: what mpirun calls to start its daemon on another host, which would leave it with --daemonize
folder={folder} address=$1
shift
printf '%s\\n' "$*" | sed 's/ --daemonize / /' > "$folder/$address"
"""
_OWN_OUTPUT = 'for fd in 1 2; do [ ! -w /proc/$PPID/fd/$fd ] || eval "exec $fd>/proc/$PPID/fd/$fd"; done'
"""mpirun's daemon, which starts ranks, has the output of its host. mpirun itself would tear lines of two hosts, and all
would be the first host's.
"""
_DAEMON = 'IFS= read -r command < "$0"; eval "exec $command"'


def process(host: PlayedHost, command: Sequence[str], each: int, cwd: str) -> HostProcess:
    """What ``host`` runs for an mpirun that starts ``command`` ``each`` times on every host, in ``cwd``.

    Raises:
        UsageError: several hosts have only loopback addresses, all of which mpirun takes for one host.
    """
    addresses = [host.addresses[name] for name in host.job.hosts]
    if is_loopback(addresses[0]):
        if len(addresses) > 1:
            raise UsageError(
                "--backend process: mpirun takes all hosts of this machine's loopback for one, and an MPI job of "
                f"{len(addresses)} hosts would wait for ever: use --backend netns, or --hosts 1"
            )
        addresses = ["localhost"]  # of the loopback's other addresses mpirun doesn't know that they are its own
    folder = os.path.join(host.layout.hosts, "mpirun")
    if host.rank:
        return HostProcess(("sh", "-c", _DAEMON, os.path.join(folder, addresses[host.rank])), {}, cwd)
    os.makedirs(folder, exist_ok=True)
    for address in addresses[1:]:
        os.mkfifo(os.path.join(folder, address))
    agent = os.path.join(folder, "agent")
    with open(agent, "w", encoding="utf-8") as file:
        file.write(_AGENT.format(folder=folder))
    os.chmod(agent, 0o755)
    # mpirun enters its own working directory on every host, and here each host has another one
    here = ("sh", "-c", f'{_OWN_OUTPUT}; cd "${ROOT}/wd" && exec "$@"', "sh")
    return HostProcess(
        (
            "mpirun",
            "--allow-run-as-root",
            "--oversubscribe",
            "-n",
            str(each * len(addresses)),
            "--host",
            ",".join(f"{address}:{each}" for address in addresses),
            "--map-by",
            "slot",
            "--bind-to",
            "none",
            "--mca",
            "plm_rsh_agent",
            agent,
            "--mca",
            "plm_rsh_no_tree_spawn",
            "1",
            "--mca",
            "btl_vader_single_copy_mechanism",
            "none",
            # Open MPI calls its directory ompi.HOST.UID/pid.N: of jobs side by side, whose mpirun is the first process
            # of a host with the same name, all would have one below /tmp, and whoever ends first removes it.
            "--mca",
            "orte_tmpdir_base",
            "/dev/shm",
            *here,
            *command,
        ),
        {},
        cwd,
    )


def variables(rank: int, local: int, size: int, each: int) -> dict[str, str]:
    """The variables by which Open MPI tells a process who it is."""
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(each),
        "OMPI_COMM_WORLD_NODE_RANK": str(local),
    }
