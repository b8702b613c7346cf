"""One rank of a world in which one ends otherwise than the others: HOW, WHO, and the seconds the others would go on."""

import os
import signal
import sys
import time

from mpi4py import MPI

how, who, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
world = MPI.COMM_WORLD


def checkpoint(signo, frame):
    time.sleep(12 if how.endswith("-saves") else 5)
    print(f"rank {world.rank} saved its checkpoint", flush=True)
    os._exit(0)


if how == "stop" or how.endswith("-saves"):
    signal.signal(signal.SIGTERM, checkpoint)
world.Barrier()
print(f"rank {world.rank} is ready", flush=True)
if world.rank == who:
    if how in ("raise", "raise-saves"):
        raise ValueError("the data is bad")
    if how in ("exit", "exit-saves", "exit-polled-saves"):
        sys.exit(7)
    if how == "leave":
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
if how == "exit-polled-saves":
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        world.iprobe(source=who)
time.sleep(seconds)
