"""A host's keys and port for ssh: real ones, made by OpenSSH; and directories that hold no keys."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from musterpoint.base.errors import LauncherError
from musterpoint.base.probe import ask
from musterpoint.core.fabric.ssh import Ssh, find_ssh
from musterpoint.core.processes.ssh_door import SshDoor, unsafe_parent
from musterpoint.core.rollcall.roster import is_ssh_key


@pytest.fixture
def found(tmp_path: Path) -> Ssh:
    tmp_path.chmod(0o700)
    return find_ssh({**os.environ, "TMPDIR": str(tmp_path)}, "--ssh on")


def test_keys_and_a_port_until_it_is_closed(found: Ssh) -> None:
    door = SshDoor(found, os.environ, ask)
    folder = Path(found.folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "key").stat().st_mode & 0o777 == 0o600
    assert is_ssh_key(door.key) and door.key in (folder / "key.pub").read_text()
    with socket.create_connection(("127.0.0.1", door.port)):
        pass  # it waits for an answer
    door.close()
    assert not folder.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", door.port))


def test_no_keys_where_others_may_replace_them(found: Ssh, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(LauncherError, match=f"others may replace what is in {tmp_path}"):
        SshDoor(found, os.environ, ask)
    assert list(tmp_path.iterdir()) == []
    tmp_path.chmod(0o1777)
    assert unsafe_parent(found.folder) == ""
    with pytest.raises(LauncherError, match=r"can't be made .*: set TMPDIR"):
        SshDoor(found._replace(folder=str(tmp_path / "not" / "there")), os.environ, ask)


def test_what_openssh_says_is_told(found: Ssh, tmp_path: Path) -> None:
    program = tmp_path / "keygen"
    program.write_text("#!/bin/sh\necho 'unknown key type ed25519'\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(LauncherError, match=f"ssh: {program} ended with 3 and said: unknown key type ed25519"):
        SshDoor(found._replace(keygen=str(program)), os.environ, ask)
    assert not Path(found.folder).exists()


HOLDS = """
import os, sys
from musterpoint.base.probe import ask
from musterpoint.core.fabric.ssh import find_ssh
from musterpoint.core.processes.ssh_door import SshDoor
ssh = find_ssh(os.environ, "--ssh on")
door = SshDoor(ssh, os.environ, ask)
print(ssh.folder, flush=True)
sys.stdin.read()
"""


def test_keys_of_a_killed_job_are_removed_by_the_next_and_those_of_a_living_one_stay(
    found: Ssh, tmp_path: Path, python: str, environ: dict[str, str]
) -> None:
    environ = {**environ, "TMPDIR": str(tmp_path)}
    jobs = [
        subprocess.Popen([python, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
        for _ in range(2)
    ]
    folders = []
    for job in jobs:
        assert job.stdout is not None
        folders.append(Path(job.stdout.readline().strip()))
    jobs[0].kill()
    jobs[0].wait()
    assert folders[0].exists()
    door = SshDoor(found, os.environ, ask)
    assert [folder.exists() for folder in folders] == [False, True]
    door.close()
    for job in jobs:
        with job:
            job.kill()
