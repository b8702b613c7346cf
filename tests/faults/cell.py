"""Runs one cell of the matrix and checks everything that must be true whatever the fault and the launcher."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Iterator, NamedTuple

from ..hosts.conftest import end, survivors
from .fault import ANY, Cell, Truth
from .job import Job, Seen, Stacks, Times, memory_group, queue

LONGEST = 900
"""Bytes of a failure reason."""
PATIENCE = 20.0
"""Seconds that any end may take on a machine loaded to twice its processors, whatever it takes on an idle one."""
SLOWER = 5.0
"""How much longer than this job's own launch, under the same load, its end may take."""
OTHERS_MAY_TELL = 35.0
"""Seconds that other hosts have to tell of a better cause where a program's own torchrun only says which rank ended."""
CACHES = r"scratch/torchinductor_\w+$"
"""Directories that frameworks keep for their next run."""
MIB = 1 << 20


class Result(NamedTuple):
    """What came of a cell.

    ``wrong``: what was not as it must be, a sentence each; empty: all was.
    ``launched``, ``ended``: seconds until the fault, and from there to the job's end.
    ``code``, ``lead``: the job's exit code and the first line of its reason.
    ``log``: the hosts' logs, if something was wrong.
    """

    wrong: tuple[str, ...]
    launched: float = 0.0
    ended: float = 0.0
    code: int = 0
    lead: str = ""
    log: str = ""


def run(cell: Cell, folder: Path, environ: dict[str, str], stacks: Stacks, times: Times) -> Result:
    """Runs ``cell`` in ``folder``, an empty directory, with nothing of it left running when this returns.

    ``environ``: the variables of the caller without any platform's. ``stacks`` says where frameworks are.
    """
    job = Job(cell, folder, environ, stacks, times)
    with places(job):
        try:
            job.start()
            if job.fault.act is not None:
                job.fault.act(job)
            seen = job.finish()
            return judge(seen)
        except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as error:
            said = f"{type(error).__name__}: {error}"
            return Result((said[:4000],), log="".join(map(job.log, job.hosts)))
        finally:
            end(job.local.started)
            job.machines.close()


@contextlib.contextmanager
def places(job: Job) -> Iterator[None]:
    """The disk and the memory cgroup that the fault needs, for as long as the job runs."""
    with contextlib.ExitStack() as stack:
        if job.fault.hosts.disk:
            disk = job.folder / "disk"
            disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=True)
            stack.callback(subprocess.run, ["umount", "-l", str(disk)], check=True)
            job.local.output = disk / "job"
        if job.fault.memory and not job.launcher.image:
            job.group = memory_group(job.fault.memory * MIB)
            stack.callback(remove, job.group)
        yield


