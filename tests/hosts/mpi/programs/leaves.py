"""Ranks that end with 0 long before the others do: HOW is finalize (as is their right) or exit, from rank FIRST on."""

import os
import sys
import time

from mpi4py import MPI

how, first = sys.argv[1], int(sys.argv[2])
world = MPI.COMM_WORLD
rank = world.rank
world.Barrier()
print(f"rank {rank} is ready", flush=True)
if how == "exit":
    if rank >= first:
        os._exit(0)
    world.Barrier()
MPI.Finalize()
if rank < first:
    time.sleep(8)
    print(f"rank {rank} took its time", flush=True)
