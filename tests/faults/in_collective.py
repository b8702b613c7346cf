"""Faults while the other ranks wait in a collective of their real framework."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from .fault import ANY, BEARS, Fault, Truth
from .in_rank import OWN, SAVE_IN_FAILURE, SAVES, SLOW_SAVE

if TYPE_CHECKING:
    from .job import Seen

NO_MPI = dict.fromkeys(
    ("ranks", "torchrun", "c10d", "deepspeed", "horovod", "tensorflow", "own", "shell"), "its ranks have no MPI"
)
"""Launchers whose ranks have a collective, but none of an MPI."""
AS_RESTARTED = dict.fromkeys(
    ("script", "c10d", "deepspeed", "horovod", "tensorflow", "ps", "own", "shell", "mpi", "mpi5", "mpich"),
    "what follows doesn't depend on the signal: see `restarted`",
)
COMM = "from mpi4py import MPI\nCOMM, FROM = MPI.COMM_WORLD, 3\n"
"""``FROM``: the victim."""
JOINED = "join()\nmeet()\n"
WAITS = "while True:\n    collective()\n"
DOTS = """
import signal, threading

hanging = threading.Event()

def dots():
    while not hanging.wait(0.2):
        print(".", flush=True)

def slow_read():
    time.sleep(600)

threading.Thread(target=dots, daemon=True).start()
"""
"""Until the job hangs it isn't silent, however slowly this machine imports a framework."""
HALT = "os.kill(os.getpid(), signal.SIGSTOP)"
STALL = ("--stall-timeout", "2", "--stop-grace", "1")
SAID = "muster: stalled: no output of any rank for 2 s: "

STALLED = Truth(74, SAID, kind="infra", cause="muster", host=ANY)
"""Under a launcher of the user's own: the ranks are not ours, so that only the launcher's place is known."""
HUNG = Truth(
    74,
    SAID + r".*; rank {rank} is in slow_read at program.py:\d+, asleep\n",
    "exit code 74",
    kind="infra",
    cause="muster",
)
NEIGHBOUR = f"""import signal
NEXT = os.environ["FAULT_VICTIM"].startswith(HOST) and LOCAL == "0"
if NEXT:
{textwrap.indent(SAVES, "    ")}"""
REST = "if NEXT:\n    mark('ready')\n    rest()\n"
SLOW = (
    (
        "raises", "raises", Truth(1, "LookupError: no such shard: 17\n", "exit code 1"), None,
        "raise LookupError('no such shard: 17')",
    ),
    (
        "exits", "ends with `os._exit(7)`", Truth(7, "rank {rank} ", "exit code 7"),
        Truth(7, OWN + "ended with exit code 7\n", "exit code 7"), "os._exit(7)",
    ),
    (
        "killed", "is killed", Truth(137, "rank {rank} ", "killed by SIGKILL", kind="infra"),
        Truth(137, OWN + "was killed by signal 9\n", "killed by SIGKILL", kind="infra"),
        "os.kill(os.getpid(), signal.SIGKILL)",
    ),
)  # fmt: skip


LEAVES = """
    if "horovod" in sys.modules:
        import horovod.torch as hvd
        atexit.register(hvd.shutdown)
"""
"""Where leaving is what the others notice: they fail long before the rank that raised has ended."""
SLEEPS_IN_C = """
import ctypes

def slow_read():
    ctypes.PyDLL(None).sleep(600)
    print("rank", RANK, "was woken", flush=True)
    os._exit(0)
"""
"""A call of C code that keeps Python's lock, and that a signal would end."""
UNNAMED = (
    ("lambda", "a lambda", "sync = lambda: COMM.Barrier()\nsync()\n"),
    ("alias", "an alias of it", "bar = COMM.Barrier\nbar()\n"),
    ("wait", "`Wait` of a request", "done = COMM.Irecv(bytearray(4), source=FROM).Wait\ndone()\n"),
    (
        "waitall", "`Waitall`",
        "done = MPI.Request.Waitall\ndone([COMM.Irecv(bytearray(4), source=FROM) for _ in range(3)])\n",
    ),
    ("comprehension", "a comprehension", "[each() for each in (COMM.Barrier, COMM.Barrier)]\n"),
    ("probe", "`Probe`", "look = COMM.Probe\nlook(source=FROM)\n"),
)  # fmt: skip
"""Ways into a wait of MPI's that no name of a collective on the innermost line tells of."""


ALL_WAIT = "before, hear = (int(RANK) - 1) % COMM.size, COMM.recv\nhear(source=before)\n"
"""Each rank waits for the one before it."""
ALL_STALLED = Truth(
    74, SAID + r"all \d+ ranks wait in a call of its MPI at the same line \(", kind="infra", cause="muster", host=ANY
)


