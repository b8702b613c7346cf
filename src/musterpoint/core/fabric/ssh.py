"""Finds what a job with ssh between its hosts needs on this one: OpenSSH's programs, and the user who logs in."""

import os
from typing import Mapping

from musterpoint.base import executables
from musterpoint.base.errors import LauncherError
from musterpoint.base.posix import pwd
from musterpoint.base.records import NamedTuple

TEMPORARY = "muster-ssh-"
"""What the name of the directory with a job's keys begins with."""
SERVERS = ("/usr/sbin", "/usr/local/sbin", "/sbin")
"""Where sshd is beside PATH, which seldom has these."""
SFTP_SERVERS = ("/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh", "/usr/libexec", "/usr/lib/misc")
"""Where distributions have sftp-server, which scp asks for: Debian, Red Hat, Arch and SUSE, the BSDs, Gentoo."""
NO_SHELLS = frozenset({"nologin", "false"})


class Ssh(NamedTuple):
    """OpenSSH on this host.

    sshd, client, keygen: the programs, absolute.
    copiers: scp and sftp, as far as they are here.
    sftp_server: the program that serves them; empty: none.
    user: the name of the user that we run as, and everybody logs in as.
    folder: the directory for the job's keys and configuration; it is made when they are.
    """

    sshd: str
    client: str
    keygen: str
    copiers: tuple[str, ...]
    sftp_server: str
    user: str
    folder: str


ASSUMED = Ssh("/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen", (), "", "root", f"/tmp/{TEMPORARY}NEW")
"""What a plan is made with on a host without OpenSSH."""


def find_ssh(environ: Mapping[str, str], why: str) -> Ssh:
    """OpenSSH on this host. ``why`` says why it is needed, for the error.

    Raises:
        LauncherError: a program is missing, or nobody can log in as the user that we are.
    """
    search = os.pathsep.join((environ.get("PATH", os.defpath), *SERVERS))
    packages = {"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"}
    found = {name: executables.find_command(name, {"PATH": search}) for name in packages}
    lacking = [name for name, path in found.items() if not path]
    if lacking:
        wanted = " and ".join(dict.fromkeys(packages[name] for name in lacking))
        raise LauncherError(
            f"{why}: there is no {' and no '.join(lacking)} on PATH or in {SERVERS[0]}; install {wanted} on every host "
            "(Debian's and Ubuntu's names; Red Hat's end in -server and -clients)"
        )
    copiers = (executables.find_command(name, environ) for name in ("scp", "sftp"))
    servers = (os.path.join(folder, "sftp-server") for folder in SFTP_SERVERS)
    folder = os.path.join(environ.get("TMPDIR") or "/tmp", TEMPORARY + os.urandom(4).hex())
    sshd, client, keygen = map(os.path.abspath, found.values())
    return Ssh(
        sshd,
        client,
        keygen,
        tuple(filter(None, copiers)),
        next(filter(os.path.exists, servers), ""),
        _user(why),
        os.path.abspath(folder),
    )


def _user(why: str) -> str:
    try:
        entry = pwd.getpwuid(os.geteuid())
    except KeyError:
        raise LauncherError(
            f"{why}: this process runs as user {os.geteuid()}, who has no line in /etc/passwd, without which ssh "
            "refuses to run: add one to the image (or use nss_wrapper)"
        ) from None
    shell = entry.pw_shell or "/bin/sh"
    if os.path.basename(shell) in NO_SHELLS or not os.access(shell, os.X_OK):
        raise LauncherError(
            f"{why}: /etc/passwd gives {entry.pw_name} the shell {shell}, with which nobody can log in: give that user "
            "another one in the image (usermod --shell /bin/sh)"
        )
    return entry.pw_name
