"""One rank of a world: says the sum of all ranks, and where TEST_STAYS is set, stays until it is stopped."""

import os
import signal

from mpi4py import MPI

world = MPI.COMM_WORLD
print(f"rank {world.rank} of {world.size} says {world.allreduce(world.rank)}", flush=True)
if "TEST_STAYS" in os.environ:
    signal.pause()
