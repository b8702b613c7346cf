"""AzureML's jobs, played on hosts of this machine: its mpirun, its processes per rank, its tasks, its events."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .conftest import Local
from .network import usable

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "azureml"

pytestmark = [pytest.mark.skipif(not usable(), reason="network namespaces need Linux and root")]

TRAIN = """
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
seen = os.environ.get("OMPI_COMM_WORLD_RANK", "none")
print(f"rank {rank} of {dist.get_world_size()}: {int(total)}, by {sys.argv[1:]}, MPI {seen}", flush=True)
dist.destroy_process_group()
if "--fail" in sys.argv and rank == 3:
    print("no such shard: 17", file=sys.stderr)
    sys.exit(7)
"""
AZURE = ("--platform", "azureml", "--hosts", "2")


@pytest.mark.netns
def test_mpi_started_per_process(local: Local) -> None:
    """AzureML's mpirun starts two entry points on each host: one leads there, none starts another mpirun."""
    form = '{"type": "mpi", "process_count_per_instance": 2}'
    ran = local.run(*AZURE, "--distribution", form, local.program(TRAIN), "--fail")
    assert ran.code == 7, ran.stdout + ran.stderr
    for rank in range(4):
        assert f"rank {rank} of 4: 6, by ['--fail'], MPI {rank}" in ran.stdout
    assert ran.reason == "rank 3 (local rank 1) on 10.77.1.3, exit code 7\nits last line: no such shard: 17", ran.reason
    assert re.search(r"Exit code: +7\b", ran.stdout), "mpirun saw the true code"
    assert {ran.outcome(host)["code"] for host in ("node-0", "node-1")} == {7}


@pytest.mark.netns
def test_lines_of_two_hosts_under_one_mpirun_are_whole_and_each_hosts_own(local: Local) -> None:
    """One process per host, which writes its lines in pieces."""
    program = local.program(
        "import os, sys\n"
        "for line in range(500):\n"
        "    for piece in ('x' * 20, f'{os.environ[\"AZUREML_CR_NODE_RANK\"]} {line}\\n'):\n"
        "        sys.stdout.write(piece), sys.stdout.flush()\n"
    )
    form = '{"type": "mpi", "process_count_per_instance": 1}'
    ran = local.run(*AZURE, "--launcher", "script", "--distribution", form, program)
    assert ran.code == 0, ran.stdout + ran.stderr
    shown = [line for line in ran.stdout.splitlines() if "xx" in line]
    assert sorted(shown) == sorted(f"node-{host} | {'x' * 20}{host} {line}" for host in (0, 1) for line in range(500))
    for host in (0, 1):
        assert ran.log(f"node-{host}").count("xx" * 10) == 500


@pytest.mark.netns
def test_the_guides_launcher_per_node(local: Local) -> None:
    """The variables in a per-node command are replaced once per host, also where no shell has done so."""
    local.program(TRAIN, "train.py")
    command = "-m torch.distributed.launch --nproc_per_node 2 --nnodes 2 --node_rank $NODE_RANK --master_addr " \
              "$MASTER_ADDR --master_port $MASTER_PORT --use_env train.py --epochs 50"  # fmt: skip
    ran = local.run(*AZURE, "--launcher", "script", "--distribution", '{"type": "pytorch"}', *command.split())
    assert ran.code == 0, ran.stdout + ran.stderr
    for rank in range(4):
        assert f"rank {rank} of 4: 6, by ['--epochs', '50'], MPI none" in ran.stdout


SAVE = """
import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
above = open(f"/proc/{os.getppid()}/stat").read().split()
leads = b"musterpoint" in open(f"/proc/{os.getppid()}/cmdline", "rb").read()
os.write(1, " ".join([*sys.argv[1:], "rank", os.environ["RANK"]]).encode() + b"\\n")
here = os.path.join(os.environ["AZURE_ML_OUTPUT_checkpoints"], os.environ["RANK"])
open(here + ".ready", "w").close()
while len([name for name in os.listdir(os.path.dirname(here)) if name.endswith(".ready")]) < 3:
    time.sleep(0.01)
if sys.argv[1] == "leader" and leads:
    os.kill(os.getppid(), signal.SIGKILL)
if sys.argv[1] == "follower" and not leads and os.environ["RANK"] != "0":
    os.kill(int(above[3]), signal.SIGTERM)  # the entry point above the stub
signal.sigwait([signal.SIGTERM])
open(here, "w").close()
"""
THREE = ("--platform", "azureml", "--backend", "process", "--distribution",
         '{"type": "pytorch", "process_count_per_instance": 3}')  # fmt: skip


def saved(local: Local) -> list[str]:
    return sorted(path.name for path in local.output.glob("hosts/node-0/opt/ml/checkpoints/?"))


def test_a_stop_of_one_entry_point_is_a_stop_of_all(local: Local) -> None:
    ran = local.run(*THREE, local.program(SAVE), "follower")
    assert (ran.code, saved(local)) == (143, ["0", "1", "2"]), ran.stdout + ran.stderr


def test_the_others_end_with_the_entry_point_that_led(local: Local) -> None:
    ran = local.run(*THREE, local.program(SAVE), "leader")
    assert ran.code in (76, 137), ran.stdout + ran.stderr
    assert ran.stdout.count("has ended without a word: local rank") == 2
    assert saved(local) == []


@pytest.mark.netns
def test_the_example_job(local: Local) -> None:
    """``job.yml`` as it stands: its code, command, distribution and instances."""
    text = (EXAMPLE / "job.yml").read_text()
    fields = dict(re.findall(r"^ *(code|type|process_count_per_instance|instance_count): (.*)$", text, re.MULTILINE))
    command = re.search(r"^command: >-\n  muster launch (.*)$", text, re.MULTILINE)
    assert command is not None
    model = local.output / "hosts" / "node-0" / "opt" / "ml" / "model"
    words = command[1].replace("${{outputs.model}}", str(model)).split()
    form = {"type": fields["type"], "process_count_per_instance": int(fields["process_count_per_instance"])}
    ran = local.run("--platform", "azureml", "--hosts", fields["instance_count"], "--distribution", json.dumps(form),
                    "--source-dir", EXAMPLE / fields["code"], *words)  # fmt: skip
    assert ran.code == 0, ran.stdout + ran.stderr
    assert "launcher ranks, 4 ranks (2 each)" in ran.stdout
    assert list(model.iterdir())
    assert ran.outcome("node-1")["class"] == "done"


def test_a_process_that_ends_before_its_rank_is_told(local: Local) -> None:
    wrapper = local.program(f'#!/bin/sh\n[ -n "$MUSTER_STUB" ] && exit 3\nexec {local.python} "$@"\n', "wrapper")
    wrapper.chmod(0o755)
    form = '{"type": "pytorch", "process_count_per_instance": 2}'
    words = ("--platform", "azureml", "--python", wrapper, "--launcher", "ranks", "--distribution", form)
    ran = local.run(*words, local.program("import time; time.sleep(60)"))
    assert ran.code == 72
    assert ") ended before its program was started, exit code 3" in ran.reason
