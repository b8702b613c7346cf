"""Programs that get the signal to end once, whatever their shells and launchers do, and orphans among them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from musterpoint.base.loop import READ, Loop
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.signal_once import SignalOnce

from ...running import result_of

LAUNCHER = """
import os, signal, sys, time

from musterpoint.base.loop import Loop
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.signal_once import SignalOnce

process_tree.adopt_orphans()
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

def becomes_a_program(signo, frame):
    os.read(seen, 1)
    os.execv("/bin/sleep", ["sleep", "600"])

launcher = os.fork()
if launcher == 0:
    if os.fork() == 0:
        rank({"ignores": signal.SIG_IGN}.get(sys.argv[1]) or globals()[sys.argv[1]])
    os._exit(1)  # the launcher dies and leaves its rank behind
os.read(read, 1)
os.waitpid(launcher, 0)

loop = Loop()
left = SignalOnce(loop, loop.stop)
first = left.signal_orphans([], signal.SIGTERM, loop.clock())
print("waits" if first else "does not wait", flush=True)
os.write(look, b".")
if first:
    loop.call_later(50, lambda: os._exit(9))
    loop.run()
    print("waits" if left.signal_orphans([], signal.SIGTERM, loop.clock()) else "over", flush=True)
left.close()
loop.close()
process_tree.kill_below(os.getpid())
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("saves", [["waits", "saved", "over"]]),
        ("dies", [["waits", "over"]]),
        ("becomes_a_program", [["waits", "over"]]),  # as a shell's copy whose handler the signal meets
        ("ignores", [["does not wait"]]),
    ],
)
def test_an_orphan_is_signalled_once_and_waited_for(how: str, said: list[list[str]], environ: dict[str, str]) -> None:
    done = result_of([sys.executable, "-c", LAUNCHER, how], environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] in said


KNOWN = """
import os, signal, subprocess, sys

from musterpoint.base.loop import Loop
from musterpoint.core.processes.signal_once import SignalOnce

child = subprocess.Popen(["sleep", "600"])
left = SignalOnce(Loop())
print(left.signal_orphans([child.pid], signal.SIGTERM, 0.0), child.poll())
child.kill()
child.wait()
"""


def test_known_children_are_no_orphans(environ: dict[str, str]) -> None:
    done = result_of([sys.executable, "-c", KNOWN], environ)
    assert done.stdout == "False None\n", done.stderr


TOLD = """
import os, signal, sys, time
def told(signo, frame):
    print("told", flush=True)
    time.sleep(0.2)  # a second signal would come now
    print("saved", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, told)
print("ready", flush=True)
while True:
    time.sleep(600)
"""
SHELLS = {
    "a program": '"$@"',
    "that is not the last": '"$@"; exit $?',
    "with a trap at the end": 'trap "echo cleaned" EXIT; "$@"; exit $?',
    "with a trap that ends": 'trap "echo cleaned; exit 7" TERM; "$@" & wait',
    "that passes it on": "trap 'kill -TERM $child; wait $child; exit 7' TERM; \"$@\" & child=$!; wait $child; exit $?",
    "that passes it on to all": 'trap "trap - TERM; kill 0" EXIT; "$@"; exit $?',
    "that reads it": 'trap "sleep 0.2; echo cleaned" EXIT; while read -r line; do echo "$line"; done < <("$@")',
    "that reads it without a trap": 'while read -r line; do echo "$line"; done < <("$@"); echo next',
    "that asks for its code": '"$@"; echo "next $?"',
    "that acts on an error": '"$@" || echo next; echo next',
    "with a helper beside it": 'sleep 600 & "$@" & wait -n; kill $! %1; echo next',
    "with a reader that the script waits for": '"$@" | cat; echo next',
    "in a shell": 'bash -c \'trap "echo cleaned" EXIT; "$@"; exit $?\' inner "$@"; exit $?',
}


def send(process: subprocess.Popen[Any]) -> str | bytes:
    """Tells a process to end, once, until it has; what it printed then."""
    loop = Loop()
    once = SignalOnce(loop)
    once.send(process.pid, signal.SIGTERM)
    end = os.pidfd_open(process.pid)
    loop.watch(end, READ, lambda _ready: loop.stop())
    loop.run()
    assert process.stdout is not None
    said: str | bytes = process.stdout.read()
    once.close()
    loop.forget(end)
    os.close(end)
    loop.close()
    return said


@pytest.mark.parametrize("how", SHELLS)
def test_a_program_is_told_once_whatever_its_shell_does(how: str) -> None:
    with subprocess.Popen(
        ["bash", "-c", SHELLS[how], "bash", sys.executable, "-c", TOLD],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        said = str(send(process)).split("\n")[:-1]
    assert said[:2] == ["told", "saved"]
    assert said[2:] == (["cleaned"] if "cleaned" in SHELLS[how] else [])


NESTED = (
    'trap "exit 7" TERM; bash -c \'trap "exit 3" TERM; echo ready; sleep 600; exit $?\'; while :; do sleep 0.05; done'
)


def test_shells_in_shells_are_told_where_no_end_can_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Linux before 5.3."""

    def none(_pid: int) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr(os, "pidfd_open", none)
    once = SignalOnce(Loop())
    with subprocess.Popen(["bash", "-c", NESTED], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        while not any(stat.comm == "sleep" for stat in process_tree.descendants(process.pid)):
            time.sleep(0.01)
        once.send(process.pid, signal.SIGTERM)
        try:
            assert process.wait(timeout=60) == 7
        finally:
            process_tree.kill_below(process.pid)
            process.kill()
    once.close()


NEXT = 'trap "exit 7" TERM; "$@"; echo next; exec sleep 600'


def test_what_a_shell_starts_next_is_told_too() -> None:
    with subprocess.Popen(
        ["bash", "-c", NEXT, "bash", sys.executable, "-c", TOLD], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        send(process)
        assert process.wait() in (7, -15)


def test_one_that_has_ended_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    SignalOnce(Loop()).send(process.pid, signal.SIGTERM)
