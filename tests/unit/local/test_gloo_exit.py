"""The end of a program whose gloo threads still have something to give back, with what muster local puts before it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from musterpoint.local.host_environment import PATCHES

from ..running import result_of

# A thread that is called as gloo's are, and is busy without the GIL, then needs it, over and over.
BUSY = """
import hashlib, os, sys, threading
def work():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
        file.write("pt_gloo_runloop")
    named.set()
    while True:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 50_000)
        rounds.append(1)
        if len(rounds) == ROUNDS:
            os.write(1, b"done\\n")
            forever.wait()
rounds, named, forever = [], threading.Event(), threading.Event()
threading.Thread(target=work, daemon=True).start()
named.wait()
"""
# Both ranks of two are in one process. Collectives end one after the other, long after the program's last line.
COLLECTIVES = """
import datetime, threading
import torch, torch.distributed as dist
def join(rank):
    groups[rank] = dist.ProcessGroupGloo(store, rank, 2, datetime.timedelta(seconds=120))
store, groups = dist.HashStore(), {}
joining = [threading.Thread(target=join, args=(rank,)) for rank in (0, 1)]
for thread in joining:
    thread.start()
for thread in joining:
    thread.join()
tensors = [(torch.ones(1 << 19), torch.ones(1 << 19)) for _ in range(40)]
for first, second in tensors:
    groups[0].allreduce([first])
    groups[1].allreduce([second])
print("through", flush=True)
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="threads have no names elsewhere")


def patient(code: str, longest: float = 240) -> str:
    """``code`` with this limit of the wait; how long it has to be says how busy the machine is."""
    return f"import muster_gloo_exit\nmuster_gloo_exit.LONGEST = {longest}\n{code}"


def run(environ: dict[str, str], code: str) -> subprocess.CompletedProcess[str]:
    return result_of([sys.executable, "-c", code], {**environ, "PYTHONPATH": PATCHES, "OMP_NUM_THREADS": "1"})


@linux
@pytest.mark.parametrize(("rounds", "longest", "said"), [(20, 240, "done\n"), (-1, 0.2, "")], ids=["rests", "never"])
def test_python_ends_when_gloos_threads_are_at_rest(
    environ: dict[str, str], rounds: int, longest: float, said: str
) -> None:
    """And doesn't wait forever for one that never rests."""
    done = run(environ, patient(BUSY.replace("ROUNDS", str(rounds)) + "sys.modules['torch'] = sys", longest))
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


@linux
@pytest.mark.parametrize(("before", "said"), [("", "own\n"), ("sys.modules['torch'] = sys\n", "own\nlooked\n")])
def test_it_comes_after_the_programs_own_exit_functions_and_with_torch_only(
    environ: dict[str, str], before: str, said: str
) -> None:
    code = f"import atexit, muster_gloo_exit, sys\n{before}"
    code += "muster_gloo_exit.threads = lambda: print('looked')\natexit.register(print, 'own')\n"
    assert run(environ, code).stdout == said


@pytest.mark.torch
def test_collectives_that_end_with_the_program_do_not_abort_it(environ: dict[str, str]) -> None:
    for _ in range(2):
        done = run(environ, patient(COLLECTIVES))
        assert (done.returncode, done.stdout) == (0, "through\n"), done.stderr
