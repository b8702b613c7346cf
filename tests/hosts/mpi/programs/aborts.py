"""One rank of a world that one rank ends: HOW it does, WHO it is, and what the others do meanwhile (sleep, wait)."""

import os
import signal
import sys
import time

from mpi4py import MPI

how, who, others = sys.argv[1], int(sys.argv[2]), sys.argv[3]
world = MPI.COMM_WORLD


def checkpoint(signo, frame):
    time.sleep(4)
    print(f"rank {world.rank} saved its checkpoint", flush=True)
    os._exit(0)


if how == "stop" and world.rank == who:
    signal.signal(signal.SIGTERM, checkpoint)
world.Barrier()
print(f"rank {world.rank} is ready", flush=True)
if how == "none":
    sys.exit()
if world.rank == who and how != "stop":
    time.sleep(0.5)
    if how == "abort":
        world.Abort(5)
        print("nobody ends a program that its MPI should have ended", flush=True)
    else:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        time.sleep(0.05)
if others == "wait":
    world.Barrier()
while True:
    time.sleep(0.05)
