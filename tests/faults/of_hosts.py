"""Faults of hosts, of the network between them, and of what is around a job: caused from outside."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from .fault import ANY, BEARS, VICTIM, Act, Fault, Hosts, Truth
from .in_rank import fails
from .namespaces import Namespaces

if TYPE_CHECKING:
    from .job import Job, Seen

LEADER = "algo-1"
TRAINS = (
    "join()\nworks()\nwhile not os.path.exists(os.path.join(FOLDER, 'end')):\n    collective()\n    time.sleep(0.2)\n"
)
"""Trains until the test says that it is over."""
WORKS = "works()\nuntil('end')\n"
SILENT = 15.0
"""Seconds of silence that make a host silent."""


def lost(host: str) -> Truth:
    return Truth(76, f"muster: host {host} was lost: ", kind="infra", cause="host", host=host)


def others(host: str) -> tuple[str, ...]:
    return (VICTIM,) if host == LEADER else (LEADER,)


def kill(host: str, whole: bool) -> Act:
    """An act: kills the host, or its supervisor alone; a script job, which goes on, is ended when it has said so."""

    def act(job: Job) -> None:
        job.until_all_work()
        job.strike()
        if whole:
            job.machines.power_off(host)
        else:
            job.machines.kill_entry_point(host)
        if job.fault.expected(job.launcher.name, job.launcher.own).code == 0:
            (other,) = others(host)
            job.until(lambda: f"warning: {host} is lost" in job.log(other))
            job.mark("end")

    return act


def cut(job: Job) -> None:
    """The second host's link is cut, and stays so."""
    job.until_all_work()
    job.strike()
    job.machines.cut(VICTIM, True)
    if job.fault.expected(job.launcher.name, job.launcher.own).code == 0:
        job.until(lambda: f"warning: {VICTIM} is lost" in job.log(LEADER))
        job.mark("end")


def cut_and_mended(job: Job) -> None:
    job.until_all_work()
    job.strike()
    job.machines.cut(VICTIM, True)
    time.sleep(job.long)
    job.until(lambda: "no word from" in job.log(LEADER) + job.log(VICTIM))
    job.machines.cut(VICTIM, False)
    job.until(lambda: "is back" in job.log(LEADER) + job.log(VICTIM))
    job.mark("end")


def frozen_and_thawed(host: str) -> Act:
    """An act: every process of the host stands still for a while."""

    def act(job: Job) -> None:
        (other,) = others(host)
        job.until_all_work()
        job.strike()
        job.machines.freeze(host)
        time.sleep(job.long)
        job.until(lambda: f"no word from {host}" in job.log(other))
        job.machines.thaw(host)
        job.until(lambda: "is back" in job.log(LEADER) + job.log(VICTIM))
        job.mark("end")

    return act


def frozen_while(frozen: str, failing: str) -> Act:
    """An act: one host stands still when a rank on the other fails; thawed when the other has reported."""

    def act(job: Job) -> None:
        job.until_all_work()
        job.machines.freeze(frozen)
        try:
            job.mark("go")
            job.until((job.local.output / "hosts" / failing / "opt/ml/output/timeline.json").exists)
        finally:
            job.machines.thaw(frozen)

    return act


def left_for_silence(seen: Seen) -> None:
    """It left because the other host was silent, not at the last moment."""
    (host,) = seen.reports
    assert "leave-due" not in [event["event"] for event in seen.ran.events(host)]


def kill_launcher(job: Job) -> None:
    job.until_all_work()
    assert isinstance(job.machines, Namespaces)
    pid = job.machines.launched(LEADER, job.launcher.program)
    job.strike()
    os.kill(pid, signal.SIGKILL)


def each_the_other(seen: Seen) -> None:
    """Each host names the one that it could not reach."""
    assert [seen.outcome(host)["host"] for host in seen.job.hosts] == [VICTIM, LEADER]


def arrive_late(job: Job) -> None:
    job.until(lambda: f"waiting for {VICTIM}" in job.log(LEADER))
    job.mark("late")
    job.until_all_work()
    job.strike()
    job.mark("end")


def says_what_is_wrong(seen: Seen) -> None:
    """The host that can't find the leader says so; the leader can only say who is missing."""
    assert f"{LEADER}  name     the name does not resolve" in seen.reason(VICTIM)
    assert VICTIM in seen.reason(LEADER)


def never_arrive(job: Job) -> None:
    """It comes when the others have given up."""
    job.until((job.local.output / "hosts" / LEADER / "opt/ml/output/outcome.json").exists)
    job.strike()
    job.mark("late")


def fill(job: Job) -> None:
    """The logs are on that disk, too, so that what was said before must be there first."""
    job.until(lambda: any("the last line of rank" in job.log(host) for host in job.hosts))
    job.mark("go")


def no_archive(seen: Seen) -> None:
    """What could not be kept is said; what was reserved for the report is used up."""
    assert "model.tar.gz can't be written: No space left on device" in seen.ran.stderr, seen.ran.stderr
    assert "internal error" not in seen.ran.stderr
    assert not list((seen.ran.output / "hosts").glob("*/opt/ml/output/.*.reserved"))


