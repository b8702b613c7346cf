"""One rank of a world in which one ends otherwise than the others: HOW, WHO, and the seconds the others would go on."""

import os
import signal
import sys
import tempfile
import time

from mpi4py import MPI

how, who, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
world = MPI.COMM_WORLD


def checkpoint(signo, frame):
    time.sleep(8)
    print(f"rank {world.rank} saved its checkpoint", flush=True)
    os._exit(0)


if how == "exit-polled-saves":
    signal.signal(signal.SIGTERM, checkpoint)
# who is still within MPI when another ends may be ended by MPI itself
met = world.bcast(tempfile.mkdtemp(prefix="met-") if world.rank == 0 else None)
print(f"rank {world.rank} is ready", flush=True)
open(f"{met}/{world.rank}", "w").close()
if world.rank == who:
    while len(os.listdir(met)) < world.size:
        time.sleep(0.01)
    if how != "wait":
        sys.exit(7)
until = time.monotonic() + seconds
while time.monotonic() < until:
    if how == "exit-polled-saves":
        world.iprobe(source=who)
    else:
        time.sleep(0.05)
