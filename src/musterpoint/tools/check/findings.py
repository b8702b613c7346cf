"""What a check can find: the codes, each with its meaning and what to do, and one finding of this run."""

from typing import Any, Iterable, Literal, Mapping, NamedTuple

from musterpoint.base.untrusted import printable

Severity = Literal["ok", "warn", "fail"]
SEVERITIES: tuple[Severity, ...] = ("ok", "warn", "fail")
LONGEST = 600
"""Characters of each text of a finding that travels between hosts."""


class Code(NamedTuple):
    """``severities``: those it is given with. ``meaning``: for the list. ``advice``: what to do."""

    severities: tuple[Severity, ...]
    meaning: str
    advice: str


class Finding(NamedTuple):
    """One result of a check.

    code: one of :data:`CODES`; stable between releases.
    severity: ok, warn or fail.
    host: the host it names; empty where it is about the job as a whole.
    found: what was there.
    expected: what should be there.
    advice: what to do.
    """

    code: str
    severity: Severity
    host: str
    found: str
    expected: str
    advice: str

    @classmethod
    def from_wire(cls, value: Any) -> "Finding":
        """Builds it from decoded JSON.

        Raises:
            ValueError: it is no finding.
        """
        if (
            not isinstance(value, list)
            or len(value) != len(cls._fields)
            or not all(type(text) is str for text in value)
        ):
            raise ValueError("a finding is a list of six texts")
        code, severity, *texts = value
        if code not in CODES or severity not in SEVERITIES:
            raise ValueError(f"no finding is called {printable(code, 80)} with severity {printable(severity, 80)}")
        return cls(code, severity, *(printable(text, LONGEST, lines=True) for text in texts))

    @property
    def sentence(self) -> str:
        """The finding as one sentence: ``shm-small on algo-2: /dev/shm has 64 MiB, expected …: what to do``."""
        where = f" on {self.host}" if self.host else ""
        expected = f"; expected {self.expected}" if self.expected else ""
        return f"{self.code}{where}: {self.found}{expected}; {self.advice}"


def finding(code: str, severity: Severity, host: str, found: str, expected: str = "") -> Finding:
    """A finding with the advice of its code. ``KeyError``: there is no such code."""
    return Finding(code, severity, host, found, expected, CODES[code].advice if severity != "ok" else "nothing to do")


