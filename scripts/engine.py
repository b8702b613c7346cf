"""The Docker engine of this machine: what is lacking for it, and starting it where nothing else does."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from environments import CACHE, Missing, distribution, lock, run, say

START_SECONDS = 60
LOG = CACHE / "dockerd.log"


def answers() -> bool:
    """Whether the docker command is here and its engine answers, wherever that runs."""
    if not shutil.which("docker"):
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(["docker", "version"], capture_output=True, check=False, timeout=30)
        return done.returncode == 0
    return False


def composes(words: list[str]) -> bool:
    """Whether this command is a Docker Compose that works."""
    if not shutil.which(words[0]):
        return False
    return subprocess.run([*words, "version"], capture_output=True, check=False).returncode == 0


def lacking() -> list[str]:
    """The Debian packages to install for containers: nothing that would take the place of another Docker."""
    found = []
    search = os.environ["PATH"] + ":/usr/sbin:/sbin"
    if not answers() and not shutil.which("dockerd", path=search):
        found += ["docker.io", "iptables"]
    if not any(composes(words) for words in (["docker", "compose"], ["docker-compose"])):
        system = distribution()
        # Ubuntu's docker-compose from 24.04 on is 1.29 under a Python that it can't be loaded by.
        newer = system.get("ID") == "ubuntu" and float(system.get("VERSION_ID", "0")) >= 24
        found.append("docker-compose-v2" if newer else "docker-compose")
    return found


def start() -> None:
    """Starts the engine unless it answers. Raises Missing when it doesn't come up."""
    with lock(CACHE / "dockerd.lock"):
        if answers():
            return
        if os.geteuid() != 0:
            raise Missing(
                "the Docker engine doesn't answer: start it, add yourself to the group docker, or run this as root"
            )
        if Path("/run/systemd/system").is_dir():
            run("systemctl", "start", "docker")
        else:
            daemon()
        if not answers():
            raise Missing("the Docker engine was started and doesn't answer: `docker version` says why")


def daemon() -> None:
    """A dockerd that outlives this process; returns when it says that it is ready, the way systemd is told."""
    program = shutil.which("dockerd", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if not program:
        raise Missing("there is no dockerd here: `scripts/setup docker` installs Debian's, or install Docker's own")
    say("starting dockerd")
    with tempfile.TemporaryDirectory(prefix="muster-dockerd-") as folder:
        path = os.path.join(folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as words:
            words.bind(path)
            with LOG.open("wb") as log:
                child = subprocess.Popen(
                    [program],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env={**os.environ, "NOTIFY_SOCKET": path},
                )
            end = os.pidfd_open(child.pid)
            try:
                ready = select.select([words.fileno(), end], [], [], START_SECONDS)[0]
            finally:
                os.close(end)
    if end in ready or not ready:
        child.terminate()
        tail = "\n".join(LOG.read_text(errors="replace").splitlines()[-5:])
        ended = f"ended with code {child.wait()}" if end in ready else f"was not ready in {START_SECONDS} s"
        raise Missing(f"dockerd {ended}; the end of {LOG}:\n{tail}")
    # It outlives this process on purpose.
    child.returncode = 0
