"""Cleans up after a run on Docker: removes the run's containers and network, however ``muster local`` ends.

Run as ``python -m musterpoint.local.docker_cleanup JSON``, with a pipe from ``muster local`` as stdin. A byte and then
the pipe's end mean that the run is over; the end alone, that ``muster local`` died. It also gives the files that
containers left in the hosts' trees to the user who started the run. Where ``muster local`` itself runs in a container,
which takes its processes with it, this one is a container beside that.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Sequence

from musterpoint.base.console import Console
from musterpoint.local import docker_engine
from musterpoint.local.docker_container import OWNER, REAPER, RUN, DockerRun, reaper_body, repair_body
from musterpoint.local.docker_engine import Engine, EngineError, OwnContainer
from musterpoint.local.process_init import OUTLIVED

OF_CONTAINER = "container/"
"""How the label begins of an owner that is a container; its id follows."""
_AFTERMATH = 1.0
"""Seconds in which the daemon may still carry out the last request of a dead ``muster local``."""


def owner_of(pid: int) -> str:
    """A unique label of the process ``pid``: host, PID namespace, number, start time."""
    return "/".join((socket.gethostname(), _pid_namespace(), str(pid), _start_of(pid)))


def is_dead(owner: str) -> bool:
    """Whether the process with the label ``owner`` has ended; False where it can't be seen from here."""
    host, _, rest = owner.partition("/")
    namespace, _, rest = rest.partition("/")
    pid, _, start = rest.partition("/")
    if host != socket.gethostname() or namespace != _pid_namespace() or not pid.isdecimal():
        return False
    return _start_of(int(pid)) != start


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """The process's start time with the id of the boot; empty where there is no such process (or a zombie)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return "" if fields[0] == b"Z" else f"{boot}.{fields[19].decode()}"
    except OSError:
        if os.path.isdir("/proc/self"):
            return ""
    listing = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listing.stdout.strip()


def sweep(engine: Engine) -> list[str]:
    """Removes what earlier runs left because their cleanup didn't run (the machine lost power); returns the names."""
    found = [*engine.containers(OWNER), *engine.networks(OWNER)]
    runs = {each["Labels"][RUN]: each["Labels"][OWNER] for each in found if each["Labels"].get(RUN)}
    names: list[str] = []
    for run, owner in runs.items():
        if _has_ended(engine, owner):
            names += clean(engine, run)
    for each in engine.containers(REAPER):  # whoever made it was killed before it could start it
        if each["State"] == "created" and not engine.has_name(each["Labels"][REAPER]):
            engine.remove(each["Id"])
    return names


def _has_ended(engine: Engine, owner: str) -> bool:
    """Whether the owner, a process or a container, has ended."""
    if owner.startswith(OF_CONTAINER):
        return not engine.has_name(owner.removeprefix(OF_CONTAINER))
    return is_dead(owner)


class Reaper:
    """This program in a container beside our own: begun, until :meth:`communicate`."""

    def __init__(self, engine: Engine, own: OwnContainer, command: Sequence[str]) -> None:
        self._engine = engine.new_connection()
        self._container = self._engine.create(reaper_body(own, command))
        try:
            self._stdin = self._engine.stdin(self._container)
            self._engine.start(self._container)
        except EngineError:
            self._engine.remove(self._container)
            raise
        self.owner = OF_CONTAINER + self._container
        self.returncode = 0

    def communicate(self, data: bytes) -> None:
        """Says that the run is over, and waits until everything of it is gone."""
        try:
            self._stdin.end(data)
            self.returncode = self._engine.wait(self._container)
        except (EngineError, OSError) as error:
            self.returncode = 0 if isinstance(error, EngineError) and error.is_gone else 1
        finally:
            self._engine.close()


def clean(engine: Engine, run: str) -> list[str]:
    """Removes every container and network of ``run``; returns their names."""

    def remove(container: str) -> None:
        own = engine.new_connection()
        try:
            own.remove(container)
        except EngineError as error:
            if not error.is_gone:
                raise
        finally:
            own.close()

    label = f"{RUN}={run}"
    containers = engine.containers(label)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remove, [each["Id"] for each in containers]))
    networks = engine.networks(label)
    for network in networks:
        try:
            engine.remove_network(network["Id"])
        except EngineError as error:
            if not error.is_gone:
                raise
    return [each["Names"][0].lstrip("/") for each in containers] + [each["Name"] for each in networks]


def give_back(engine: Engine, image: str, hosts: str, docker_run: DockerRun) -> None:
    """Makes the caller the owner of all files below the directory ``hosts``.

    Raises:
        EngineError: it can't be done with this image.
    """
    if not _foreign(hosts):
        return
    container = engine.create(repair_body(image, hosts, f"{os.geteuid()}:{os.getegid()}", docker_run))
    try:
        engine.start(container)
        engine.wait(container)
    finally:
        engine.remove(container)


def _foreign(directory: str) -> str:
    """A file or directory below ``directory`` that another user owns; empty where there is none, and for root."""
    user = os.geteuid()
    if not user:
        return ""
    for parent, directories, files in os.walk(directory):
        for name in [*directories, *files]:
            path = os.path.join(parent, name)
            if os.lstat(path).st_uid != user:
                return path
    return ""


def main(argv: list[str]) -> int:
    words = json.loads(argv[1])
    for name in OUTLIVED:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    docker_engine.load()
    orderly = bool(sys.stdin.buffer.read())
    console = Console()
    remains = f"warning: what the job left in Docker (label {RUN}={words['run']}) can't be removed"
    trouble: list[Exception] = []

    def attempt(step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:
            trouble.append(error)

    try:
        engine = docker_engine.connect()
        own = engine.own_container()
    except Exception as error:
        console.say(f"{remains}: {error}")
        return 1
    owner = OF_CONTAINER + own.identity if own else owner_of(os.getpid())
    security, places = tuple(words["security"]), own.places if own else None
    docker_run = DockerRun("", words["run"], owner, security=security, places=places)
    attempt(lambda: clean(engine, docker_run.run))
    if not orderly:
        time.sleep(_AFTERMATH)
    attempt(lambda: give_back(engine, words["image"], words["hosts"], docker_run))
    trouble.clear()  # the second attempt decides, and files of other users are named below
    attempt(lambda: clean(engine, docker_run.run))
    if trouble:
        console.say(f"{remains}: {trouble[0]}")
        return 1
    if left := _foreign(words["hosts"]):
        console.say(f"warning: {left} isn't yours: sudo chown -R {os.geteuid()}:{os.getegid()} {words['hosts']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