def worst(findings: Iterable[Finding]) -> Severity:
    """The worst severity among ``findings``; ok where there is none."""
    return max((each.severity for each in findings), key=SEVERITIES.index, default="ok")


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first; those of one severity as they came."""
    return tuple(sorted(findings, key=lambda each: -SEVERITIES.index(each.severity)))


_W: tuple[Severity, ...] = ("warn",)
_F: tuple[Severity, ...] = ("fail",)
_WF: tuple[Severity, ...] = ("warn", "fail")

CODES: Mapping[str, Code] = {
    "shm-small": Code(_WF, "/dev/shm is smaller than NCCL and DataLoader workers need",
        "give the container more: docker --shm-size 8g or --ipc=host, on Kubernetes an emptyDir with medium: "
        "Memory at /dev/shm"),
    "shm-full": Code(_W, "little is free in /dev/shm", "remove what an earlier job left in /dev/shm"),
    "disk-full": Code(_WF, "little space is free where the job works or writes",
        "free space there, or give the host a larger volume"),
    "place-unusable": Code(_F,
         "a place of channels, checkpoints or results can't be read or written, or doesn't answer in 5 s",
        "mount it again, or correct the URI, the credentials or the network"),
    "place-slow": Code(_W, "the newest checkpoint wouldn't get to its place in the time that a stop leaves",
        "name a faster place, save smaller checkpoints, or give a stop more time (--stop-grace, and the platform's)"),
    "place-measured": Code(("ok",), "how fast a place of data is from here, and what gets to it in a stop's time",
        "nothing to do"),
    "inodes-few": Code(_WF, "few files can still be made where the job works or writes", "remove files there"),
    "not-writable": Code(_F, "a directory that the job writes to can't be written",
        "mount it writable, or make it belong to the user that runs the job"),
    "memlock-low": Code(_WF, "too little memory may be locked for RDMA (EFA, InfiniBand)",
        "raise it: docker --ulimit memlock=-1, or in limits.conf memlock unlimited"),
    "open-files-low": Code(_WF, "few files may be open at a time",
        "raise it: ulimit -n 65536, docker --ulimit nofile=65536"),
    "processes-few": Code(_WF, "few processes and threads may still be started",
        "raise it: docker --pids-limit, on Kubernetes the kubelet's podPidsLimit, or ulimit -u"),
    "memory-low": Code(_WF, "little memory is left to this job's ranks",
        "end what else runs here, raise the container's memory limit, or start fewer ranks"),
    "cpus-few": Code(_W, "fewer processors than ranks",
        "raise the container's processors, or start fewer ranks (--slots)"),
    "gpus-missing": Code(_F, "fewer GPUs work than the host has, or than ranks are to use",
        "look at nvidia-smi on that host, and reset or replace it"),
    "gpus-unchecked": Code(_W, "the health of the GPUs wasn't looked at",
        "pip install nvidia-ml-py where musterpoint runs"),
    "gpu-recovery": Code(_F, "the driver asks for a recovery action of a GPU",
        "do what it asks for (a reset of the GPU, a reboot), or replace the host"),
    "gpu-memory": Code(_WF, "a GPU's memory had errors that weren't corrected, or waits for its repair",
        "reset the GPU (nvidia-smi -r) or reboot; if it returns, replace the host"),
    "gpu-xid": Code(_WF, "the kernel's log has an Xid of a GPU that its makers would act on",
        "reset the GPU or reboot the host; see NVIDIA's Xid catalogue for the number"),
    "gpu-throttled": Code(_W, "a GPU runs slower than it could: heat or power",
        "look at its cooling and power; if it stays so, replace the host"),
    "gpu-link-narrow": Code(_W, "a GPU uses fewer PCI Express lanes than it has",
        "reseat or replace the host: it copies slower than others"),
    "gpu-busy": Code(_W, "something else uses a GPU's memory", "end it: nvidia-smi shows which process it is"),
    "rdma-down": Code(_WF, "a port of an RDMA device (EFA, InfiniBand) isn't active",
        "look at its cable and switch, or replace the host"),
    "rdma-hidden": Code(_W, "the machine has an RDMA device that this container can't use",
        "give the container its nodes in /dev/infiniband: docker --device, on Kubernetes the device plugin's resource"),
    "rdma-errors": Code(_W, "a port of an RDMA device lost its link or counted errors",
        "look at its cable; if the count grows, replace the host"),
    "nic-down": Code(_F, "the interface to the leader is down", "look at the interface's cable and driver"),
    "nic-errors": Code(_W, "an interface counts errors or drops",
        "look at its cable, driver and ring sizes (ethtool -S)"),
    "name-unresolved": Code(_W, "a host's own name doesn't resolve on itself",
        "add it to /etc/hosts; Gloo and MPI look their own host's name up"),
    "name-loopback": Code(_W, "a host's own name resolves to a loopback address",
        "take it out of the line of 127.0.0.1 or 127.0.1.1 in /etc/hosts: others can't reach that"),
    "name-differs": Code(_W, "a host's name means other addresses on other hosts",
        "give all hosts the same name service or hosts file"),
    "host-missing": Code(_F, "a host wasn't here by the roll call's deadline",
        "the table of the roll call says how far it got; see docs/rollcall.md"),
    "host-silent": Code(_F, "a host joined and then gave no answer",
        "look at that host: it stands still, or its network was cut"),
    "port-blocked": Code(_WF, "no connection comes through to a port of a host",
        "open it between all hosts: security groups, network policies, iptables"),
    "large-packets-lost": Code(_F, "connections open, and large packets are lost on the way",
        "give all hosts and switches on the way the same MTU"),
    "clock-skew": Code(_WF, "a host's clock is wrong",
        "start chronyd or ntpd there; a wrong clock breaks TLS, S3 and checkpoints' order"),
    "devices-differ": Code(_W, "hosts have different devices", "let the job use like hosts, or take the odd one out"),
    "slots-differ": Code(_F, "hosts start different numbers of ranks",
        "give all the same --slots; where it is meant, use --check warn"),
    "versions-differ": Code(_WF, "a version isn't the same on all hosts",
        "install the same there; build all hosts from one image"),
    "mtu-differs": Code(_W, "the interfaces between the hosts have different MTUs", "set the same on all hosts"),
    "link-speed-differs": Code(_W, "a host's interface is slower than those of others",
        "look at its cable and switch port, or replace the host"),
    "looked-at": Code(("ok",), "what was looked at and is as expected", "nothing to do"),
}  # fmt: skip
