"""Two machines of one network, as the documentation's readers have them: network namespaces with names. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

FILES = Path("/etc/netns")
"""``ip netns exec NAME`` has the files of NAME's directory there in the place of those of /etc."""


class Pair:
    """The hosts named, joined by a cable while the context lasts; none where there are no names."""

    def __init__(self, hosts: list[str]) -> None:
        assert len(hosts) in (0, 2), hosts
        self.hosts = hosts
        self.spaces = [f"muster-docs-{os.getpid()}-{number}" for number in range(len(hosts))]

    def __enter__(self) -> Pair:
        for name in self.spaces:
            self._ip("netns", "add", name)
            (FILES / name).mkdir(parents=True)
            table = "".join(f"10.77.0.{number + 1} {host}\n" for number, host in enumerate(self.hosts))
            (FILES / name / "hosts").write_text(f"127.0.0.1 localhost\n{table}")
        if self.spaces:
            one, other = self.spaces
            self._ip("link", "add", "eth0", "netns", one, "type", "veth", "peer", "name", "eth0", "netns", other)
        for number, name in enumerate(self.spaces):
            self._ip("-n", name, "address", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                self._ip("-n", name, "link", "set", device, "up")
        return self

    def __exit__(self, *_: Any) -> None:
        for name in self.spaces:
            subprocess.run(["ip", "netns", "delete", name], check=False)
            shutil.rmtree(FILES / name, ignore_errors=True)

    def on(self, number: int) -> list[str]:
        """Words before a command that is to run on a host: its network, its name."""
        if not self.hosts:
            return []
        named = f'echo {self.hosts[number]} > /proc/sys/kernel/hostname && exec "$@"'
        return ["ip", "netns", "exec", self.spaces[number], "unshare", "--uts", "sh", "-c", named, "sh"]

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)
