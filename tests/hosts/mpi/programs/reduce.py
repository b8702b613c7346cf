"""One rank of a world: says the sum of all ranks."""

from mpi4py import MPI

world = MPI.COMM_WORLD
print(f"rank {world.rank} of {world.size} says {world.allreduce(world.rank)}", flush=True)
