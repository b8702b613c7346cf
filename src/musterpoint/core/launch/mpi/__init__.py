"""mpirun on the leader, its daemons on the other hosts: Open MPI 4 and 5, MPICH, MVAPICH2, Intel MPI."""
