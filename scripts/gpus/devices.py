"""What is here: devices, slots, versions, and which rank uses which GPU."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from gpus.machine import Machine, NotHere, Wrong

VERSIONS = """
import json, torch
found = {"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": torch.cuda.device_count()}
if torch.cuda.is_available():
    properties = torch.cuda.get_device_properties(0)
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    found |= {"device": properties.name, "memory": properties.total_memory, "nccl": nccl}
print(json.dumps(found))
"""
NVML = (
    "index", "name", "driver_version", "memory.total", "memory.used", "utilization.gpu",
    "ecc.errors.uncorrected.volatile.total", "clocks_throttle_reasons.active", "temperature.gpu", "pstate",
)  # fmt: skip


def versions(machine: Machine) -> dict[str, Any]:
    done = machine.run(["-c", VERSIONS])
    if done.returncode:
        raise Wrong(f"this Python has no torch that can be imported: {done.stdout[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if not machine.dry and not found["gpus"]:
        raise NotHere("torch sees no GPU here; --dry runs the parts on the CPU")
    return found


def seen(machine: Machine) -> dict[str, Any]:
    """``muster check``, ``plan`` and ``env`` agree with torch about the GPUs and the slots."""
    found = versions(machine)
    check = machine.run(["-m", "musterpoint", "check", "--json"])
    document = json.loads(check.stdout[check.stdout.index("{") :])
    failed = [each for each in document["findings"] if each["severity"] == "fail"]
    if failed:
        raise Wrong(f"muster check: {failed[0]}")
    plan = machine.run(["-m", "musterpoint", "plan", "--json", "--launcher", "torchrun", "-m", "some.program"])
    if plan.returncode:
        raise Wrong(f"muster plan ended with {plan.returncode}: {plan.stdout[-800:]}")
    env = machine.run(["-m", "musterpoint", "env", "--launcher", "torchrun", "--format", "pet"])
    slots = next((line for line in env.stdout.splitlines() if "PET_NPROC_PER_NODE" in line), "")
    wanted = max(1, 0 if machine.dry else found["gpus"])
    if slots.rpartition("=")[2].strip("'\"") != str(wanted):
        raise Wrong(f"muster env says {slots!r}, and torch sees {found['gpus']} GPUs")
    return {**found, "slots": wanted, "findings": [each.get("code") for each in document["findings"]]}


def of_driver(machine: Machine) -> dict[str, Any]:
    """What the driver says of each GPU: memory, use, ECC errors, throttling; and which rank's process is on it."""
    if machine.dry:
        return {"gpus": []}
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(NVML)}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=machine.left, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise NotHere(f"nvidia-smi can't be asked: {error}")
    gpus = [dict(zip(NVML, map(str.strip, line.split(",")), strict=False)) for line in done.stdout.splitlines()]
    on_it: list[str] = []

    def look(_child: object) -> None:
        words = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
        on_it.extend(subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines())

    machine.job("waits.py", "kernel", "4", when=("silent from now on", look)).expect(0)
    return {"gpus": gpus, "processes_on_gpus": on_it}
