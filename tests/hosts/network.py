"""Hosts as network namespaces on a switch of their own, with names, faults and cables to cut. Needs root on Linux."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterable

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
PATIENCE = 500.0
WITH_NAME = """
import ctypes, os, runpy, socket, sys
ctypes.CDLL(None, use_errno=True).unshare(0x04000000)  # CLONE_NEWUTS: a host name of its own
socket.sethostname(sys.argv.pop(1))
os.dup2(1, 2)
runpy.run_module("musterpoint", run_name="__main__")
"""
"""A program: ``musterpoint`` with the words behind the first, which becomes the host's name; no resolver knows that."""


def usable() -> bool:
    """Whether this machine lets us make a network namespace."""
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip"):
        return False
    name = f"muster-test-{os.getpid()}-try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return False
    subprocess.run(["ip", "netns", "del", name], check=True)
    return True


class Process:
    """A program on a host; :attr:`lines` are the JSON lines it wrote so far."""

    def __init__(self, argv: list[str]) -> None:
        environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
        self._popen = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
        )
        self.lines: list[dict[str, Any]] = []
        self.stderr = ""
        self._change = threading.Condition()
        self._over = False
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._read_stderr)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            with self._change:
                self.lines.append(json.loads(line) if line.startswith("{") else {"what": line.strip()})
                self._change.notify_all()
        with self._change:
            self._over = True
            self._change.notify_all()

    def _read_stderr(self) -> None:
        assert self._popen.stderr is not None
        self.stderr = self._popen.stderr.read()

    def heard(self, what: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["what"] == what]

    def wait(self, what: str, seconds: float = PATIENCE) -> dict[str, Any]:
        """The first line of this kind."""
        with self._change:
            self._change.wait_for(lambda: self._over or self.heard(what), seconds)
            found = self.heard(what)
            assert found, f"no {what!r} within {seconds:g} s: {self.lines} {self.stderr}"
            return found[0]

    def say(self, words: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(words + "\n")
        self._popen.stdin.flush()

    def signal(self, signo: int) -> None:
        """To the program itself: ``ip netns exec`` becomes it."""
        self._popen.send_signal(signo)

    def code(self, seconds: float = PATIENCE) -> int:
        """Its exit code, waited for; every line is here then."""
        code = self._popen.wait(seconds)
        for reader in self._readers:
            reader.join()
        return code

    def end(self) -> None:
        self._popen.kill()
        self._popen.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass


class Network:
    """``algo-1`` to ``algo-<count>`` on one switch, with names from hosts files. ``six``: with IPv6 addresses only."""

    def __init__(self, count: int, six: bool = False) -> None:
        self._prefix = f"muster-test-{os.getpid()}-"
        self._six = six
        self.hosts = [f"algo-{number + 1}" for number in range(count)]
        self._processes: list[Process] = []
        self._names = [self._prefix + name for name in ("switch", *self.hosts)]
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def address(self, host: str) -> str:
        number = host.removeprefix("algo-")
        return f"fd78::{number}" if self._six else f"10.78.0.{number}"

    @property
    def switch_address(self) -> str:
        return "fd78::ffff" if self._six else "10.78.0.254"

    def netns(self, host: str) -> str:
        """The name of the host's network namespace."""
        return self._prefix + host

    def pids(self, host: str) -> list[int]:
        """The processes on ``host``."""
        found = subprocess.run(["ip", "netns", "pids", self.netns(host)], capture_output=True, text=True, check=False)
        return [int(pid) for pid in found.stdout.split()]

    def _make(self) -> None:
        for name in self._names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        switch, *hosts = self._names
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        self._give_address(switch, "br0", self.switch_address)
        table = "127.0.0.1 localhost\n" + "".join(f"{self.address(host)} {host}\n" for host in self.hosts)
        for name, host in zip(hosts, self.hosts):
            port = f"to-{host}"
            ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", switch)
            ip("-n", switch, "link", "set", port, "master", "br0", "up")
            self._give_address(name, "eth0", self.address(host))
            ip("-n", name, "link", "set", "eth0", "up")
            self._write(name, "hosts", table)
            self._write(name, "resolv.conf", f"nameserver {self.switch_address}\n")  # where nobody answers
            self._write(name, "nsswitch.conf", "hosts: files dns\n")

    def _give_address(self, name: str, device: str, address: str) -> None:
        if self._six:
            ip("-n", name, "addr", "add", f"{address}/64", "dev", device, "nodad")
        else:
            ip("-n", name, "addr", "add", f"{address}/24", "dev", device)

    def _write(self, name: str, file: str, text: str) -> None:
        folder = Path("/etc/netns") / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)

    def know_itself(self, host: str, name: str) -> None:
        """On ``host``, and nowhere else, ``name`` is its address, as on most machines."""
        self._write(self._prefix + host, "hosts", f"127.0.0.1 localhost\n{self.address(host)} {name}\n")

    def run(self, host: str, *arguments: str) -> Process:
        """Runs a Python program with ``arguments`` on ``host``."""
        process = Process(["ip", "netns", "exec", self._prefix + host, sys.executable, *arguments])
        self._processes.append(process)
        return process

    def call_the_roll(self, host: str, **settings: Any) -> Process:
        """Starts :mod:`rollcall_host` on ``host``."""
        given = {"hosts": self.hosts, "rollcall_timeout": PATIENCE, **settings}
        return self.run(host, str(HERE / "rollcall_host.py"), host, json.dumps(given))

    def cut(self, host: str) -> Callable[[], None]:
        """Drops every packet between ``host`` and the others where it arrives; call the result to mend."""
        if shutil.which("iptables"):
            others = [(other, self.address(host)) for other in self.hosts if other != host]
            everything = "::/0" if self._six else "0.0.0.0/0"

            def rule(action: str) -> None:
                tool = "ip6tables" if self._six else "iptables"
                for receiver, sender in [(host, everything), *others]:
                    argv = ["ip", "netns", "exec", self._prefix + receiver, tool, action, "INPUT", "-s", sender]
                    subprocess.run([*argv, "-i", "eth0", "-j", "DROP"], check=True, capture_output=True)

            rule("-A")
            return lambda: rule("-D")
        ip("-n", self._prefix + "switch", "link", "set", f"to-{host}", "down")
        return lambda: ip("-n", self._prefix + "switch", "link", "set", f"to-{host}", "up")

    def close(self) -> None:
        for process in self._processes:
            process.end()
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def wait_all(processes: Iterable[Process], what: str, seconds: float = PATIENCE) -> list[dict[str, Any]]:
    """The first line of this kind of each, all within ``seconds``."""
    until = time.monotonic() + seconds
    return [process.wait(what, max(0.0, until - time.monotonic())) for process in processes]
