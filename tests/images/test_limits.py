"""Containers with little memory, a full disk, a read-only root, and no root."""

from __future__ import annotations

import os
from typing import Any

from .containers import BY_RANKS, RANKS

SMALL = {"mem_limit": "160m", "memswap_limit": "160m"}

EATS = """
import os, subprocess, sys

def eat():
    eaten = [bytearray(os.urandom(1) * (8 << 20)) for _ in range(1000)]

if sys.argv[1:] == ["--child", "True"]:
    subprocess.run([sys.executable, __file__], check=True)
elif os.environ["RANK"] == "1" or os.environ["WORLD_SIZE"] == "1":
    print("rank", os.environ["RANK"], "eats", flush=True)
    eat()
open("/opt/ml/checkpoints/go").readline()
"""


def test_a_rank_out_of_memory(job: Any) -> None:
    """137 everywhere, and the kernel's OOM killer in the reason."""
    hosts = job("base", EATS, distribution=RANKS, environment=BY_RANKS, **SMALL).start()
    assert hosts.ends() == [137, 137]
    for host in hosts.hosts.values():
        first, *_ = host.reason.splitlines()
        assert first.startswith("rank 1 (local rank 0) on algo-2, killed by the kernel"), host.reason
        assert "OOM" in first
        assert (host.outcome["class"], host.outcome["signal"], host.outcome["host"]) == ("oom", 9, "algo-2")


def test_a_child_of_a_rank_out_of_memory_and_no_room_for_a_process(job: Any, image: Any) -> None:
    """What is the user's own error stays that, with the reason behind it."""
    hosts = job("base", EATS, hosts=("algo-1",), hyperparameters={"child": True}, distribution=RANKS,
                environment=BY_RANKS, **SMALL)  # fmt: skip
    hosts.make(image("base"), EATS, hosts=("algo-2",), pids_limit=1).start()
    assert hosts.ends() == [137, 72]
    child, full = hosts.hosts.values()
    assert child.reason.startswith("subprocess.CalledProcessError: Command "), child.reason
    assert "killed by the kernel's out-of-memory killer (OOM; exit code 137)" in child.reason
    assert child.outcome["class"] == "oom"
    assert full.reason.startswith("muster: rank 0 on algo-2: no process can be started: "), full.reason
    assert "--pids-limit" in full.reason


WHO = """
import os, sys

model = os.environ["SM_MODEL_DIR"]
with open(os.path.join(model, "model-" + os.environ["RANK"]), "w") as file:
    file.write(f"{os.getuid()} {os.getgid()}")
for place in ("/", "/usr/lib", "/root", os.path.dirname(sys.executable)):
    assert not os.access(place, os.W_OK), place
print("world of", os.environ["WORLD_SIZE"], flush=True)
open("/opt/ml/checkpoints/go").readline()
sys.exit(int(sys.argv[2]))
"""


def test_a_read_only_root_and_another_user(job: Any) -> None:
    """Nothing is writable but ``/opt/ml``, not even ``/tmp``."""
    settings = {"read_only": True, "user": 1000, "cap_drop": ["ALL"],
                "security_opt": ["no-new-privileges"], "distribution": RANKS, "environment": BY_RANKS}  # fmt: skip
    hosts = job("base", WHO, hyperparameters={"code": 7}, **settings).start()
    for host in hosts.hosts.values():
        host.saw("world of 2")
    hosts["algo-2"].go()
    assert hosts.ends() == [7, 7]
    for number, host in enumerate(hosts.hosts.values()):
        assert (host.ml / "model" / f"model-{number}").read_text() == "1000 1000"
        assert "exit code 7" in host.reason
        for folder, _, files in os.walk(host.ml):
            owners = {os.lstat(os.path.join(folder, file)).st_uid for file in (".", *files)}
            assert owners == {1000}, (folder, files)
