"""MPI on two hosts of two ranks: launch against plain mpirun over sshd, and the last rank's end to the last host's."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import trial
from benchmarks.figure import Figure, in_milliseconds, milliseconds

ROOT = Path(__file__).resolve().parents[2]
ADDRESSES = {"algo-1": "10.79.0.1", "algo-2": "10.79.0.2"}
FLAVOURS = {"openmpi4": "Open MPI 4", "openmpi5": "Open MPI 5", "mpich": "MPICH"}
RANKS = 4
GOAL_RATIO, GOAL_TAIL = 0.7, 0.5
LIMIT = 60.0

RANK = """\
import os, time
began = time.monotonic()
rank = next(os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in os.environ)
with open(os.path.join(os.environ["BENCH_FOLDER"], "." + rank), "w") as file:
    file.write(f"{began!r} ")
os.rename(os.path.join(os.environ["BENCH_FOLDER"], "." + rank), os.path.join(os.environ["BENCH_FOLDER"], rank))
time.sleep(0.3)
with open(os.path.join(os.environ["BENCH_FOLDER"], rank), "a") as file:
    file.write(repr(time.monotonic()))
"""
SET_UP = """\
hostname "$0"; mount -t sysfs sysfs /sys; mount -t tmpfs tmpfs /dev/shm; mount --bind "$1" /etc/hosts; echo; exec cat
"""
SSHD = """\
Port 22
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
PermitUserEnvironment no
AcceptEnv BENCH_*
"""
SSH = """\
Host *
    IdentityFile {folder}/key
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
    SendEnv BENCH_*