def remove(group: Path) -> None:
    """Removes a cgroup, whose last processes may take a moment to vanish."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)
    group.rmdir()


def judge(seen: Seen) -> Result:
    """Every check on a job that is over."""
    fault, launcher = seen.job.fault, seen.job.launcher
    truth = fault.expected(launcher.name, launcher.own)
    wrong: list[str] = []
    for check in (told, agreed, nothing_left, in_time, last_line):
        with noting(wrong):
            wrong += check(seen, truth)
    if fault.also is not None:
        with noting(wrong):
            fault.also(seen)
    first = seen.reports[0]
    outcome = json.loads(seen.ran.left(first, "outcome.json")) if not wrong else {}
    lead = str(outcome.get("reason", "")).partition("\n")[0]
    log = "" if not wrong else seen.ran.stderr[-6000:] + seen.logs[-12000:]
    took = seen.ended - seen.struck
    return Result(tuple(wrong), seen.launching, took, outcome.get("code", -1), lead, log)


@contextlib.contextmanager
def noting(wrong: list[str]) -> Iterator[None]:
    """An error while something is looked at is something wrong."""
    try:
        yield
    except (AssertionError, OSError, ValueError, KeyError) as error:
        wrong.append(f"{type(error).__name__}: {error}"[:3000])


def told(seen: Seen, truth: Truth) -> list[str]:
    """Code, culprit, class and words on every host that reports."""
    wrong = []
    for host in seen.reports:
        outcome = seen.outcome(host)
        reason = outcome["reason"]
        code = truth.code if truth.code is not None else code_of_rank(outcome["rank"])
        anyone = truth.code is None or truth.host == ANY
        rank = outcome["rank"] if anyone or not seen.rank else int(seen.rank)
        place = outcome["host"] if anyone else truth.host or seen.job.fault.victim
        expected = {"code": code, "class": truth.kind, "cause": truth.cause, "host": place}
        if truth.how:
            expected["rank"] = rank
            who = f"rank {rank} (local rank {int(rank) % seen.job.launcher.slots}) on {place}, {truth.how}"
            if who.replace("{code}", str(code)) not in reason:
                wrong.append(f"{host}: the reason doesn't say {who!r}: {reason!r}")
        if not code:
            expected = {"code": 0, "class": "done", "cause": truth.cause}
        found = {key: outcome[key] for key in expected}
        if found != expected:
            wrong.append(f"{host}: outcome.json says {found}, expected {expected}; reason: {reason!r}")
        lead = truth.lead.replace("{rank}", str(rank))
        if lead and not re.match(lead, reason):
            wrong.append(f"{host}: the reason doesn't begin with {lead!r}: {reason!r}")
        wrong += [f"{host}: no {word!r} in the reason: {reason!r}" for word in truth.words if word not in reason]
        if seen.code(host) != code:
            wrong.append(f"{host}: its entry point ended with {seen.code(host)}, expected {code}")
    described = seen.ran.job
    status = truth.status or {"stopped": "Stopped", "done": "Completed"}.get(truth.kind, "Failed")
    whole = len(seen.reports) == len(seen.job.hosts)
    if whole and (described["TrainingJobStatus"], described["ExitCode"], seen.ran.code) != (status, code, code):
        found = {key: described[key] for key in ("TrainingJobStatus", "ExitCode")}
        wrong.append(f"job.json says {found}, the command ended with {seen.ran.code}; expected {status} and {code}")
    return wrong


def agreed(seen: Seen, truth: Truth) -> list[str]:
    """One reason on all hosts that report, in outcome.json and the failure file; none after a stop."""
    reasons = {host: seen.reason(host) for host in seen.reports}
    wrong = []
    if len(set(reasons.values())) > 1 and not seen.job.fault.apart:
        wrong.append(f"the hosts give different reasons: {reasons}")
    failed = truth.kind not in ("stopped", "done")
    for host, reason in reasons.items():
        file = seen.job.local.output / "hosts" / host / "opt/ml/output/failure"
        if not failed and file.exists():
            wrong.append(f"{host} has a failure file, though nothing failed: {file.read_text()!r}")
        if truth.kind == "done" and (file.parent / "success").read_text():
            wrong.append(f"{host}: its file success has a text")
        if failed and file.read_text().strip() != reason.strip():
            wrong.append(f"{host}: the failure file says {file.read_text()!r}, outcome.json {reason!r}")
        if len(reason.encode()) > LONGEST:
            wrong.append(f"{host}: a reason of {len(reason.encode())} bytes")
    return wrong


def nothing_left(seen: Seen, truth: Truth) -> list[str]:
    """No process, file lock, shared memory, mount or temporary file; nothing set aside."""
    wrong = [f"still running: {words}" for words in survivors(seen.job.local.token)]
    for host in seen.job.hosts:
        wrong += [f"left on {host}: {line}" for line in seen.job.machines.left(host, host not in seen.reports)]
        output = seen.job.local.output / "hosts" / host / "opt/ml/output"
        wrong += [f"left on {host}: {path}" for path in output.glob(".*") if host in seen.reports]
    mounts = Path("/proc/self/mountinfo").read_text()
    wrong += [f"still mounted: {line}" for line in mounts.splitlines() if f"{seen.job.folder}/job" in line]
    if len(seen.reports) == len(seen.job.hosts):
        wrong += [f"temporary file: {path}" for path in (seen.job.folder / "scratch").iterdir()]
    allowed = "|".join(filter(None, (CACHES, seen.job.launcher.leaves)))
    return [line for line in wrong if not re.search(allowed, line)]


def in_time(seen: Seen, truth: Truth) -> list[str]:
    """What the fault takes by itself, and what an end takes on a machine with this load."""
    waits = seen.job.fault.wait + (OTHERS_MAY_TELL if seen.job.launcher.own else 0.0)
    took, bound = seen.ended - seen.struck, waits + PATIENCE * queue() + SLOWER * seen.launching
    return [f"the job ended {took:.1f} s after the fault, expected at most {bound:.1f} s"] if took > bound else []


COMPLAINS = re.compile(r"-{9}|={9}|mpirun|mpiexec|prterun|torch\.distributed\.elastic|[WE]\d{4} .*torch/distributed")
"""How the last lines of launchers begin when a job has failed."""


def last_line(seen: Seen, truth: Truth) -> list[str]:
    """The last line that the victim printed before the fault; the very last one is ours, not a launcher's."""
    line = f"the last line of rank {seen.rank}"
    wrong = []
    if seen.rank and seen.job.fault.last_line and line not in seen.logs:
        wrong.append(f"the log doesn't have {line!r}")
    log = seen.job.log(seen.reports[0]).splitlines()
    if log and truth.kind != "done" and not seen.job.launcher.own and COMPLAINS.match(log[-1]):
        wrong.append(f"the last word is the launcher's: {log[-1]!r}")
    return wrong


def code_of_rank(rank: int) -> int:
    """What each rank ends with where all fail at once, each with another code."""
    return 10 + int(rank)