FILLS = """
until("go")
with open(os.path.join(os.environ["SM_MODEL_DIR"], "fill-" + RANK), "wb", buffering=0) as fill:
    try:
        while True:
            fill.write(bytes(4096))
    except OSError:
        pass
"""
TALKS = "os.write(1, (b'x' * 999 + b'\\n') * 3000)\n"
BLOCKED = f"""
meet()
if HOST != {LEADER!r}:
    until("struck")
    while True:
        {TALKS}
if VICTIM:
    strike()
    time.sleep(0.5)  # the others are blocked then; if they aren't yet, it is the same
    raise LookupError("no such shard: 17")
rest()
"""
GOES = "works()\nif VICTIM:\n    until('go')\n    strike()\n    raise LookupError('no such shard: 17')\nrest()\n"
FAILED = Truth(1, "LookupError: no such shard: 17\n", "exit code 1")
SCRIPTS = {"script": BEARS}

OF_HOSTS = (
    *(
        Fault(
            f"{what}-{role}", f"{about} on the {role}", lost(host), but=SCRIPTS, survivors=others(host), body=TRAINS,
            act=kill(host, whole), wait=15,
        )
        for what, about, whole in (
            ("supervisor", "the entry point is killed by SIGKILL", False), ("power", "the whole host is gone", True)
        )
        for role, host in (("leader", LEADER), ("worker", VICTIM))
    ),
    Fault(
        "cut", "a host's link is cut for good (`--silence-timeout 20`)",
        Truth(76, f"muster: hosts {LEADER} and {VICTIM} lost each other: ", kind="infra", cause="host", host=ANY),
        but=SCRIPTS, body=TRAINS, act=cut, apart=True, options=("--silence-timeout", "20"), wait=90,
        in_cut=False,
        without=dict.fromkeys(("own", "shell"), "its ranks' own collectives decide when to give up: cut-timeout"),
    ),
    Fault(
        "cut-timeout", "a host's link is cut for good, and the ranks' collectives time out",
        Truth(76, f"muster: hosts {LEADER} and {VICTIM} lost each other: ", kind="infra", cause="host", host=ANY),
        body=TRAINS, act=cut, environ={"FAULT_TIMEOUT": "12"}, wait=90, also=each_the_other, collective=True,
        apart=True,
        without=dict.fromkeys(("mpi", "mpi5", "mpich", "horovod", "tensorflow"), "its collectives have no timeout"),
    ),
    Fault(
        "launcher", "the program that started the ranks is killed on the leader",
        Truth(72, "muster: .* ended while its ranks were running ", words=("SIGKILL",), kind="infra", cause="muster",
              host=LEADER),
        body="works()\nrest()\n", act=kill_launcher,
        without={
            **dict.fromkeys(("script", "ranks", "horovod", "tensorflow", "ps"), "musterpoint itself starts its ranks"),
            **dict.fromkeys(("own", "shell"), "it is the user's program, which ends as any other does: killed-script"),
        },
    ),
    Fault(
        "cut-mended", "a host's link is cut for a minute", BEARS, body=WORKS, act=cut_and_mended, wait=150,
        without={"mpich": "MPICH's network layer (UCX) takes a peer that it can't reach for a minute for lost"},
    ),
    Fault(
        "frozen", "a host stands still for a minute, then goes on", BEARS, body=WORKS,
        act=frozen_and_thawed(VICTIM), wait=150,
    ),
    Fault(
        "frozen-first", "the leader stands still for a minute, then goes on", BEARS, body=WORKS,
        act=frozen_and_thawed(LEADER), wait=150, in_cut=False,
    ),
    Fault(
        "frozen-worker", "a rank fails while the other host stands still", FAILED._replace(host=LEADER), body=GOES,
        act=frozen_while(VICTIM, LEADER), victim=LEADER, survivors=(LEADER,), also=left_for_silence, wait=30,
    ),
    Fault(
        "frozen-leader", "a rank fails while the leader stands still", FAILED, body=GOES,
        act=frozen_while(LEADER, VICTIM), survivors=(VICTIM,), also=left_for_silence, wait=30,
    ),
    Fault(
        "unnamed", "the leader's name never resolves on a host (`--rollcall-timeout 4`)",
        Truth(69, "muster: ", kind="infra", cause="muster", host=ANY), apart=True,
        body="works()\n", options=("--rollcall-timeout", "4"), hosts=Hosts(unnamed=True), wait=30,
        also=says_what_is_wrong,
    ),
    Fault(
        "absent", "a host never arrives (`--rollcall-timeout 4`)",
        Truth(69, "muster: ", words=(VICTIM,), kind="infra", cause="muster", host=ANY), survivors=(LEADER,),
        body="works()\n", options=("--rollcall-timeout", "4"), hosts=Hosts(late=True), act=never_arrive, wait=30,
    ),
    Fault("late", "a host arrives late", BEARS, body=WORKS, hosts=Hosts(late=True), act=arrive_late, wait=10),
    Fault(
        "disk", "a rank fills the disk, then raises", FAILED, hosts=Hosts(disk=True), also=no_archive, act=fill,
        body=fails(FILLS + "raise LookupError('no such shard: 17')"),
    ),
    Fault(
        "reader-gone", "the reader of a host's output has gone, and a rank writes 3 MB and raises", FAILED,
        body=fails(TALKS + "raise LookupError('no such shard: 17')"), hosts=Hosts(output="gone"),
        last_line=False,
    ),
    Fault(
        "never-read", "a rank's writes block because nobody reads its host's output, and a rank elsewhere raises",
        FAILED._replace(host=LEADER), body=BLOCKED, hosts=Hosts(output="unread"), victim=LEADER,
    ),
)  # fmt: skip
