"""What dead launchers leave behind, in a process of its own that adopts it."""

from __future__ import annotations

import subprocess
import sys

import pytest

LAUNCHER = """
import os, signal, sys, time

from musterpoint.loop import Loop
from musterpoint.processes import tree
from musterpoint.processes.orphans import Orphans

tree.adopt_orphans()
read, write = os.pipe()
seen, look = os.pipe()

def rank(handler):
    signal.signal(signal.SIGTERM, handler)
    os.write(write, b".")
    while True:
        while True:
            time.sleep(0.05)

def dies(signo, frame):
    os.read(seen, 1)
    os._exit(1)

def saves(signo, frame):
    os.read(seen, 1)
    os.write(1, b"saved\\n")
    os._exit(0)

launcher = os.fork()
if launcher == 0:
    if os.fork() == 0:
        rank({"saves": saves, "dies": dies, "ignores": signal.SIG_IGN}[sys.argv[1]])
    os._exit(1)  # the launcher dies and leaves its rank behind
os.read(read, 1)
os.waitpid(launcher, 0)

loop = Loop()
left = Orphans(loop, loop.stop)
first = left.tell([], signal.SIGTERM)
print("waits" if first else "does not wait", flush=True)
os.write(look, b".")
if first:
    loop.call_later(50, lambda: os._exit(9))
    loop.run()
    print("waits" if left.tell([], signal.SIGTERM) else "over", flush=True)
left.close()
loop.close()
tree.kill_below(os.getpid())
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("saves", [["waits", "saved", "over"]]),
        ("dies", [["waits", "over"]]),
        ("ignores", [["does not wait"]]),
    ],
)
def test_it_is_told_once_and_waited_for(how: str, said: list[list[str]], environ: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, how], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] in said


KNOWN = """
import os, signal, subprocess, sys

from musterpoint.loop import Loop
from musterpoint.processes.orphans import Orphans

child = subprocess.Popen(["sleep", "600"])
left = Orphans(Loop(), lambda: None)
print(left.tell([child.pid], signal.SIGTERM), child.poll())
child.kill()
child.wait()
"""


def test_children_that_somebody_knows_are_let_be(environ: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KNOWN], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "False None\n", done.stderr