def neighbour_saved(seen: Seen) -> None:
    """The rank beside the victim was no symptom of it, and had its time."""
    assert seen.job.marked(f"saved-{int(seen.rank) - 1}"), seen.logs


AGAIN = """
import ctypes, signal

ATTEMPT = os.environ["MUSTER_ATTEMPT"]
join()
works()
mark(f"attempt-{ATTEMPT}-{RANK}", os.environ["TORCHELASTIC_RESTART_COUNT"])
until(*(f"attempt-{ATTEMPT}-{rank}" for rank in range(int(os.environ["FAULT_RANKS"]))))
if VICTIM and ATTEMPT == "0":
    strike()
    os.kill(os.getpid(), signal.SIGKILL)
while ATTEMPT == "0":
    collective()
    time.sleep(0.2)
collective()
"""


def worked_again(seen: Seen) -> None:
    """All ranks met in both attempts, and knew which one it was."""
    for rank in range(seen.job.ranks):
        count = seen.job.told(f"attempt-1-{rank}")
        assert seen.job.launcher.own or count == "1", f"rank {rank}: TORCHELASTIC_RESTART_COUNT={count}"
    for host in seen.reports:
        assert seen.outcome(host)["attempts"] == 2, seen.outcome(host)
        assert "restart 1 of at most 1, on all hosts: " in seen.job.log(host)


LEFT = Truth(1, "", kind="peer", host=ANY)
"""The ranks that waited fail; it is theirs, but for MPI's, that end the others themselves."""
LEFT_BY_ALL = LEFT._replace(kind="user")
"""Where the rank that left was the only other one, or its MPI says who it was."""


def names_who_left(seen: Seen) -> None:
    """Whichever rank fails first, the reason names the one that it had waited for; torchrun tells us of none."""
    said = rf"rank {seen.rank} .*ended with (exit code )?0\b"
    assert seen.job.launcher.own or re.search(said, seen.reason("algo-1")), seen.reason("algo-1")


LEAVE = """
import atexit, threading

def leave():
    if "torch.distributed" in sys.modules:
        import torch.distributed as dist
        if dist.is_initialized():
            dist.destroy_process_group()
    if "horovod" in sys.modules:
        import horovod.torch as hvd
        hvd.shutdown()
    time.sleep(6)

def theirs(kind, error, traceback):
    print(f"their own hook: {error!r}", file=sys.stderr, flush=True)
"""
"""The others notice the end of a connection, and the rank lives on."""
RAISE = "raise LookupError('no such shard: 17')"
LINGERS = (
    ("atexit", "its exit functions", f"atexit.register(leave)\n    {RAISE}", ()),
    ("thread", "a thread that is no daemon", f"threading.Thread(target=leave).start()\n    {RAISE}", ()),
    (
        "hook", "its exit functions, with a hook of its own for exceptions",
        f"sys.excepthook = theirs\n    atexit.register(leave)\n    {RAISE}", (),
    ),
    (
        "printed", "its exit functions, after it printed its exception itself",
        f"atexit.register(leave)\n    try:\n        {RAISE}\n    except LookupError:\n        import traceback\n"
        "        traceback.print_exc()\n        sys.exit(1)", (),
    ),
    (
        "finally", "a `finally` (`--stall-timeout`)", f"try:\n        {RAISE}\n    finally:\n        leave()",
        ("--stall-timeout", "100"),
    ),
)  # fmt: skip
UNTOLD = dict.fromkeys(
    ("own", "shell"), "its torchrun names the rank that ended first, and what else there is isn't told"
)

