"""Stops by the platform: of the whole job or of one host, and what goes wrong meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .fault import ANY, VICTIM, Fault, Truth
from .in_rank import IGNORES, RAISED, SAVE_IN_FAILURE, SAVES, SLOW_SAVE, all_saved, fails, neighbours_saved

if TYPE_CHECKING:
    from .job import Job, Seen

STOPPED = Truth(143, "stopped by the platform on ", kind="stopped", cause="platform", host=ANY)
WORKS = "works()\nrest()\n"
SPOILT = """
import signal

def save(*_):
    if VICTIM:
        raise OSError("no space left for the checkpoint of rank " + RANK)
    os._exit(0)

signal.signal(signal.SIGTERM, save)
"""
SAVING = "def save(*_):\n    mark(('again-' if os.path.exists(FOLDER + '/saving-' + RANK) else 'saving-') + RANK)\n"
TELLS = SAVES.replace("def save(*_):\n", SAVING)
"""Saves, and marks when it begins, and when it is told again."""

TRAPS = """
if "FAULT_TRAPS" not in os.environ:
    os.environ["FAULT_TRAPS"] = "1"
    script = '''term() { kill -TERM "$child"; wait "$child"; exit 0; }
trap term TERM
trap "rm -f lock" EXIT
"$@" & child=$!
wait "$child"
exit $?'''
    os.execvp("bash", ["bash", "-c", script, "bash", sys.executable, *sys.argv])
"""
"""Puts the program behind a shell that passes the signal on, as scripts of containers do."""


def stop(job: Job) -> None:
    job.until_all_work()
    job.strike(job.told("victim") if job.marked("victim") else "")
    job.stop()


def stop_one(job: Job) -> None:
    """As a spot interruption or a pod's eviction does it."""
    job.until_all_work()
    job.strike()
    job.machines.terminate(VICTIM)


def stop_in_a_cut(job: Job) -> None:
    job.until_all_work()
    job.machines.cut(VICTIM, True)
    job.strike()
    job.stop()


def until_saving(job: Job, but: str = "") -> None:
    ranks = [str(rank) for rank in range(job.ranks) if str(rank) != but]
    job.until(lambda: all(job.marked(f"saving-{rank}") for rank in ranks))


def stop_twice(job: Job) -> None:
    """The second time it comes from another side, to every host."""
    stop(job)
    until_saving(job)
    for host in job.hosts:
        job.machines.terminate(host)


def stop_after_failure(job: Job) -> None:
    job.until(lambda: job.marked("struck"))
    until_saving(job, job.told("victim"))
    job.stop()


def was_killed(seen: Seen) -> None:
    assert "had not ended by the end of their grace" in seen.logs


def spoilt(seen: Seen) -> None:
    """The rank that couldn't save is named on its host, and in the log."""
    said = f"OSError: no space left for the checkpoint of rank {seen.rank}"
    assert f"; while it was stopping:\n{said}\nrank " in seen.reason("algo-2"), seen.reason("algo-2")
    assert f"failed while it was stopping: {said}" in seen.logs


def saved_and_left(seen: Seen) -> None:
    all_saved(seen)
    for host in seen.reports:
        assert "leave-due" not in [event["event"] for event in seen.ran.events(host)]


def saved_once(seen: Seen) -> None:
    """No rank was told twice, which would begin its checkpoint anew."""
    all_saved(seen)
    assert not [rank for rank in range(seen.job.ranks) if seen.job.marked(f"again-{rank}")]


OF_STOPS = (
    Fault(
        "spoilt", "the platform stops the job, and a rank can't save", STOPPED, last_line=False,
        body=SPOILT + "works()\nif VICTIM:\n    mark('victim', RANK)\n\nrest()\n", act=stop, apart=True, also=spoilt,
    ),
    Fault(
        "stop", "the platform stops the job, and every rank takes its time to save", STOPPED,
        body=SAVES + WORKS, act=stop, apart=True, also=all_saved, wait=SLOW_SAVE,
    ),
    Fault(
        "stop-ignored", "the platform stops the job, and its ranks ignore that", STOPPED,
        body=IGNORES + WORKS, act=stop, apart=True, options=("--stop-grace", "2"), also=was_killed, wait=2,
    ),
    Fault(
        "stop-twice", "the platform stops the job, and its hosts once more while their ranks save", STOPPED,
        body=TELLS + WORKS, act=stop_twice, apart=True, also=saved_once, wait=SLOW_SAVE, in_cut=False,
    ),
    Fault(
        "stop-traps", "the platform stops the job, and shells before its ranks pass that on", STOPPED,
        body=TRAPS + TELLS + WORKS, act=stop, apart=True, also=saved_once, wait=SLOW_SAVE, in_cut=False,
        without={
            **dict.fromkeys(("mpi", "mpi5", "mpich"), "its ranks have begun with MPI before a shell could be there"),
            **dict.fromkeys(("own", "shell"), "the program's torchrun itself signals the shell and what is below it"),
        },
    ),
    Fault(
        "stop-one", "the platform stops one host (spot, eviction), and every rank takes its time to save",
        STOPPED._replace(lead=f"stopped by the platform on {VICTIM}", host=VICTIM, status="Failed"),
        body=SAVES + WORKS, act=stop_one, also=all_saved, wait=60,
    ),
    Fault(
        "cut-stop", "the platform stops a job whose link is cut", STOPPED,
        body=SAVES + WORKS, act=stop_in_a_cut, apart=True, also=saved_and_left, wait=90,
    ),
    Fault(
        "stop-late", "the platform stops a job in which a rank has raised, while the others save",
        RAISED._replace(status="Stopped"), body=TELLS + fails("raise LookupError('no such shard: 17')"),
        act=stop_after_failure, also=neighbours_saved, wait=SLOW_SAVE, longest_save=SAVE_IN_FAILURE, in_cut=False,
    ),
)  # fmt: skip
