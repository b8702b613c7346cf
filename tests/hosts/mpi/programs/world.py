"""One rank of a world: reduces, then writes what it is and what it sees into the host's output.

Where TEST_STAYS is set, it stays until it is stopped.
"""

import contextlib
import json
import os
import signal
import sys

import beside
import numpy
from mpi4py import MPI
from sagemaker_training import environment

OURS = ("muster", "ompi", "prte", "pmix", "hydra", "openmpi")


def arguments_of_all():
    found = b""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                found += file.read()
        except OSError:
            pass
    return found


def files_with(word):
    """Files that hold ``word``, of those that a launcher may have written."""
    roots = ["/opt/ml", "/dev/shm", *(f"/tmp/{name}" for name in os.listdir("/tmp") if name.startswith(OURS))]
    found = []
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and os.access(path, os.R_OK):
                    with contextlib.suppress(OSError), open(path, "rb") as file:
                        if word in file.read(1 << 20):
                            found.append(path)
    return found


def listening(pid):
    """TCP ports that a process listens on."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    ports = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}") as file:
            for line in file.read().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                    ports.append(int(fields[1].rpartition(":")[2], 16))
    return ports


world = MPI.COMM_WORLD
mine = numpy.arange(1000.0) + world.rank
total = numpy.empty_like(mine)
world.Allreduce(mine, total)
secret = os.environ["SECRET_TOKEN"].encode()
seen = {
    "rank": world.rank,
    "size": world.size,
    "total": float(total[7]),
    "host": MPI.Get_processor_name(),
    "environ": dict(os.environ),
    "arguments": sys.argv[1:],
    "cwd": os.getcwd(),
    "beside": beside.VALUE,
    "their package's": environment.Environment().current_host,
    "secret on argv": secret in arguments_of_all(),
    "supervisor listens on": listening(1),
}
world.Barrier()
seen["secret on disk"] = files_with(secret) if world.rank == 0 or os.environ["LOCAL_RANK"] == "0" else []
world.Barrier()
with open(f"{os.environ['SM_OUTPUT_DATA_DIR']}/rank-{world.rank}.json", "w") as file:
    json.dump(seen, file)
print(f"rank {world.rank} of {world.size} says {total[7]:g}", flush=True)
if "TEST_STAYS" in os.environ:
    signal.pause()
