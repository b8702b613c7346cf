"""How a container ends and what it leaves: exit codes, output, zombies, files, whoever it runs as."""

from __future__ import annotations

import hashlib
from typing import Any

CODES = {
    "import sys; sys.exit(7)": 7,
    "import sys; sys.exit(256)": 0,
    "import sys; sys.exit(-1)": 255,
    "raise ValueError('no such digit')": 1,
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": 137,
    "import os; os.abort()": 134,
}


def test_the_exit_code_is_the_programs(job: Any, image: Any) -> None:
    jobs = job("base", "", hosts=())
    for number, program in enumerate(CODES):
        jobs.make(image("base"), program, hosts=(f"algo-{number}",))
    jobs.start()
    assert jobs.ends() == list(CODES.values())
    hosts = dict(zip(CODES, jobs.hosts.values()))
    for program, host in hosts.items():
        assert host.outcome["code"] == CODES[program]
        assert bool(host.reason) == bool(CODES[program]), host.reason
        assert (host.ml / "output" / "success").exists() == (not CODES[program])
    raised = next(host for program, host in hosts.items() if program.startswith("raise"))
    assert raised.reason.startswith("ValueError: no such digit\n")


WRITER = """
import os, threading

OUT = bytes(range(256)) * 3000 + b"\\r 10%\\r100%\\n" + b"x" * 70_000 + b"no newline at the end"
ERR = b"\\xff\\xfe\\0 warning\\n" * 20_000

def write(fd, data):
    while data:
        data = data[os.write(fd, data):]

threads = [threading.Thread(target=write, args=pair) for pair in ((1, OUT), (2, ERR))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_output_is_untouched_and_streams_stay_apart(job: Any) -> None:
    made: dict[str, Any] = {}
    exec(WRITER.split("def write")[0], made)
    host = job("base", WRITER, hosts=("algo-1-x7k2p",)).start()["algo-1-x7k2p"]
    assert host.end() == 0
    assert hashlib.sha256(host.stdout).digest() == hashlib.sha256(made["OUT"]).digest(), len(host.stdout)
    ours = [line for line in host.stderr.splitlines() if line.startswith(b"musterpoint: ")]
    theirs = b"".join(line for line in host.stderr.splitlines(True) if not line.startswith(b"musterpoint: "))
    assert theirs == made["ERR"], (len(theirs), ours)


ORPHANS = """
import os, time

pids = []
for _ in range(5):
    reading, writing = os.pipe()
    if not os.fork():
        pid = os.fork()
        if pid:
            os.write(writing, str(pid).encode())
        os._exit(0)
    os.wait()
    pids.append(int(os.read(reading, 20)))
print("orphans", *pids, flush=True)
open("/opt/ml/checkpoints/go").readline()
"""


def test_orphans_are_reaped(job: Any) -> None:
    host = job("base", ORPHANS, hosts=1).start()["algo-1"]
    host.saw("orphans")
    states = host.run("python3", "-c", "import glob\nfor p in glob.glob('/proc/[0-9]*/stat'): print(open(p).read())")
    assert ") Z " not in states
    assert "(train)" in states or "(python" in states
    host.go()
    assert host.end() == 0
