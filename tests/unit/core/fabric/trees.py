"""Unpacks recorded trees: ``trees/NAME.txt`` says in a few lines what a machine's /sys, /proc and /dev have.

Each line is a word and what follows; ``#`` begins a comment. ``source`` names the public listing that the lines below
it are composed of. The others: ``gpu NUMBER ADDRESS PCI-ID numa=N MODEL`` · ``rdma NAME ADDRESS PCI-ID driver=D
link=L [rate=R] [state=S] [numa=N] [net=IF] [hidden]`` (``hidden``: its node isn't in this container) · ``net IF…`` ·
``neuron DEVICES CORES`` · ``module NAME [VERSION]`` · ``numa NODE CPUS`` · ``mig GPU INSTANCES`` · ``vmbus GUID`` ·
``dev NAME…`` · ``file PATH TEXT`` (``\\n`` stands for a line's end). ``{0..3}`` repeats a line.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Callable, Iterator

FOLDER = Path(__file__).with_name("trees")
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.txt")))


def unpack(name: str, root: Path) -> str:
    """Makes the tree ``name`` below ``root`` and returns it as a text."""
    machine = _Machine(root)
    for line in _lines((FOLDER / f"{name}.txt").read_text()):
        word, _, rest = line.partition(" ")
        if word != "source":
            _WORDS[word](machine, rest.strip())
    return str(root)


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        repeated = re.search(r"\{(\d+)\.\.(\d+)\}", line)
        if repeated is None:
            yield line
            continue
        first, last = int(repeated[1]), int(repeated[2])
        for number in range(first, last + 1):
            yield line.replace(repeated[0], str(number))


class _Machine:
    def __init__(self, root: Path) -> None:
        self.root, self.verbs = root, 0

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def link(self, path: str, target: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        (self.root / target).mkdir(parents=True, exist_ok=True)
        file.symlink_to(os.path.relpath(self.root / target, file.parent))

    def pci(self, address: str, ids: str, numa: str, driver: str = "") -> str:
        folder = f"sys/devices/pci0000:00/{address}"
        vendor, device = ids.split(":")
        for name, text in (("vendor", f"0x{vendor}"), ("device", f"0x{device}"), ("numa_node", numa)):
            self.write(f"{folder}/{name}", text + "\n")
        self.link(f"sys/bus/pci/devices/{address}", folder)
        if driver:
            self.link(f"{folder}/driver", f"sys/bus/pci/drivers/{driver}")
        return folder


def _options(words: list[str]) -> tuple[list[str], dict[str, str]]:
    plain = [word for word in words if "=" not in word]
    return plain, dict(word.split("=", 1) for word in words if "=" in word)


def _gpu(machine: _Machine, rest: str) -> None:
    number, address, ids, numa, model = rest.split(None, 4)
    machine.pci(address, ids, numa.partition("=")[2], "nvidia")
    machine.write(f"dev/nvidia{number}", "")
    machine.write("dev/nvidiactl", "")
    text = f"Model: \t\t {model}\nBus Type: \t PCIe\nBus Location: \t {address}\nDevice Minor: \t {number}\n"
    machine.write(f"proc/driver/nvidia/gpus/{address}/information", text)


def _rdma(machine: _Machine, rest: str) -> None:
    (name, address, ids, *flags), options = _options(rest.split())
    pci = machine.pci(address, ids, options.get("numa", "0"), options["driver"])
    folder = f"{pci}/infiniband/{name}"
    state = options.get("state", "ACTIVE")
    number = {"DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4}[state]
    machine.write(f"{folder}/ports/1/state", f"{number}: {state}\n")
    machine.write(f"{folder}/ports/1/link_layer", options["link"] + "\n")
    machine.write(f"{folder}/ports/1/rate", f"{options.get('rate', '100')} Gb/sec (4X EDR)\n")
    machine.write(f"{folder}/fw_ver", options.get("firmware", "") + "\n")
    machine.link(f"sys/class/infiniband/{name}", folder)
    machine.link(f"{folder}/device", pci)
    if "net" in options:
        machine.write(f"{pci}/net/{options['net']}/mtu", "1500\n")
        _net(machine, options["net"])
    machine.write(f"sys/class/infiniband_verbs/uverbs{machine.verbs}/ibdev", name + "\n")
    if "hidden" not in flags:
        machine.write(f"dev/infiniband/uverbs{machine.verbs}", "")
    machine.verbs += 1


def _net(machine: _Machine, rest: str) -> None:
    for name in rest.split():
        machine.write(f"sys/class/net/{name}/mtu", "1500\n")


def _neuron(machine: _Machine, rest: str) -> None:
    devices, cores = map(int, rest.split())
    for number in range(devices):
        machine.write(f"dev/neuron{number}", "")
        machine.write(f"sys/devices/virtual/neuron_device/neuron{number}/core_count", f"{cores}\n")


def _module(machine: _Machine, rest: str) -> None:
    name, _, version = rest.partition(" ")
    machine.write(f"sys/module/{name}/{'version' if version else 'refcnt'}", (version or "0") + "\n")


def _numa(machine: _Machine, rest: str) -> None:
    node, cpus = rest.split()
    machine.write(f"sys/devices/system/node/node{node}/cpulist", cpus + "\n")


def _mig(machine: _Machine, rest: str) -> None:
    gpu, instances = rest.split()
    for number in range(int(instances)):
        path = f"proc/driver/nvidia/capabilities/gpu{gpu}/mig/gi{number + 7}/ci0/access"
        machine.write(path, f"DeviceFileMinor: {number}\nDeviceFileMode: 292\n")


def _vmbus(machine: _Machine, rest: str) -> None:
    machine.write(f"sys/bus/vmbus/devices/{rest[:8]}-0000-0000-0000-000000000001/class_id", "{" + rest + "}\n")


def _dev(machine: _Machine, rest: str) -> None:
    for name in rest.split():
        machine.write(f"dev/{name}", "")


def _file(machine: _Machine, rest: str) -> None:
    path, _, text = rest.partition(" ")
    machine.write(path.lstrip("/"), text.replace("\\n", "\n"))


_WORDS: dict[str, Callable[[_Machine, str], None]] = {
    "gpu": _gpu, "rdma": _rdma, "net": _net, "neuron": _neuron, "module": _module, "numa": _numa, "mig": _mig,
    "vmbus": _vmbus, "dev": _dev, "file": _file,
}  # fmt: skip
