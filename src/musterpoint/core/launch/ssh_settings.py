"""ssh between a job's hosts, for programs that insist on it.

Every host of the group gets a server of its own, at a port of its own, with keys of this job alone; ranks get an
``ssh`` first on PATH that knows all hosts. The words are OpenSSH's, 8.4 to 10: ``sshd_config(5)``, ``ssh_config(5)``
and ``sshd(8)`` (AUTHORIZED_KEYS FILE FORMAT).
"""

from __future__ import annotations

import os
import shlex
from typing import Iterable, Sequence

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.fabric.ssh import Ssh
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import Argument, LaunchPlan, PlannedFile, SshServer
from musterpoint.core.rollcall.roster import Seat

HOSTFILE = "MUSTER_HOSTFILE"
"""The variable with the path of a file with all hosts and their slots, as mpirun and DeepSpeed read it."""
OPEN_NOTE = (
    "there is no secret, so each host's ssh server lets only the leader in, whose key came unproved; set MUSTER_SECRET "
    "(--secret) on all hosts, and all may reach each other"
)
SESSION = "{muster:ssh_session} {muster:ssh_environment}"
"""Stands for the program that begins a session, and the file that it reads."""
LATER = "(with the roll call)"
"""Stands for another host's key or port in a preview."""
RETRIES = 3
"""How often a connection is tried, a second apart. Hosts listen before the roll call."""
ALIVE_SECONDS = 15
"""How often an idle connection is asked for a sign of life, so that nothing on the way forgets it."""


def with_ssh(inputs: LaunchInputs, plan: LaunchPlan) -> LaunchPlan:
    """``plan`` with this host's ssh server, and what ranks need to call those of the others."""
    roster, settings = inputs.roster, inputs.settings
    if inputs.hosts == 1 or inputs.ssh is None:
        return plan
    folder = inputs.ssh.folder
    path = os.pathsep.join(filter(None, (os.path.join(folder, "bin"), inputs.environ.get("PATH", os.defpath))))
    environment = (
        EnvSetting("PATH", path, "an ssh that knows this job's hosts comes first"),
        EnvSetting(HOSTFILE, os.path.join(folder, "hostfile"), "all hosts and their slots, for mpirun and the like"),
        EnvSetting("PDSH_RCMD_TYPE", "ssh", "pdsh would take rsh, if that is how it was built"),
    )
    given = {setting.name for setting in plan.environment}
    added = tuple(setting for setting in environment if setting.name not in given and _is_new(inputs, setting.name))
    notes = () if settings.secret or roster.node_rank else (OPEN_NOTE,)
    return plan._replace(
        environment=(*plan.environment, *added), ssh=_server(inputs, inputs.ssh), notes=(*plan.notes, *notes)
    )


def _is_new(inputs: LaunchInputs, name: str) -> bool:
    return name == "PATH" or name not in inputs.environ


def _server(inputs: LaunchInputs, ssh: Ssh) -> SshServer:
    roster = inputs.roster
    secret = bool(inputs.settings.secret)
    callers = roster.group if secret else roster.group[:1]
    why = "with the job's secret, every host of the group" if secret else "without a secret, the leader alone"
    return SshServer(
        (
            Argument(ssh.sshd, "once for each caller, as the user that we are"),
            Argument("-i", "the connection is its stdin: this host's supervisor has accepted it"),
            Argument("-e", "its errors come to the log"),
            Argument("-f"),
            Argument(os.path.join(ssh.folder, "sshd_config"), f"who may come in: {why}"),
        ),
        ssh.folder,
        tuple((seat.name, seat.address) for seat in callers),
        tuple(_files(inputs, ssh, callers)),
        ssh.sftp_server,
    )


