"""A host that is a container, as the Engine is asked for it: its mounts, limits and GPUs.

Pure. The body of ``POST /containers/create`` is that of the `Engine API`_ from 1.40 on.

.. _Engine API: https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerCreate
"""

from __future__ import annotations

import os
from typing import Any, Mapping, NamedTuple

from musterpoint.local.job import LocalJob
from musterpoint.local.tree import BASE, CODE, CONTAINER_PATCHES, CONTAINER_RANKS, Layout

ENTRY = ("train",)
"""What the platform gives to the image's ENTRYPOINT, or starts where there is none."""

RUN = "musterpoint.local.run"
OWNER = "musterpoint.local.owner"
HOST = "musterpoint.local.host"


class DockerRun(NamedTuple):
    """What the containers of one run have in common.

    ``network``: the name of their network.
    ``run``: what tells this run from every other one; a label of all that it makes.
    ``owner``: the process that cleans up after the run; a label, too.
    ``gpus``: how many this machine has.
    ``nvidia``: whether the daemon can give them to containers.
    ``security``: the daemon's ``SecurityOptions``.
    """

    network: str
    run: str = ""
    owner: str = ""
    gpus: int = 0
    nvidia: bool = False
    security: tuple[str, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        return {RUN: self.run, OWNER: self.owner}


class Mount(NamedTuple):
    """A file or directory of this machine (absolute) and where the container has it."""

    source: str
    target: str
    read_only: bool = True


def mounts(job: LocalJob, host: str, layout: Layout) -> list[Mount]:
    """Everything of this machine that ``host`` sees; only its own tree, its ranks' logs and a ``file://`` output can be
    written to.
    """
    assert job.container is not None
    found = [Mount(layout.tree(host), BASE, False), Mount(layout.ranks(host), CONTAINER_RANKS, False), *shared(job)]
    if job.intermediate:
        found.append(Mount(job.intermediate, f"{BASE}/output/intermediate", False))
    found.append(Mount(layout.patches, CONTAINER_PATCHES))
    return found


def shared(job: LocalJob) -> list[Mount]:
    """The user's own files and directories, the same for every host.

    The source directory is mounted entry by entry: none of them can be changed, and the program can still write beside
    them, as it can on the platform.
    """
    assert job.container is not None
    code = {name: os.path.join(job.source_dir, name) for name in sorted(os.listdir(job.source_dir))}
    if job.container.requirements:
        code["requirements.txt"] = job.container.requirements
    found = [Mount(path, f"{CODE}/{name}") for name, path in code.items() if os.path.exists(path)]
    for channel, path in job.channels.items():
        target = f"{BASE}/input/data/{channel}"
        found.append(Mount(path, target if os.path.isdir(path) else f"{target}/{os.path.basename(path)}"))
    return found


def prepare(job: LocalJob, host: str, layout: Layout) -> None:
    """Makes in the host's tree what is mounted over: made by the daemon, it would be root's."""
    for mount in mounts(job, host, layout):
        if mount.target.startswith(BASE + "/"):
            place = os.path.join(layout.tree(host), mount.target[len(BASE) + 1 :])
            if os.path.isdir(mount.source):
                os.makedirs(place, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                with open(place, "ab"):
                    pass


def create_body(
    job: LocalJob, host: str, layout: Layout, env: Mapping[str, str], docker_run: DockerRun
) -> dict[str, Any]:
    """The host ``host`` of ``job`` as the Engine takes it; its environment is ``env`` over the image's own."""
    asked = job.container
    assert asked is not None
    variables = dict(env)
    devices = device_requests(asked.gpus, job.hosts.index(host), len(job.hosts), docker_run)
    if not devices:
        variables.setdefault("NVIDIA_VISIBLE_DEVICES", "void")  # the platform's word, which CUDA images need
    config: dict[str, Any] = {
        "NetworkMode": docker_run.network,
        "Mounts": [mounted(mount) for mount in mounts(job, host, layout)],
        "ShmSize": asked.shm_size,
        # what the host says is kept in its log; the daemon's own copy would only fill a disk
        "LogConfig": {"Type": "none", "Config": {}},
    }
    if asked.memory:
        config.update(Memory=asked.memory, MemorySwap=asked.memory)
    if asked.cpus:
        config["NanoCpus"] = round(asked.cpus * 1e9)
    if devices:
        config["DeviceRequests"] = devices
    if asked.isolated:
        # the names of hosts that aren't up yet go to a resolver out of reach, and each look-up would take 10 s
        config["DnsOptions"] = ["timeout:1", "attempts:1"]
    if any("name=selinux" in option for option in docker_run.security):
        config["SecurityOpt"] = ["label=disable"]
    return {
        "Image": asked.image,
        "Cmd": list(ENTRY),
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


def mounted(mount: Mount) -> dict[str, Any]:
    """A mount as the Engine takes it; unlike a ``Binds`` entry it is refused where the daemon doesn't see the path."""
    return {"Type": "bind", "Source": mount.source, "Target": mount.target, "ReadOnly": mount.read_only}


def device_requests(gpus: str, index: int, hosts: int, docker_run: DockerRun) -> list[dict[str, Any]]:
    """The GPUs of host number ``index`` of ``hosts``.

    A number gives each host GPUs of its own. So does ``auto``, where there are enough for every host; else each has
    all of them.
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


def repair_body(image: str, hosts: str, owner: str, docker_run: DockerRun) -> dict[str, Any]:
    """A container that gives every file below the directory ``hosts`` (absolute) to ``owner``, a ``UID:GID``.

    The daemon's own words for users count: rootless, root of a container is the caller; with remapped users, root of a
    container isn't root.
    """
    rootless = any("name=rootless" in option for option in docker_run.security)
    config: dict[str, Any] = {
        "NetworkMode": "none",
        "Mounts": [mounted(Mount(hosts, "/hosts", False))],
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
