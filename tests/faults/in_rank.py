"""Faults inside a rank: each is a few lines that every rank of the job runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .fault import ANY, Fault, Truth
from .harmless import ABORT_LINE

if TYPE_CHECKING:
    from .job import Seen

RANK = "{rank}"
"""In an expected text: the victim's rank."""
OWN = "the program's own torchrun says: its rank {rank} "


def fails(body: str) -> str:
    """The victim does ``body`` when all ranks work; the others go on."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return f"meet()\nif VICTIM:\n    strike()\n{lines}rest()\n"


IGNORES = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""
SAVES = """
import signal

def save(*_):
    time.sleep(float(os.environ["FAULT_SAVE"]))
    print("rank", RANK, "has saved", flush=True)
    mark("saved-" + RANK)
    os._exit(0)

signal.signal(signal.SIGTERM, save)
"""


def all_saved(seen: Seen, but: str = "") -> None:
    """Every rank, but for one that failed, could write its checkpoint."""
    expected = {f"saved-{rank}" for rank in map(str, range(seen.job.ranks)) if rank != but}
    assert {name for name in expected if not seen.job.marked(name)} == set(), "checkpoints that are not there"


def neighbours_saved(seen: Seen) -> None:
    all_saved(seen, seen.rank)


ALIKE = """
import argparse

parser = argparse.ArgumentParser(prog="train.py")
parser.parse_args(["--optimiser", "adam"])
"""
ECHO = """
    raise RuntimeError("the feature store's TCPStore said: connection reset by peer")
time.sleep(1)
raise ValueError("batch 7 is empty")
"""


def the_same_way(seen: Seen) -> None:
    others = (seen.job.launcher.hosts if seen.job.launcher.own else seen.job.ranks) - 1
    said = f"{others} other rank{'s' if others > 1 else ''} failed the same way"
    assert seen.reason("algo-1").endswith(f"\n{said}"), seen.reason("algo-1")


def another_error(seen: Seen) -> None:
    failed = re.search(r"\n(\d+) other ranks? failed with another error$", seen.reason("algo-1"))
    assert failed, seen.reason("algo-1")


RAISED = Truth(1, "LookupError: no such shard: 17\n", "exit code 1")
RAISES = "raise LookupError('no such shard: 17')"


def ends(code: int, how: str, said: str, kind: str = "user") -> dict[str, Any]:
    """What is true of a rank that ends without a word, and what a torchrun of the program's own ``said`` of that."""
    return {name: Truth(code, lead, how, kind=kind) for name, lead in (("truth", "rank {rank} "), ("own", OWN + said))}


SLOW_SAVE = 60.0
"""Seconds: the longest checkpoint of any run of the matrix, and a moment."""
SAVE_IN_FAILURE = 12.0
"""Seconds: longer than launchers wait by themselves, and on a slow machine still within the 30 s that ranks get."""
GROUP = """
class Loader:
    def read(self):
        raise LookupError("no such shard: 17")

try:
    Loader().read()
except LookupError as error:
    raise ExceptionGroup("2 shards can't be read", [error, ValueError("shard 18 is empty")])
"""
BYTES = r"""
text = b"Traceback (most recent call last):\n  File \"program.py\", line 1, in <module>\n    load()\n"
os.write(2, text + b"ValueError: shard 17\xff\xfe is \x00 not \xc3( text\n")
os._exit(1)
"""
NOISE = """
import atexit
atexit.register(lambda: [print("warning: shard", each, "was left open", file=sys.stderr) for each in range(200)])
raise LookupError("no such shard: 17")
"""
CHAINED = """
try:
    {}["shard 17"]
except KeyError as error:
    raise LookupError("no such shard: 17\\nthere are 16 of them") from error
"""
QUOTES = """
import traceback

def work():
    try:
        raise LookupError("no such shard: 17")
    except LookupError:
        return traceback.format_exc()

raise RuntimeError("task 3 failed\\n" + work())
"""
ABORTS = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, resource.RLIM_INFINITY))
os.abort()
"""
BUS = """
import mmap
with open(os.path.join(FOLDER, "mapped"), "w+b") as file:
    file.truncate(1 << 16)
    mapped = mmap.mmap(file.fileno(), 0)
    file.truncate(0)
    mapped[0] = 1
"""
LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
kept = b"x" * (8 << 30)
"""
LAST_MOMENT = """
import atexit
meet()
if VICTIM:
    until(*(f"done-{rank}" for rank in range(int(os.environ["FAULT_RANKS"])) if str(rank) != RANK))
    strike()
    atexit.register(os._exit, 3)
mark("done-" + RANK)
"""
TIMEOUT = """
import faulthandler
faulthandler.dump_traceback_later(0.5, exit=True)
time.sleep(60)
"""
CPP = r"""
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.write(2, b"terminate called after throwing an instance of 'std::runtime_error'\n  what():  no such shard: 17\n")
os.abort()
"""
CHILD = """
import subprocess
subprocess.run([sys.executable, "-c", "raise LookupError('no such shard: 17')"], check=True)
"""
OWN_GROUP = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_DFL)
os.killpg(0, signal.SIGTERM)
time.sleep(9)
"""
SCRATCH = """
import shutil, tempfile
for name in os.listdir(tempfile.gettempdir()):
    path = os.path.join(tempfile.gettempdir(), name)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)
