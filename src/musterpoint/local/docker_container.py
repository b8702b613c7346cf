"""The request to the Engine for a host that is a container: its mounts, limits and GPUs.

The body of ``POST /containers/create`` is that of the `Engine API`_ from 1.40 on.

.. _Engine API: https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerCreate
"""

from __future__ import annotations

import os
from typing import Any, Mapping, NamedTuple, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.local.docker_engine import OwnContainer
from musterpoint.local.job_request import LocalJob
from musterpoint.local.tree import BASE, CODE, CONTAINER_PATCHES, CONTAINER_RANKS, Layout, shard

ENTRY = ("train",)
"""The arguments that the platform gives the image's ENTRYPOINT; the command where the image has none."""

RUN = "musterpoint.local.run"
OWNER = "musterpoint.local.owner"
HOST = "musterpoint.local.host"
REAPER = "musterpoint.local.reaper"
"""Of a container that cleans up; its value is the id of the one that has started it."""


class DockerRun(NamedTuple):
    """What the containers of one run have in common.

    ``network``: the name of their network.
    ``run``: a unique id of the run; a label of everything it makes.
    ``owner``: the process that cleans up after the run; also a label.
    ``gpus``: how many GPUs this machine has.
    ``nvidia``: whether the daemon can give GPUs to containers.
    ``security``: the daemon's ``SecurityOptions``.
    ``places``: where directories lie on the daemon's machine, by their paths in the container that this process runs
    in; None: it runs in none, and paths are the same.
    """

    network: str
    run: str = ""
    owner: str = ""
    gpus: int = 0
    nvidia: bool = False
    security: tuple[str, ...] = ()
    places: Mapping[str, str] | None = None

    @property
    def labels(self) -> dict[str, str]:
        return {RUN: self.run, OWNER: self.owner}


class Mount(NamedTuple):
    """A file or directory of this machine (absolute), and its path in the container."""

    source: str
    target: str
    read_only: bool = True


def mounts(job: LocalJob, host: str, layout: Layout) -> list[Mount]:
    """All files of this machine that ``host`` sees. It can write to its own tree, its ranks' logs and a ``file://``
    output only.
    """
    assert job.container is not None
    found = [Mount(layout.tree(host), BASE, False), Mount(layout.ranks(host), CONTAINER_RANKS, False)]
    found += [*shared(job), *own(job, host)]
    if job.intermediate:
        found.append(Mount(job.intermediate, f"{BASE}/output/intermediate", False))
    found.append(Mount(layout.patches, CONTAINER_PATCHES))
    return found


def shared(job: LocalJob) -> list[Mount]:
    """The user's own files and directories, the same for every host.

    The source directory is mounted entry by entry: the entries are read-only, and the program can still write beside
    them, as on the platform.
    """
    assert job.container is not None
    code = {name: os.path.join(job.source_dir, name) for name in sorted(os.listdir(job.source_dir))}
    if job.container.requirements:
        code["requirements.txt"] = job.container.requirements
    found = [Mount(path, f"{CODE}/{name}") for name, path in code.items() if os.path.exists(path)]
    for channel, path in job.channels.items():
        if channel in job.sharded:
            continue
        target = f"{BASE}/input/data/{channel}"
        found.append(Mount(path, target if os.path.isdir(path) else f"{target}/{os.path.basename(path)}"))
    return found


def own(job: LocalJob, host: str) -> list[Mount]:
    """The files that ``host`` gets of channels that are shared out among the hosts."""
    return [
        Mount(os.path.join(job.channels[channel], name), f"{BASE}/input/data/{channel}/{name}")
        for channel in job.sharded
        for name in shard(job.channels[channel], job.hosts.index(host), len(job.hosts))
    ]


