"""The world that ranks find, under every MPI: who they are, what they are given, and what nobody else can see."""

from __future__ import annotations

import json
import uuid
from typing import Any, Callable

import pytest

from .conftest import FLAVOURS

pytestmark = pytest.mark.netns

SECRET = f"s3cr3t-{uuid.uuid4().hex}"
"""Made here: a copy of this file is no place where a secret was left."""
VALUES = {
    "SECRET_TOKEN": SECRET,
    "WITH_SPACES": "  a b  c ",
    "WITH_QUOTES": 'it\'s "quoted" `so`',
    "WITH_NEWLINE": "line 1\nline 2\n",
    "WITH_SHELL": "$(touch /tmp/never) ${HOME} $HOME; exit 3 # & | > <",
    "WITH_UNICODE": "ümläut ✓",
    "WITH_BACKSLASH": "a\\b\\\\c\\n",
    "WITH_BRACES": "{muster:launch_agent} {muster:nothing} {}",
    "EMPTY": "",
}
COLON = {"LIST": "a:b,c;d=e"}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_everything_arrives(under: Callable[[str], Any], flavour: str) -> None:
    """Uneven hosts, values that no shell would leave alone, and a secret that is on no command line and no disk."""
    job = under(flavour)
    job.environ.update(VALUES | COLON)
    arguments = ("--lr", "0.1 $x", "it's", "{muster:launch_agent}")
    ran = job.run_well("world.py", "--host-slots", "2,1", "--hosts", "2", ranks=3, arguments=arguments)
    ranks = [*job.left(ran, "algo-1"), *job.left(ran, "algo-2")]
    assert [rank["rank"] for rank in ranks] == [0, 1, 2]
    assert [rank["host"] for rank in ranks] == ["algo-1", "algo-1", "algo-2"]
    for rank in ranks:
        assert (rank["size"], rank["total"]) == (3, 3 * 7 + 0 + 1 + 2)
        assert rank["beside"] == "found beside the program"
        assert rank["their package's"] == rank["host"]
        assert rank["cwd"] == ranks[0]["cwd"] != "/"
        assert rank["arguments"] == ["--lr", "0.1 $x", "it's", "{muster:launch_agent}"]
        assert not rank["secret on argv"]
        assert rank["secret on disk"] == []
        given = rank["environ"]
        assert {name: given.get(name) for name in VALUES | COLON} == VALUES | COLON
        assert given["SM_CURRENT_HOST"] == rank["host"]
        assert given["PATH"] == job.environ["PATH"], "not mpirun's own folder first"
        assert given.get("LD_LIBRARY_PATH", "") == job.environ.get("LD_LIBRARY_PATH", "")
        assert [name for name in given if name.startswith("MUSTER_") and name in LAUNCHERS] == []
    places = [[rank["environ"][name] for name in PLACE] for rank in ranks]
    assert places == [
        ["0", "0", "3", "2", "0", "10.77.1.2"],
        ["1", "1", "3", "2", "0", "10.77.1.2"],
        ["2", "0", "3", "1", "1", "10.77.1.2"],
    ]
    assert ranks[0]["environ"]["MASTER_PORT"] == ranks[2]["environ"]["MASTER_PORT"]
    assert ranks[2]["supervisor listens on"] == []
    assert ran.log("algo-2").count("rank 2 of 3 says 24\n") == 1


PLACE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR")
LAUNCHERS = ("MUSTER_STUB", "MUSTER_SOCKET", "MUSTER_AGENT_STAYS", "MUSTER_SESSION_NUMBER")


OPTIONS = "-verbose --NCCL_DEBUG=INFO -x WITH_VALUE='a \"b\" $c' -x WITH_SPACES"


@pytest.mark.parametrize("flavour", ["openmpi4", "openmpi5", "mpich", "impi"])
def test_options_of_the_job_reach_every_rank(under: Callable[[str], Any], flavour: str) -> None:
    job = under(flavour)
    job.environ.update(VALUES)
    settings = {"enabled": True, "processes_per_host": 1, "custom_mpi_options": OPTIONS}
    ran = job.run("world.py", "--hosts", "2", "--distribution", json.dumps({"mpi": settings}))
    assert ran.code == 0, ran.stderr + ran.stdout
    for host in ("algo-1", "algo-2"):
        (rank,) = job.left(ran, host)
        assert rank["size"] == 2
        assert rank["environ"]["NCCL_DEBUG"] == "INFO"
        assert rank["environ"]["WITH_VALUE"] == 'a "b" $c'
        assert rank["environ"]["WITH_SPACES"] == VALUES["WITH_SPACES"]
        assert rank["environ"]["SM_CURRENT_HOST"] == host
        assert rank["environ"]["SM_FRAMEWORK_PARAMS"]


@pytest.mark.lane("mpi")
@pytest.mark.parametrize("flavour", ["openmpi4", "mpich"])
def test_hosts_that_are_processes(under: Callable[[str], Any], flavour: str) -> None:
    """The process backend: one machine, one host name, an address each."""
    job = under(flavour)
    ran = job.run("reduce.py", "--hosts", "2", "--slots", "2", "--backend", "process")
    assert ran.code == 0, ran.stderr + ran.stdout
    assert sorted(line for line in ran.stdout.splitlines() if "says" in line)[0].endswith("rank 0 of 4 says 6")


ENV_URL = """
import datetime
import torch.distributed as dist
import torch

dist.init_process_group("gloo", init_method="env://", timeout=datetime.timedelta(seconds=60))
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} says {total.item():g}", flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def test_torch_meets_by_env_under_mpirun(under: Callable[[str], Any], python: str) -> None:
    """A Python without mpi4py: the program as it is."""
    job = under("openmpi4")
    job.environ["MUSTER_PYTHON"] = python
    ran = job.run(job.local.program(ENV_URL), "--hosts", "2", "--host-slots", "1,2")
    assert ran.code == 0, ran.stderr + ran.stdout
    assert sorted(line[-19:] for line in ran.stdout.splitlines() if "says" in line) == [
        f"| rank {rank} of 3 says 3"[-19:] for rank in range(3)
    ]


SHELL = """
echo "shell $RANK of $WORLD_SIZE beside $(ls "$0"): $1"
exec "$MUSTER_PYTHON" - <<END
from mpi4py import MPI
print("reduced", MPI.COMM_WORLD.allreduce(1))
END
"""
EXECUTABLE = "#!/bin/sh\n" + SHELL


@pytest.mark.parametrize(("flavour", "name"), [("openmpi4", "run.sh"), ("mpich", "run"), ("openmpi5", "run")])
def test_programs_that_are_no_python(under: Callable[[str], Any], flavour: str, name: str) -> None:
    job = under(flavour)
    program = job.local.program(EXECUTABLE if name == "run" else SHELL, name)
    program.chmod(0o755)
    ran = job.run(program, "--hosts", "2", arguments=("a b",))
    assert ran.code == 0, ran.stderr + ran.stdout
    for rank, host in enumerate(("algo-1", "algo-2")):
        assert f"shell {rank} of 2 beside ./{name}: a b\n" in ran.log(host)
        assert "reduced 2\n" in ran.log(host)
