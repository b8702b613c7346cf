"""The ``/opt/ml`` tree of each host, as the platform would have made it before it starts the container.

The layout and the files are SageMaker's (`local mode`_ writes the same three configuration files); values of
hyperparameters are JSON text, as SDK v2 encodes them.

.. _local mode: https://sagemaker.readthedocs.io/en/stable/overview.html#local-mode
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from musterpoint.local.job_request import LocalJob

BASE = "/opt/ml"
"""The path of a host's tree on hosts with a file system of their own."""
CODE = BASE + "/code"
CONTAINER_RANKS = "/var/log/musterpoint"
"""Where a container has :meth:`Layout.ranks`."""
CONTAINER_PATCHES = "/usr/local/share/musterpoint/patches"
"""Where a container has :attr:`Layout.patches`."""

DIRECTORIES = ("input/config", "input/data", "model", "output/data", "output/metrics/sagemaker", "checkpoints")


class Layout(NamedTuple):
    """The paths of one local job, all below ``output`` (absolute)."""

    output: str

    @property
    def hosts(self) -> str:
        return os.path.join(self.output, "hosts")

    def host(self, name: str) -> str:
        return os.path.join(self.hosts, name)

    def tree(self, name: str) -> str:
        """The host's ``/opt/ml``."""
        return os.path.join(self.hosts, name, "opt", "ml")

    def log(self, name: str) -> str:
        """Everything the host wrote, byte for byte."""
        return os.path.join(self.hosts, name, "log")

    def ranks(self, name: str) -> str:
        """The directory of one file per rank."""
        return os.path.join(self.hosts, name, "ranks")

    @property
    def patches(self) -> str:
        """A copy of our patches for containers: the daemon may see no other directory of ours."""
        return os.path.join(self.output, "patches")

    def artifact(self, name: str) -> str:
        return os.path.join(self.output, name)


def config(job: LocalJob, host: str) -> dict[str, dict[str, Any]]:
    """The files of ``input/config`` on ``host``, by name."""
    hyperparameters = {name: json.dumps(value) for name, value in job.hyperparameters.items()}
    hyperparameters.update(job.distribution)
    platform = {
        "sagemaker_program": job.program,
        "sagemaker_submit_directory": CODE if job.container else job.source_dir,
        "sagemaker_container_log_level": 20,
        "sagemaker_job_name": job.name,
    }
    if job.region:
        platform["sagemaker_region"] = job.region
    hyperparameters.update({name: json.dumps(value) for name, value in platform.items()})
    isolated = job.container is not None and job.container.isolated
    return {
        **({"trainingjobconfig.json": {"EnableNetworkIsolation": True}} if isolated else {}),
        "hyperparameters.json": hyperparameters,
        "resourceconfig.json": {
            "current_host": host,
            "hosts": list(job.hosts),
            "network_interface_name": job.interface,
            "current_instance_type": "local",
            **_groups(job, host),
        },
        "inputdataconfig.json": {
            channel: {
                "TrainingInputMode": "File",
                "RecordWrapperType": "None",
                "S3DistributionType": "ShardedByS3Key" if channel in job.sharded else "FullyReplicated",
            }
            for channel in job.channels
        },
    }


def _groups(job: LocalJob, host: str) -> dict[str, Any]:
    """The instance groups of a heterogeneous cluster."""
    groups = [
        {"instance_group_name": name, "instance_type": "local", "hosts": list(hosts)}
        for name, hosts in job.hosts_of_groups.items()
    ]
    own = next((name for name, hosts in job.hosts_of_groups.items() if host in hosts), "")
    return {"current_group_name": own, "instance_groups": groups} if groups else {}


def write(job: LocalJob, host: str, layout: Layout) -> None:
    """Makes the whole tree of ``host``.

    Channels and ``code`` are links to the user's own directories, which are never copied. Containers mount them, as the
    SDK's local mode does.
    """
    tree = layout.tree(host)
    for directory in DIRECTORIES:
        os.makedirs(os.path.join(tree, directory), exist_ok=True)
    if job.container is not None:  # its user may be another one than ours, who reads the files by the mount
        os.chmod(os.path.dirname(tree), 0o700)
    os.makedirs(layout.ranks(host), exist_ok=True)
    for name, content in config(job, host).items():
        path = os.path.join(tree, "input", "config", name)
        write_text(path, json.dumps(content, indent=1) + "\n", private=job.container is None)
    if job.intermediate:
        os.makedirs(job.intermediate, exist_ok=True)
    for channel in job.sharded:
        os.makedirs(os.path.join(tree, "input", "data", channel))
    if job.container:
        return
    if job.intermediate:
        os.symlink(job.intermediate, os.path.join(tree, "output", "intermediate"))
    os.symlink(job.source_dir, os.path.join(tree, "code"))
    for channel, path in job.channels.items():
        link = os.path.join(tree, "input", "data", channel)
        if channel in job.sharded:
            for name in shard(path, job.hosts.index(host), len(job.hosts)):
                os.makedirs(os.path.dirname(os.path.join(link, name)), exist_ok=True)
                os.symlink(os.path.join(path, name), os.path.join(link, name))
            continue
        if os.path.isfile(path):
            os.makedirs(link, exist_ok=True)
            link = os.path.join(link, os.path.basename(path))
        os.symlink(path, link)


def write_text(path: str, text: str, private: bool = False) -> None:
    """Writes ``text`` so that a reader sees the old file or the whole new one. ``private``: only this user reads it."""
    part = path + ".part"
    mode = 0o600 if private else 0o666
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with open(os.open(part, flags, mode), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, path)


def shard(path: str, place: int, hosts: int) -> list[str]:
    """The files below the directory ``path`` that the host at ``place`` of ``hosts`` gets, relative to ``path``, where
    they are shared out among the hosts, as SageMaker does with ``ShardedByS3Key``.

    Each of n hosts gets about one in n of the objects (AWS, API reference of ``S3DataSource``); which ones AWS doesn't
    say. Here it is every n-th in the order of their names.
    """
    files = [
        os.path.relpath(os.path.join(folder, name), path) for folder, _folders, names in os.walk(path) for name in names
    ]
    return sorted(files)[place::hosts]