raise LookupError("no such shard: 17")
"""
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    mark("child")
    os.closerange(0, 256)
    os.execve("/bin/sleep", ["sleep", "600"], {})
os.wait()
until("child")
raise LookupError("no such shard: 17")
"""


IN_RANK = (
    Fault(
        "raises", "a rank raises an exception",
        Truth(1, "LookupError: no such shard: 17\n", "exit code 1", ("in load",)),
        body="def load():\n    raise LookupError('no such shard: 17')\n" + fails("load()"),
    ),
    Fault(
        "exits", "a rank ends with `sys.exit(7)`", Truth(7, "rank {rank} ", "exit code 7", ("giving up",)),
        own=Truth(7, OWN + "ended with exit code 7\n", "exit code 7"),
        body=fails("print('giving up', file=sys.stderr)\nsys.exit(7)"),
    ),
    Fault(
        "leaves", "a rank ends with `os._exit(9)`, without a word", body=fails("os._exit(9)"),
        **ends(9, "exit code 9", "ended with exit code 9\n"),
    ),
    Fault(
        "exit-text", "a rank ends with `sys.exit(\"text\")`", Truth(1, "no data for rank {rank}\n", "exit code 1"),
        body=fails("sys.exit('no data for rank ' + RANK)"),
    ),
    Fault(
        "group", "a rank raises an ExceptionGroup",
        Truth(1, r"ExceptionGroup: 2 shards can't be read \(2 sub-exceptions\)", "exit code 1",
              ("LookupError: no such shard: 17",)),
        body=fails(GROUP),
    ),
    Fault(
        "killed", "a rank is killed by SIGKILL", body=fails("import signal\nos.kill(os.getpid(), signal.SIGKILL)"),
        **ends(137, "killed by SIGKILL", "was killed by signal 9\n", "infra"),
    ),
    Fault(
        "segfault", "a rank reads address 0", Truth(139, "Fatal Python error: Segmentation fault", "killed by SIGSEGV"),
        body=fails("import ctypes\nctypes.string_at(0)"),
    ),
    Fault(
        "memory", "the kernel's OOM killer takes a rank, in a cgroup",
        **ends(137, "killed by the kernel's out-of-memory killer", "was killed by signal 9\n", "oom"),
        body=fails(
            "open('/proc/self/oom_score_adj', 'w').write('1000')\nkept = []\n"
            "while True:\n    kept.append(b'x' * (1 << 20))"
        ), memory=800,
    ),
    Fault(
        "aborts", "a rank calls `abort()`", Truth(134, "Fatal Python error: Aborted", "killed by SIGABRT"),
        body=fails(ABORTS), in_cut=False,
    ),
    Fault(
        "bus", "a rank's mapped memory is gone (SIGBUS), as with a full `/dev/shm`",
        Truth(135, "Fatal Python error: Bus error", "killed by SIGBUS"), body=fails(BUS), in_cut=False,
    ),
    Fault(
        "terminated", "somebody sends SIGTERM to one rank",
        **ends(143, "killed by SIGTERM", "was killed by signal 15\n"),
        body=fails("import signal\nos.kill(os.getpid(), signal.SIGTERM)"),
    ),
    Fault(
        "interrupted", "somebody sends SIGINT to one rank", Truth(130, "KeyboardInterrupt", "killed by SIGINT"),
        but=dict.fromkeys(("mpi", "mpi5", "mpich"), Truth(130, "KeyboardInterrupt", "exit code 130")),
        body=fails("import signal\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"), in_cut=False,
    ),
    Fault(
        "limited", "a rank needs more memory than `ulimit -v` gives it",
        Truth(1, "MemoryError\n", "exit code 1", kind="oom"), body=fails(LIMITED), in_cut=False,
    ),
    Fault(
        "exit-true", "a rank ends with `sys.exit(True)`", Truth(1, "the last line of rank {rank}\n", "exit code 1"),
        body=fails("sys.exit(True)"), in_cut=False,
    ),
    Fault("noise", "a rank raises an exception, and prints 200 warnings when it exits", RAISED, body=fails(NOISE)),
    Fault(
        "chained", "a rank raises an exception of two lines that has a cause",
        Truth(1, "LookupError: no such shard: 17\nthere are 16 of them\n", "exit code 1"), body=fails(CHAINED),
        in_cut=False,
    ),
    Fault(
        "quotes", "a rank raises an exception whose text is a worker's traceback",
        Truth(1, "RuntimeError: task 3 failed\nLookupError: no such shard: 17\n", "exit code 1"), body=fails(QUOTES),
        own=Truth(1, "RuntimeError: task 3 failed\n", "exit code 1"),
        in_cut=False,
    ),
    Fault(
        "last-moment", "a rank fails in the last moment of its exit, when all others are done",
        Truth(3, "", "exit code 3"), body=LAST_MOMENT, in_cut=False,
        wait=30,  # a torchrun of the program's own on the other host is in its exit barrier, and deaf to SIGTERM
    ),
    Fault(
        "import", "a rank's import fails, while others still start",
        Truth(1, "ModuleNotFoundError: No module named 'no_such_module'\n", "exit code 1", ("import no_such_module",)),
        body="if VICTIM:\n    works()\n    strike()\n    import no_such_module\nworks()\nrest()\n",
    ),
    Fault(
        "grandchild", "a rank ends and leaves a child that ignores SIGTERM", Truth(3, "", "exit code 3"),
        body=fails(
            "import signal\nif os.fork() == 0:\n    os.setsid()\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "    mark('child')\n    rest()\nuntil('child')\nsys.exit(3)"
        ),
    ),
    Fault(
        "timeout", "a rank's `faulthandler.dump_traceback_later` ends it",
        Truth(1, r"Timeout \(0:00:00\.500000\)!\n", "exit code 1", ("in <module>",)), body=fails(TIMEOUT), in_cut=False,
    ),
    Fault(
        "cpp", "a C++ exception that nobody catches ends a rank",
        Truth(134, "std::runtime_error: no such shard: 17\n", "killed by SIGABRT"), body=fails(CPP), in_cut=False,
    ),
    Fault(
        "child", "a program that a rank runs raises, and the rank over that", RAISED, body=fails(CHILD), in_cut=False,
    ),
    Fault(
        "own-group", "a rank sends SIGTERM to its own process group", body=fails(OWN_GROUP), in_cut=False,
        **ends(143, "killed by SIGTERM", "was killed by signal 15\n"),
    ),
    Fault(
        "scratch", "a rank removes everything in its host's directory of temporary files, then raises", RAISED,
        body=fails(SCRATCH), in_cut=False,
    ),
    Fault(
        "daemon", "a rank leaves a daemon without its variables and files that ignores SIGTERM, then raises", RAISED,
        body=fails(DAEMON), in_cut=False,
    ),
    Fault(
        "closed", "a rank closes its output, then raises",
        Truth(1, "(LookupError: no such shard: 17\n|(the last line of )?rank {rank})", "exit code 1"),
        own=Truth(1, rf"(rank \d works\n|the last line of rank {RANK}\n)*{OWN}ended with exit code 1\n", "exit code 1"),
        body=fails(f"os.close(1)\nos.close(2)\n{RAISES}"),
    ),
    Fault(
        "flood", "a rank writes 20 MB without a newline, then raises", RAISED,
        body=fails(f"os.write(1, b'x' * 20_000_000)\n{RAISES}"),
    ),
    Fault(
        "long-text", "a rank raises an exception with a text of 5 MB",
        Truth(1, "LookupError: no such shard: 17 xxx", "exit code 1"),
        body=fails("raise LookupError('no such shard: 17 ' + 'x' * 5_000_000)"),
    ),
    Fault(
        "bytes", "a rank's last words have NUL bytes and broken UTF-8",
        Truth(1, "ValueError: shard 17", "exit code 1", ("not",)), body=fails(BYTES),
    ),
    Fault(
        "quotes-abort", "a rank prints what MPICH says of an `MPI_Abort`, then raises", RAISED,
        body=fails(ABORT_LINE + RAISES), in_cut=False,
    ),
    Fault(
        "ignores", "a rank raises, and the others ignore SIGTERM", RAISED, body=IGNORES + fails(RAISES),
        options=("--stop-grace", "2"), wait=2,
    ),
    Fault(
        "all", "all ranks fail at once, each with another code", Truth(None, "rank {rank} ", "exit code {code}"),
        own=Truth(None, OWN + r"ended with exit code \d+\n", "exit code {code}"),
        body="meet()\nif VICTIM:\n    strike()\nsys.exit(10 + int(RANK))\n",
    ),
    Fault(
        "neighbour", "a rank raises, and the others take their time to save", RAISED, body=SAVES + fails(RAISES),
        also=neighbours_saved, wait=SLOW_SAVE, longest_save=SAVE_IN_FAILURE,
    ),
    Fault(
        "alike", "all ranks fail for the same wrong argument",
        Truth(2, "train.py: error: unrecognized arguments: --optimiser adam\n", "exit code 2", host=ANY),
        body=IGNORES + "meet()\nif VICTIM:\n    strike()\n" + ALIKE, also=the_same_way, last_line=False,
    ),
    Fault(
        "echo", "a rank raises what sounds like a lost peer, and another fails after it",
        Truth(1, "RuntimeError: the feature store's TCPStore said: connection reset by peer\n", "exit code 1"),
        body=IGNORES + "meet()\nif VICTIM:\n    strike()\n" + ECHO, also=another_error,
        without=dict.fromkeys(("own", "shell"), "its torchrun waits for the rank beside it: all fail at once"),
    ),
)  # fmt: skip
