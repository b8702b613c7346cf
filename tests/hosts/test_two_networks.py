"""Hosts with two networks: the job uses the one whose addresses the platform lists. Needs root and ``ip``."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Iterator

import pytest

from .conftest import survivors, together

FRONT, BACK = "10.81.0", "10.82.0"
FILES = Path("/etc/netns")
SHOW = """
import os, socket
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
probe.connect((os.environ["MASTER_ADDR"], 9))
print("RANK", os.environ["RANK"], os.environ["MASTER_ADDR"], probe.getsockname()[0], flush=True)
"""


@pytest.fixture
def spaces() -> Iterator[list[str]]:
    """Two hosts with an interface each in a front and in a back network; their names lead to the front one."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and ip")
    names = [f"muster-two-{os.getpid()}-{number}" for number in range(2)]
    table = "127.0.0.1 localhost\n" + "".join(f"{FRONT}.{at + 1} fa-{at}\n" for at in range(2))
    try:
        for name in names:
            ip("netns", "add", name)
            (FILES / name).mkdir(parents=True)
            (FILES / name / "hosts").write_text(table)
        for device in ("eth0", "eth1"):
            ip("link", "add", device, "netns", names[0], "type", "veth", "peer", "name", device, "netns", names[1])
        for at, name in enumerate(names):
            ip("-n", name, "address", "add", f"{FRONT}.{at + 1}/24", "dev", "eth0")
            ip("-n", name, "address", "add", f"{BACK}.{at + 1}/24", "dev", "eth1")
            for device in ("lo", "eth0", "eth1"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)
            shutil.rmtree(FILES / name, ignore_errors=True)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def tasks(platform: str) -> list[dict[str, str]]:
    """The variables of both hosts, with addresses of the back network."""
    addresses = [f"{BACK}.{at + 1}" for at in range(2)]
    if platform == "skypilot":
        listed = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "\n".join(addresses)}
        return [{**listed, "SKYPILOT_NODE_RANK": str(rank)} for rank in range(2)]
    # a pod on its host's network: it has the node's name, and its leader's address is the node's
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "LWS_GROUP_SIZE": "2", "LWS_LEADER_ADDRESS": addresses[0]}
    return [{**pod, "LWS_WORKER_INDEX": str(rank), "HOSTNAME": f"fa-{rank}"} for rank in range(2)]


@pytest.mark.parametrize("platform", ["skypilot", "lws"])
def test_the_network_is_the_one_that_the_platform_names(
    platform: str, spaces: list[str], python: str, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SHOW)
    token = f"muster-test-{uuid.uuid4().hex}"
    started = []
    for at, (space, task) in enumerate(zip(spaces, tasks(platform), strict=True)):
        named = f'echo fa-{at} > /proc/sys/kernel/hostname && exec "$@"'
        words = ["ip", "netns", "exec", space, "unshare", "--uts", "sh", "-c", named, "sh", python, "-m", "musterpoint"]
        own = {**environ, **task, "MUSTER_TEST_TOKEN": token}
        started.append(
            subprocess.Popen(
                [*words, "launch", "--launcher", "ranks", "--slots", "1", "train.py"],
                env={**own, "SAGEMAKER_BASE_DIR": str(tmp_path / f"none-{at}")},
                cwd=tmp_path, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        )  # fmt: skip
    codes, texts = together(started)
    assert codes == [0, 0], texts
    for rank, text in enumerate(texts):
        assert f"RANK {rank} {BACK}.1 {BACK}.{rank + 1}" in text, text
    assert survivors(token) == []
