"""Jobs that fail, hang, are stopped and start again: what the reason, the class and the code say."""

from __future__ import annotations

import signal
from typing import Any

from gpus import ras
from gpus.machine import Job, Machine, NotHere, Wrong

WITH_RAS = (2, 24)
"""The first NCCL that answers questions about its communicators."""
DUMP_MILLISECONDS = 2000
"""torch waits so long for a dump of its flight recorder, and four times as long before it throws NCCL's timeout: by
default 15 s and a minute (``ProcessGroupNCCL.cpp``), which is more than the part has.
"""


def _told(job: Job, classes: tuple[str, ...]) -> dict[str, Any]:
    if job.outcome.get("class") not in classes:
        raise Wrong(f"the class is {job.outcome.get('class')}, expected {' or '.join(classes)}: {job.reason}")
    return {"code": job.code, "class": job.outcome.get("class"), "reason": job.reason}


def memory(machine: Machine) -> dict[str, Any]:
    """More memory is asked for than the GPU has."""
    job = machine.job("fails.py", "memory").expect(1, "out of memory|more than|invalid", "rank 0")
    return _told(job, ("oom", "user"))


def asserts(machine: Machine) -> dict[str, Any]:
    """A device-side assert, as it comes and with CUDA_LAUNCH_BLOCKING, which makes the traceback name the line."""
    found = machine.found
    cases: tuple[tuple[str, dict[str, str]], ...] = (("plain", {}), ("blocking", {"CUDA_LAUNCH_BLOCKING": "1"}))
    for name, more in cases[1:] if machine.brief else cases:
        job = machine.job("fails.py", "assert", environ=more)
        job.expect(1, "device-side assert|out of bounds", "rank 0")
        found[name] = _told(job, ("user", "infra"))
    if "fails.py" not in str(found["blocking"]["reason"]):
        raise Wrong(f"with CUDA_LAUNCH_BLOCKING the reason names no line: {found['blocking']['reason']}")
    return found


def illegal(machine: Machine) -> dict[str, Any]:
    """A kernel touches memory that isn't its own."""
    job = machine.job("fails.py", "illegal")
    if "no compiler" in job.reason:
        raise NotHere(f"no kernel can be compiled here: {job.reason[:200]}")
    if job.code == 0 or ("illegal" not in job.reason and "invalid" not in job.reason):
        raise Wrong(f"code {job.code}: {job.reason}")
    return _told(job, ("user", "infra"))


def killed(machine: Machine) -> dict[str, Any]:
    """A rank of two is killed while it has memory of the GPU."""
    job = machine.job("fails.py", "killed", slots=2).expect(137, "SIGKILL|signal 9")
    return _told(job, ("infra", "oom"))


def refusal(machine: Machine) -> dict[str, Any]:
    """NCCL refuses two ranks on one GPU: told in plain words. Without a GPU Gloo takes them."""
    if machine.brief:
        raise NotHere("Gloo takes two ranks on one device, as in sharing")
    job = machine.job("ddp.py", "auto" if machine.dry else "nccl", "2", slots=2)
    if machine.dry:
        return job.expect(0).facts()
    if job.code == 0 or not any(words in job.reason for words in ("Duplicate GPU", "same GPU", "share a GPU")):
        raise Wrong(f"code {job.code}: {job.reason}")
    return _told(job, ("user", "infra"))


def too_late(machine: Machine) -> dict[str, Any]:
    """A collective runs into NCCL's time limit: the reason says so, and the flight recorder's file is kept.

    The job's own settings, which make way for a user's, ask for the file; only how long torch waits for it is set here.
    Meanwhile NCCL's RAS is asked, which answers from a thread of its own.
    """

    def ask(_child: object) -> None:
        answer = ras.asked()
        (machine.folder / "ras.txt").write_text(answer)
        machine.found["ras"] = ras.summary(answer) or answer[-400:]

    more = {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": str(DUMP_MILLISECONDS)}
    job = machine.job("waits.py", "collective", "5", environ=more, when=("a collective waits", ask))
    if job.code == 0 or ("timeout" not in job.reason.lower() and "timed out" not in job.reason.lower()):
        raise Wrong(f"code {job.code}: {job.reason}")
    kept = sorted(path.name for path in job.folder.rglob("*flight_recorder*"))
    if not machine.dry and not kept:
        raise Wrong(f"no record of torch's flight recorder was kept: {job.log[-800:]}")
    machine.found.update(_told(job, ("peer", "infra", "user")), records=kept)
    version = (0,) if machine.dry else tuple(job.facts()["nccl"])
    if version >= WITH_RAS and not isinstance(machine.found.get("ras"), list):
        raise Wrong(f"the RAS of NCCL {version} told nothing of communicators: {machine.found.get('ras')}")
    return machine.found


def idle(machine: Machine) -> dict[str, Any]:
    """A rank waits in silence with the GPU idle: a stall, code 74."""
    job = machine.job("waits.py", "idle", "0", words=("--stall-timeout", "4")).expect(74, "stalled", "waits.py")
    return {"reason": job.reason}


def busy(machine: Machine) -> dict[str, Any]:
    """A rank is silent while the GPU runs kernels: no stall."""
    machine.job("waits.py", "kernel", "9" if machine.brief else "14", words=("--stall-timeout", "4")).expect(0)
    return {}


def stopped(machine: Machine) -> dict[str, Any]:
    """SIGTERM comes while a kernel runs: the handler saves a checkpoint, and the job ends with 143."""
    when = ("a kernel runs", lambda child: child.send_signal(signal.SIGTERM))
    job = machine.job("waits.py", "stop", "60", when=when).expect(143)
    if not any(job.folder.rglob("saved")):
        raise Wrong(f"no checkpoint was saved: {job.log[-800:]}")
    return {}


def again(machine: Machine) -> dict[str, Any]:
    """A killed rank had most of the GPU's memory: it is free when the job starts again."""
    job = machine.job("again.py", words=("--max-restarts", "1")).expect(0)
    facts = job.facts()
    if facts["attempt"] != 1 or facts["share_of_first"] < 0.95:
        raise Wrong(f"the second attempt found {facts}")
    return facts