"""


class Hosts:
    """Two network namespaces on one cable, and an sshd on the second that lets this machine's root in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        table = "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
        (folder / "hosts").write_text(table)
        self.holders = {name: self._hold(name) for name in ADDRESSES}
        first, second = self.holders.values()
        self._ip(first, f"link add eth0 type veth peer name eth0 netns {second.pid}")
        for name, holder in self.holders.items():
            self._ip(holder, f"addr add {ADDRESSES[name]}/24 dev eth0", "link set lo up", "link set eth0 up")
        self.sshd = self._serve()

    def _hold(self, name: str) -> subprocess.Popen[bytes]:
        spaces = ["unshare", "--net", "--uts", "--ipc", "--mount", "--propagation", "private"]
        holder = subprocess.Popen(
            [*spaces, "sh", "-c", SET_UP, name, str(self.folder / "hosts")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert holder.stdout is not None
        holder.stdout.readline()
        return holder

    @staticmethod
    def _ip(holder: subprocess.Popen[bytes], *commands: str) -> None:
        text = "".join(command + "\n" for command in commands).encode()
        subprocess.run(["nsenter", "-t", str(holder.pid), "--net", "ip", "-batch", "-"], input=text, check=True)

    def _serve(self) -> subprocess.Popen[bytes]:
        key = self.folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        (self.folder / "sshd").write_text(SSHD.format(folder=self.folder))
        (self.folder / "ssh").write_text(SSH.format(folder=self.folder))
        Path("/run/sshd").mkdir(exist_ok=True)
        path = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/sbin") or "sshd"
        sshd = subprocess.Popen([*self.on("algo-2"), path, "-D", "-e", "-f", str(self.folder / "sshd")],
                                stderr=subprocess.DEVNULL)  # fmt: skip
        end = time.monotonic() + LIMIT
        login = [*self.on("algo-1"), "ssh", "-F", str(self.folder / "ssh"), "algo-2", "true"]
        while subprocess.run(login, stderr=subprocess.DEVNULL, check=False).returncode:
            if time.monotonic() > end or sshd.poll() is not None:
                raise SystemExit("bench: no ssh login between two namespaces of this machine")
            time.sleep(0.1)
        return sshd

    def on(self, name: str) -> list[str]:
        """The words before a command that is to run on a host."""
        return ["nsenter", "-t", str(self.holders[name].pid), "--net", "--uts", "--ipc", "--mount", "--wd=/"]

    def close(self) -> None:
        self.sshd.terminate()
        self.sshd.wait()
        for holder in self.holders.values():
            holder.communicate()


class Run:
    """What one launch took: seconds from its start to the last rank's first word, and from the last rank's end."""

    def __init__(self, began: float, ended: float, folder: Path) -> None:
        stamps = [path.read_text().split() for path in folder.iterdir() if path.name.isdecimal()]
        if len(stamps) != RANKS:
            raise SystemExit(f"bench: {len(stamps)} of {RANKS} ranks came up: {(folder / 'said').read_text()}")
        self.launch = max(float(first) for first, _last in stamps) - began
        self.tail = ended - max(float(last) for _first, last in stamps)


def timed(commands: list[list[str]], folder: Path, env: list[dict[str, str]]) -> Run:
    with (folder / "said").open("wb") as said:
        began = time.monotonic()
        processes = [
            subprocess.Popen(command, env=each, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd="/")
            for command, each in zip(commands, env, strict=True)
        ]
        try:
            codes = [process.wait(LIMIT) for process in processes]
        except subprocess.TimeoutExpired:
            for process in processes:
                process.kill()
            codes = [-9]
        ended = time.monotonic()
    if any(codes):
        raise SystemExit(f"bench: {commands[0]!r} ended with {codes}: {(folder / 'said').read_text()}")
    return Run(began, ended, folder)


def plain(hosts: Hosts, flavour: str, folder: Path, program: list[str], env: dict[str, str]) -> Run:
    """mpirun as people call it where every host has an sshd."""
    ssh = f"ssh -F {hosts.folder / 'ssh'}"
    where = ",".join(f"{address}:2" for address in ADDRESSES.values())
    if flavour == "mpich":
        wrapper = hosts.folder / "ssh-with-keys"
        wrapper.write_text(f'#!/bin/sh\nexec {ssh} "$@"\n')
        wrapper.chmod(0o755)
        words = ["-launcher", "ssh", "-launcher-exec", str(wrapper), "-hosts", where, "-np", str(RANKS)]
    else:
        agent = "plm_rsh_agent" if flavour == "openmpi4" else "plm_ssh_agent"
        option = "--mca" if flavour == "openmpi4" else "--prtemca"
        words = ["--allow-run-as-root", "--bind-to", "none", option, agent, ssh, "--host", where, "-np", str(RANKS)]
        words += ["-x", "BENCH_FOLDER"]
    env = {**env, "BENCH_FOLDER": str(folder)}
    return timed([[*hosts.on("algo-1"), "mpirun", *words, *program]], folder, [env])


def ours(bench: trial.Bench, hosts: Hosts, folder: Path, env: dict[str, str]) -> Run:
    """`train` on both hosts at the same moment."""
    commands, environments = [], []
    settings = {"sagemaker_mpi_enabled": True, "sagemaker_mpi_num_of_processes_per_host": 2}
    for name in ADDRESSES:
        base = trial.make(folder / name, RANK, settings)
        resources = {"current_host": name, "hosts": list(ADDRESSES), "network_interface_name": "eth0"}
        (base / "input" / "config" / "resourceconfig.json").write_text(json.dumps(resources))
        commands.append([*hosts.on(name), *bench.train])
        environments.append({**env, "SAGEMAKER_BASE_DIR": str(base), "BENCH_FOLDER": str(folder)})
    return timed(commands, folder, environments)


def stacks() -> dict[str, Path]:
    command = [str(ROOT / "scripts" / "setup"), "ssh", "openmpi4", "mpi"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench: {' '.join(command)} failed with code {done.returncode}")
    names = ("openmpi4", "openmpi5", "mpich", "mpich-apt", "impi")
    return dict(zip(names, map(Path, done.stdout.split("\n")), strict=False))


def figures(flavour: str, theirs: list[Run], mine: list[Run]) -> list[Figure]:
    plainly, launch = (statistics.median(run.launch for run in runs) for runs in (theirs, mine))
    tail = statistics.median(run.tail for run in mine)
    facts: dict[str, Any] = {
        "plain_s": [round(run.launch, 4) for run in theirs],
        "ours_s": [round(run.launch, 4) for run in mine],
    }
    name = FLAVOURS[flavour]
    return [
        Figure(
            f"{name}, 2 hosts of 2 ranks: start → last rank runs; plain mpirun over ssh",
            f"≤ {GOAL_RATIO:g} of it",
            f"{milliseconds(launch)}; {milliseconds(plainly)} ({launch / plainly:.2f})",
            launch <= GOAL_RATIO * plainly,
            facts,
            {
                "musterpoint": in_milliseconds([run.launch for run in mine]),
                "mpirun over ssh": in_milliseconds([run.launch for run in theirs]),
            },
        ),
        Figure(
            f"{name}: last rank ended → all hosts ended",
            f"≤ {milliseconds(GOAL_TAIL)}",
            milliseconds(tail),
            tail <= GOAL_TAIL,
            {"tail_s": [round(run.tail, 4) for run in mine]},
            {
                "musterpoint": in_milliseconds([run.tail for run in mine]),
                "mpirun over ssh": in_milliseconds([run.tail for run in theirs]),
            },
        ),
    ]


def measure(bench: trial.Bench) -> list[Figure]:
    found: list[Figure] = []
    folders = stacks()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        hosts = Hosts(Path(name))
        try:
            for flavour in FLAVOURS:
                theirs: list[Run] = []
                mine: list[Run] = []
                python = str(bench.python.resolve())
                env = trial.environment(PATH=f"{folders[flavour]}{os.pathsep}{os.environ['PATH']}")
                for _ in range(max(3, bench.runs // 4)):
                    with tempfile.TemporaryDirectory(prefix="bench-") as one, tempfile.TemporaryDirectory() as other:
                        script = Path(one) / "train.py"
                        script.write_text(RANK)
                        theirs.append(plain(hosts, flavour, Path(one), [python, str(script)], env))
                        mine.append(ours(bench, hosts, Path(other), env))
                found += figures(flavour, theirs, mine)
        finally:
            hosts.close()
    return found