IN_COLLECTIVE = (
    Fault(
        "raises-waited", "a rank raises while the others wait for it in a collective",
        Truth(1, "LookupError: no such shard: 17\n", "exit code 1"), collective=True,
        body=f"{JOINED}if VICTIM:\n    strike()\n    raise LookupError('no such shard: 17')\n{WAITS}",
    ),
    Fault(
        "raises-late", "a rank raises while the others wait for it, and its exit functions take 20 s",
        Truth(1, "LookupError: no such shard: 17\n", "exit code 1"), collective=True, in_cut=False, wait=20,
        body=f"{JOINED}if VICTIM:\n    import atexit\n    atexit.register(time.sleep, 20)\n    strike()\n{LEAVES}"
             f"    raise LookupError('no such shard: 17')\n{WAITS}",
    ),
    *(
        Fault(
            f"lingers-{name}", f"a rank raises and leaves, and lives on for 6 s in {about}",
            Truth(1, "LookupError: no such shard: 17\n", "exit code 1"), collective=True, in_cut=False, wait=8,
            options=options, without=UNTOLD,
            body=f"{LEAVE}{JOINED}if VICTIM:\n    strike()\n    {end}\n{WAITS}",
        )
        for name, about, end, options in LINGERS
    ),
    Fault(
        "mpi-abort", "a rank calls `MPI_Abort` while the others wait for it, and would end with 0",
        Truth(7, "", "exit code 7"), collective=True, last_line=False, in_cut=False,
        without=NO_MPI,
        body=f"{JOINED}if VICTIM:\n    from mpi4py import MPI\n    strike()\n    MPI.COMM_WORLD.Abort(7)\n"
             f"    sys.exit(0)\n{WAITS}",
    ),
    Fault(
        "mpi-abort-starved", "a rank calls `MPI_Abort`, and what its MPI started in its place doesn't run meanwhile",
        Truth(7, "", "exit code 7"), collective=True, last_line=False, in_cut=False, without=NO_MPI, wait=8,
        body=f"import signal\n{JOINED}if VICTIM:\n    from mpi4py import MPI\n    strike()\n"
             f"    os.kill(os.getppid(), signal.SIGSTOP)\n    MPI.COMM_WORLD.Abort(7)\n{WAITS}",
    ),
    Fault(
        "leaves-waited", "a rank ends with 0 while the others wait for it in a collective", LEFT, collective=True,
        but=dict.fromkeys(("c10d", "tensorflow", "mpi", "mpi5", "mpich"), LEFT_BY_ALL), also=names_who_left,
        body=f"{JOINED}if VICTIM:\n    strike()\n    os._exit(0)\n{WAITS}", in_cut=False,
    ),
    Fault(
        "killed-waited", "a rank is killed while the others wait for it in a collective",
        Truth(137, "rank {rank} ", "killed by SIGKILL", kind="infra"),
        own=Truth(137, OWN + "was killed by signal 9\n", "killed by SIGKILL", kind="infra"), collective=True,
        body=f"import signal\n{JOINED}if VICTIM:\n    strike()\n    os.kill(os.getpid(), signal.SIGKILL)\n{WAITS}",
    ),
    Fault(
        "restarted", "a rank is killed while the others wait for it, and all start again (`--max-restarts`)", BEARS,
        body=AGAIN, also=worked_again, options=("--max-restarts", "1"),
    ),
    Fault(
        "restarted-segfault", "a rank reads address 0, and all start again (`--max-restarts`)", BEARS,
        body=AGAIN.replace("os.kill(os.getpid(), signal.SIGKILL)", "ctypes.string_at(0)"), also=worked_again,
        options=("--max-restarts", "1"), without=AS_RESTARTED, in_cut=False,
    ),
    *(
        Fault(
            f"slow-{how}", f"a rank {about} while others wait for it, and its neighbour takes its time to save",
            truth, own=own, collective=True, also=neighbour_saved, wait=SLOW_SAVE,
            longest_save=SAVE_IN_FAILURE,
            body=f"{NEIGHBOUR}{JOINED}if VICTIM:\n    until('ready')\n    strike()\n    {end}\n{REST}{WAITS}",
            without={
                **dict.fromkeys(("script", "c10d", "tensorflow"), "its ranks have no neighbour on their host"),
            },
        )
        for how, about, truth, own, end in SLOW
    ),
    Fault(
        "hangs", "a rank never comes to the collective that the others wait in (`--stall-timeout`)",
        HUNG,
        own=STALLED, collective=True, options=STALL, wait=20,
        body=f"{DOTS}{JOINED}hanging.set()\nif VICTIM:\n    strike()\n    slow_read()\n{WAITS}",
    ),
    *(
        Fault(
            f"hangs-{name}", f"a rank sleeps in C, the others wait in MPI by {about} (`--stall-timeout`)",
            HUNG, collective=True, options=STALL, wait=40, in_cut=False, without=NO_MPI,
            body=f"{DOTS}{SLEEPS_IN_C}{JOINED}{COMM}hanging.set()\nif VICTIM:\n    strike()\n"
            f"    slow_read()\n{wait}",
        )
        for name, about, wait in UNNAMED
    ),
    Fault(
        "hangs-all", "every rank waits in MPI for another one, all of them busily (`--stall-timeout`, py-spy)",
        ALL_STALLED,
        collective=True, options=STALL, wait=40, in_cut=False, without=NO_MPI, last_line=False, py_spy=True,
        body=f"{DOTS}{JOINED}{COMM}if VICTIM:\n    strike()\nCOMM.Barrier()\nhanging.set()\n{ALL_WAIT}",
    ),
    Fault(
        "halted", "a rank is stopped by SIGSTOP (`--stall-timeout`)",
        Truth(74, SAID + r".*; rank {rank} is stopped \(SIGSTOP\) ", "exit code 74", kind="infra", cause="muster"),
        own=STALLED, without={"tensorflow": "TensorFlow itself ends a job of which a worker is silent"},
        collective=True, options=STALL, wait=20,
        body=f"{DOTS}{JOINED}hanging.set()\nif VICTIM:\n    strike()\n    {HALT}\n{WAITS}",
    ),
)  # fmt: skip
