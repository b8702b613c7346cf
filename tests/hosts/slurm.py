"""A real Slurm of two nodes: its controller and daemons on the hosts of a :class:`Network`, all files in one folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable, Mapping, Sequence

from .conftest import finished
from .network import Network

CONFIG = """\
ClusterName=muster
SlurmctldHost=algo-1
SlurmUser=root
AuthInfo=socket={folder}/munge.sock
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SchedulerParameters=defer_batch,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait={grace}
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=algo-[1-2] CPUs=16 RealMemory=4000 Gres=gpu:{gpus}
PartitionName=p Nodes=algo-[1-2] Default=YES MaxTime=10 State=UP OverSubscribe=FORCE:8
"""
GPUS = 2
"""Each node's, which Slurm only counts."""
GRACE = 20
"""Seconds between a cancelled job's SIGTERM and SIGKILL (Slurm's default is 30)."""
PATIENCE = 500.0
# In its own network and with its own name. `ip netns exec` would hide /sys/fs/cgroup, which slurmd wants to see.
ENTER = (
    'hostname "$1"; mount --bind "/etc/netns/$2/hosts" /etc/hosts; mount --bind "/etc/netns/$2/nsswitch.conf" '
    '/etc/nsswitch.conf; shift 2; exec "$@"'
)
SEARCH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


class Slurm:
    """The nodes are ``algo-1`` and ``algo-2``; commands run on the first, with :attr:`environ` and in ``folder``."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="muster-slurm-"))
        self.folder.chmod(0o755)  # munged asks for a folder that everybody can enter
        self.environ = {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": SEARCH}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._network = Network(2)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(CONFIG.format(folder=self.folder, grace=GRACE, gpus=GPUS))
        (self.folder / "cgroup.conf").write_text("CgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n")
        for number in range(GPUS):
            (self.folder / f"gpu{number}").touch()
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-{GPUS - 1}]\n")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        places = (("key-file", "munge.key"), ("socket", "munge.sock"), ("pid-file", "munged.pid"),
                  ("log-file", "munged.log"), ("seed-file", "munged.seed"))  # fmt: skip
        self._run("munged", "--force", "--foreground", *(f"--{name}={self.folder / file}" for name, file in places))
        self._wait(lambda: (self.folder / "munge.sock").exists())
        self._run(*self.words("slurmctld", "-D", "-f", self.environ["SLURM_CONF"]))
        for node in self._network.hosts:
            self._run(*self.words("slurmd", "-D", "-N", node, node=node))
        self._wait(lambda: self.command("sinfo", "--noheader", "--format=%T %D").stdout.split() == ["idle", "2"])

    def _run(self, *words: str) -> None:
        with open(self.folder / "daemons.log", "ab") as log:
            environ = {**os.environ, **self.environ}
            self._daemons.append(subprocess.Popen(words, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _wait(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not ready():
            died = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            logs = "".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log"))
            assert not died and time.monotonic() < deadline, f"Slurm didn't start: {died}\n{logs}"
            time.sleep(0.02)

    def words(self, *command: str, node: str = "algo-1") -> list[str]:
        """The words that run ``command`` on ``node``."""
        name = self._network.netns(node)
        inside = ("nsenter", f"--net=/run/netns/{name}", "unshare", "-u", "-m")
        return [*inside, "sh", "-c", ENTER, "sh", node, name, *command]

    def command(self, *words: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        return finished(self.start(*words), timeout)

    def start(
        self, *words: str, environ: Mapping[str, str] = os.environ, cwd: Path | None = None, search: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """``search``: directories of commands before all others."""
        whole = {**environ, **self.environ, "PATH": os.pathsep.join((*search, self.environ["PATH"]))}
        return subprocess.Popen(
            self.words(*words), env=whole, cwd=cwd or self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip

    def close(self) -> None:
        """Ends the cluster and whatever runs on its nodes."""
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()
        for node in self._network.hosts:
            for pid in self._network.pids(node):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self._network.close()
        shutil.rmtree(self.folder, ignore_errors=True)