def prepare(job: LocalJob, host: str, layout: Layout) -> None:
    """Makes the mount points in the host's tree; if the daemon made them, root would own them."""
    for mount in mounts(job, host, layout):
        if mount.target.startswith(BASE + "/"):
            place = os.path.join(layout.tree(host), mount.target[len(BASE) + 1 :])
            if os.path.isdir(mount.source):
                os.makedirs(place, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                with open(place, "ab"):
                    pass


def user_of(user: str, passwd: str, docker_run: DockerRun) -> int | None:
    """The user of this machine that a container runs as; None: unknown.

    ``user``: as the image's configuration has it, a number or a name with perhaps a group behind. ``passwd``: the
    image's.
    """
    name = user.partition(":")[0] or "root"
    rows = [line.split(":") for line in passwd.splitlines()]
    found = {"root": "0", **{row[0]: row[2] for row in rows if len(row) > 2}}.get(name, name)
    number = int(found) if found.isdecimal() else None
    if any("name=rootless" in option for option in docker_run.security):
        return None if number else os.geteuid()
    return None if any("name=userns" in option for option in docker_run.security) else number


def create_body(
    job: LocalJob, host: str, layout: Layout, env: Mapping[str, str], docker_run: DockerRun
) -> dict[str, Any]:
    """The request body for ``host`` of ``job``; ``env`` goes on top of the image's environment."""
    asked = job.container
    assert asked is not None
    variables = dict(env)
    devices = device_requests(asked.gpus, job.hosts.index(host), len(job.hosts), docker_run)
    if not devices:
        variables.setdefault("NVIDIA_VISIBLE_DEVICES", "void")  # the platform's word, which CUDA images need
    config: dict[str, Any] = {
        "NetworkMode": docker_run.network,
        "Mounts": [mounted(mount, docker_run) for mount in mounts(job, host, layout)],
        "ShmSize": asked.shm_size,
        # the host's output is kept in our log; a second copy by the daemon would fill the disk
        "LogConfig": {"Type": "none", "Config": {}},
    }
    if asked.memory:
        config.update(Memory=asked.memory, MemorySwap=asked.memory)
    if asked.cpus:
        config["NanoCpus"] = round(asked.cpus * 1e9)
    if devices:
        config["DeviceRequests"] = devices
    if asked.isolated:
        # look-ups of hosts that aren't up yet go to a resolver that can't be reached, and would take 10 s each
        config["DnsOptions"] = ["timeout:1", "attempts:1"]
    if any("name=selinux" in option for option in docker_run.security):
        config["SecurityOpt"] = ["label=disable"]
    return {
        "Image": asked.image,
        **({"Entrypoint": list(asked.entry), "Cmd": []} if asked.entry else {"Cmd": list(ENTRY)}),
        "Hostname": host,
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "Labels": {**docker_run.labels, HOST: host},
        "Tty": False,
        "OpenStdin": False,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": config,
        "NetworkingConfig": {"EndpointsConfig": {docker_run.network: {"Aliases": [host]}}},
    }


def mounted(mount: Mount, docker_run: DockerRun) -> dict[str, Any]:
    """A mount in the request body. Unlike a ``Binds`` entry it is refused where the daemon doesn't see the path.

    Raises:
        UsageError: this process runs in a container, and the path is in none of its mounts.
    """
    source = mount.source
    if docker_run.places is not None:
        source = os.path.realpath(source)
        inside = [place for place in docker_run.places if source == place or source.startswith(place.rstrip("/") + "/")]
        if not inside:
            raise UsageError(
                f"--backend docker: {source} is in no directory that this container shares with the Docker daemon's "
                f"machine, so no other container can have it: mount one there (docker run -v DIR:{source})"
            )
        place = max(inside, key=len)
        source = docker_run.places[place] + source[len(place.rstrip("/")) :]
    return {"Type": "bind", "Source": source, "Target": mount.target, "ReadOnly": mount.read_only}


def device_requests(gpus: str, index: int, hosts: int, docker_run: DockerRun) -> list[dict[str, Any]]:
    """The GPUs of host number ``index`` of ``hosts``.

    With a number each host gets GPUs of its own. With ``auto`` too, if there are enough for every host; else each host
    gets all GPUs.
    """
    share = int(gpus) if gpus.isdecimal() else 0
    if gpus == "auto":
        if not docker_run.nvidia:
            return []
        share = docker_run.gpus // hosts if hosts > 1 else 0
    elif gpus == "none":
        return []
    which: dict[str, Any] = {"Count": -1}
    if share:
        which = {"DeviceIDs": [str(number) for number in range(index * share, (index + 1) * share)]}
    return [{"Driver": "", **which, "Capabilities": [["gpu"]], "Options": {}}]


def reaper_body(own: OwnContainer, command: Sequence[str]) -> dict[str, Any]:
    """A container beside ours with its image, directories and variables, that runs until its stdin ends and is gone."""
    return {
        "Image": own.image,
        "Entrypoint": list(command),
        "Cmd": [],
        "Env": list(own.env),
        "User": f"{os.geteuid()}:{os.getegid()}",
        "Labels": {REAPER: own.identity},
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "HostConfig": {
            "AutoRemove": True,
            "NetworkMode": "none",
            "VolumesFrom": [own.identity],
            "LogConfig": {"Type": "none", "Config": {}},
        },
    }


def repair_body(image: str, hosts: str, owner: str, docker_run: DockerRun) -> dict[str, Any]:
    """A container that gives every file below the directory ``hosts`` (absolute) to ``owner``, a ``UID:GID``.

    In a rootless daemon, root in a container is the caller. With remapped users, root in a container isn't root.
    """
    rootless = any("name=rootless" in option for option in docker_run.security)
    config: dict[str, Any] = {
        "NetworkMode": "none",
        "Mounts": [mounted(Mount(hosts, "/hosts", False), docker_run)],
        "LogConfig": {"Type": "none", "Config": {}},
    }
    if any("name=userns" in option for option in docker_run.security):
        config["UsernsMode"] = "host"
    if any("name=selinux" in option for option in docker_run.security):
        config["SecurityOpt"] = ["label=disable"]
    return {
        "Image": image,
        "Entrypoint": ["chown", "-Rh", "0:0" if rootless else owner, "/hosts"],
        "Cmd": [],
        "User": "0:0",
        "Labels": docker_run.labels,
        "HostConfig": config,
    }