def _files(inputs: LaunchInputs, ssh: Ssh, callers: Sequence[Seat]) -> Iterable[PlannedFile]:
    group, folder = inputs.roster.group, ssh.folder
    yield PlannedFile("sshd_config", "".join(f"{line}\n" for line in server_lines(ssh)))
    yield PlannedFile("session", f"#!/bin/sh\nexec {SESSION}\n", True)
    yield PlannedFile("authorized_keys", "".join(f"{_authorized(seat)}\n" for seat in callers))
    yield PlannedFile("known_hosts", "".join(f"{seat.name} {seat.ssh_key or LATER}\n" for seat in group))
    yield PlannedFile("ssh_config", "".join(f"{line}\n" for line in client_lines(inputs, ssh)))
    yield PlannedFile("hostfile", "".join(f"{seat.name} slots={max(seat.capacity, 1)}\n" for seat in group))
    for program in (ssh.client, *ssh.copiers):
        text = f'#!/bin/sh\nexec {shlex.join((program, "-F", os.path.join(folder, "ssh_config")))} "$@"\n'
        yield PlannedFile(os.path.join("bin", os.path.basename(program)), text, True)


def _authorized(seat: Seat) -> str:
    return f'restrict,pty,from="{seat.address}" {seat.ssh_key or LATER}'


def server_lines(ssh: Ssh) -> list[str]:
    """The lines of ``sshd_config``: nobody but holders of the job's keys, nothing but commands.

    StrictModes would refuse every key below a directory with the sticky bit, such as /tmp; what it guards against is
    asked by :func:`musterpoint.core.processes.ssh_door.unsafe_parent`.
    """
    folder = ssh.folder
    return [
        f"HostKey {_word(os.path.join(folder, 'key'))}",
        f"AuthorizedKeysFile {_word(os.path.join(folder, 'authorized_keys'))}",
        "StrictModes no",
        f"AllowUsers {ssh.user}",
        "AuthenticationMethods publickey",
        "PubkeyAuthentication yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "UsePAM no",
        "UseDNS no",
        "DisableForwarding yes",
        "PermitTunnel no",
        "PermitUserEnvironment no",
        "PermitUserRC no",
        f"ForceCommand {_word(os.path.join(folder, 'session'))}",
        "Subsystem sftp internal-sftp",
        "MaxSessions 1024",
        "PrintMotd no",
        "PrintLastLog no",
        "PidFile none",
        "LogLevel ERROR",
    ]


def client_lines(inputs: LaunchInputs, ssh: Ssh) -> list[str]:
    """The lines of ``ssh_config``: every host by name and by address, whose key is known; others as without us."""
    group, folder = inputs.roster.group, ssh.folder
    lines: list[str] = []
    names: dict[str, None] = {}
    for seat in group:
        port = str(seat.ports[-1]) if seat.ports else LATER
        own = dict.fromkeys((seat.name, seat.name.lower(), seat.address))
        names.update(own)
        lines += [
            f"Host {' '.join(own)}",
            f"  HostName {seat.address}",
            f"  Port {port}",
            f"  HostKeyAlias {seat.name}",
        ]
    return [
        *lines,
        f"Host {' '.join(names)}",
        f"  User {ssh.user}",
        f"  IdentityFile {_word(os.path.join(folder, 'key'))}",
        "  IdentitiesOnly yes",
        "  IdentityAgent none",
        f"  UserKnownHostsFile {_word(os.path.join(folder, 'known_hosts'))}",
        "  GlobalKnownHostsFile /dev/null",
        "  StrictHostKeyChecking yes",
        "  CheckHostIP no",
        "  UpdateHostKeys no",
        "  PreferredAuthentications publickey",
        "  BatchMode yes",
        "  ProxyCommand none",
        f"  BindAddress {inputs.own_address}",
        f"  ConnectionAttempts {RETRIES}",
        f"  ServerAliveInterval {ALIVE_SECONDS}",
        f"  ServerAliveCountMax {max(3, round(inputs.settings.silence_timeout / ALIVE_SECONDS))}",
        "  LogLevel ERROR",
        f"Match originalhost *,{','.join(f'!{name}' for name in names)}",
        "  Include ~/.ssh/config",
        "  Include /etc/ssh/ssh_config",
    ]


def _word(path: str) -> str:
    """``path`` in a configuration file of OpenSSH's, where % begins a token."""
    escaped = path.replace("%", "%%")
    return f'"{escaped}"' if " " in path else escaped
