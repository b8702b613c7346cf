"""Training on two containers: torch's DistributedDataParallel, MPI without ssh, TensorFlow's workers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .containers import MPI, RANKS

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = EXAMPLES / "digits_ddp" / "train.py"

DDP = """
import atexit
import os
import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from train import accuracy, digits, network

atexit.register(time.sleep, 1)  # gloo's threads end before Python does: the model holds them
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)  # the weights are rank 0's
model = DistributedDataParallel(network())
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
seen, unseen = digits()
sampler = DistributedSampler(seen, seed=0)
losses = []
for epoch in range(3):
    sampler.set_epoch(epoch)
    total = torch.zeros(())
    for images, labels in DataLoader(seen, batch_size=32, sampler=sampler):
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    dist.all_reduce(total)
    losses.append(total.item())
weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
print("rank", rank, "losses", losses, "weights", weights.double().sum().item(), flush=True)
if rank == 0:
    print("accuracy", accuracy(model.module, unseen, torch.device("cpu")), flush=True)
    torch.save(model.module.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
dist.barrier()
dist.destroy_process_group()
"""


def test_ddp_learns_the_same_on_both(job: Any) -> None:
    """torchrun on a read-only root, as a user without rights, on real images of digits."""
    hosts = job("torch", DDP, files={"train.py": DIGITS.read_text()}, distribution=RANKS, user=1000, read_only=True,
                tmpfs={"/tmp": ""}, environment={"OMP_NUM_THREADS": "1"}).start()  # fmt: skip
    assert hosts.ends(280) == [0, 0]
    told = [re.findall(r"rank (\d) losses (.*)", host.log) for host in hosts.hosts.values()]
    assert [[rank for rank, _ in each] for each in told] == [["0"], ["1"]]
    assert told[0][0][1] == told[1][0][1]
    losses = json.loads(told[0][0][1].partition(" weights")[0])
    assert losses[-1] < losses[0] / 3
    (right,) = re.findall(r"accuracy ([\d.]+)", hosts["algo-1"].log)
    assert float(right) > 0.8
    assert [host.models() for host in hosts.hosts.values()] == [["model.pt"], []]
    assert "launcher torchrun, 2 ranks (1 each)" in hosts["algo-1"].log


SUMS = """
import os
from pathlib import Path

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
total = numpy.empty(1000)
world.Allreduce(numpy.full(1000, world.rank, dtype=float), total)
print("rank", world.rank, "of", world.size, "on", os.environ["SM_CURRENT_HOST"], "sums", total.min(), total.max())
here = {os.path.realpath(path) for path in Path("/proc").glob("[0-9]*/exe")}  # one that has ended meanwhile is itself
print("here:", *sorted(map(os.path.basename, here)))
"""


def test_mpirun_without_ssh(job: Any) -> None:
    """As root, which Open MPI runs for nobody who doesn't ask."""
    hosts = job("mpi", SUMS, distribution={**MPI, "sagemaker_mpi_num_of_processes_per_host": "2"}).start()
    assert hosts.ends() == [0, 0]
    told = [line for host in hosts.hosts.values() for line in re.findall(r"(rank .*)\n", host.log)]
    places = ("algo-1", "algo-1", "algo-2", "algo-2")
    assert sorted(told) == [f"rank {rank} of 4 on {host} sums 6.0 6.0" for rank, host in enumerate(places)]
    here = {host.name: set(re.findall(r"here: (.*)", host.log)[0].split()) for host in hosts.hosts.values()}
    assert {"mpirun", "orterun"} & here["algo-1"], "one program, by whichever name"
    assert "orted" in here["algo-2"]
    assert not {"ssh", "sshd"} & (here["algo-1"] | here["algo-2"])


LIBRARIES = """
import atexit
import time

import deepspeed
import horovod.torch as hvd
import torch

atexit.register(time.sleep, 1)  # gloo's threads end before Python does: the engine holds them
hvd.init()
total = hvd.allreduce(torch.full((3,), float(hvd.rank())), op=hvd.Sum)
print("horovod", hvd.rank(), "of", hvd.size(), "sums", total.tolist(), flush=True)

deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(0)
config = {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
          "zero_optimization": {"stage": 2}}
engine, _, _, _ = deepspeed.initialize(model=(model := torch.nn.Linear(8, 1)), model_parameters=model.parameters(),
                                       config=config)
torch.manual_seed(1 + hvd.rank())
engine.backward(engine(torch.randn(4, 8)).square().mean())
engine.step()
weights = sum(parameter.double().sum().item() for parameter in engine.module.parameters())
stage = engine.zero_optimization_stage()
print("deepspeed", torch.distributed.get_rank(), "stage", stage, "weights", weights, flush=True)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def test_horovod_and_deepspeed_of_the_mpi_image(job: Any) -> None:
    """Under mpirun, one rank on each host, with the operations that were compiled when the image was built."""
    hosts = job("mpi", LIBRARIES, distribution={**MPI, "sagemaker_mpi_num_of_processes_per_host": "1"},
                environment={"OMP_NUM_THREADS": "1"}).start()  # fmt: skip
    assert hosts.ends(280) == [0, 0]
    logs = [host.log for host in hosts.hosts.values()]
    horovod = [re.findall(r"horovod (\d) of 2 sums (.*)", log) for log in logs]
    assert horovod == [[("0", "[1.0, 1.0, 1.0]")], [("1", "[1.0, 1.0, 1.0]")]]
    deepspeed = [re.findall(r"deepspeed (\d) stage 2 weights (.*)", log) for log in logs]
    assert [[rank for rank, _ in each] for each in deepspeed] == [["0"], ["1"]]
    assert deepspeed[0][0][1] == deepspeed[1][0][1]


def test_tensorflows_workers_learn_the_same(job: Any) -> None:
    distribution = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}
    hosts = job("tensorflow", EXAMPLES / "tensorflow" / "mirrored.py", hyperparameters={"epochs": 1},
                distribution=distribution).start()  # fmt: skip
    assert hosts.ends(280) == [0, 0]
    told = [re.findall(r"worker (\d): train:loss=([\d.]+);", host.log) for host in hosts.hosts.values()]
    assert [[worker for worker, _ in each] for each in told] == [["0"], ["1"]]
    assert told[0][0][1] == told[1][0][1]
    assert [host.models() for host in hosts.hosts.values()] == [["1"], []]


OF_ROLES = {
    "job.toml": """
[[roles]]
name = "trainer"
hosts = 1
launcher = "ranks"
after = ["data"]

[[roles]]
name = "data"
hosts = 1
program = "data.py"
ready = "http :8000/"
""",
    "data.py": """
import signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Batches(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a batch")

signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
HTTPServer(("0.0.0.0", 8000), Batches).serve_forever()
""",
}
ASKS = """
import os, sys, urllib.request

with urllib.request.urlopen(f"http://{os.environ['MUSTER_ROLE_HOSTS_DATA']}:8000/") as answer:
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "got", answer.read(), flush=True)
sys.exit(int(os.environ.get("ENDS", "0")))
"""


@pytest.mark.parametrize("code", [0, 4])
def test_each_container_has_a_role(job: Any, code: int) -> None:
    """The job's file lies in its code. The server ends with another code than 0 when it is told to, as some do."""
    environment = {"MUSTER_JOB_FILE": "job.toml", "ENDS": str(code)}
    hosts = job("base", ASKS, files=OF_ROLES, environment=environment).start()
    assert hosts.ends() == [code, code]
    assert "rank 0 of 1 got b'a batch'" in hosts["algo-1"].log
    assert ("trainer is through: data is told to end" in hosts["algo-2"].log) == (code == 0)
    reasons = {host.reason.partition("\n")[0] for host in hosts.hosts.values()}
    assert reasons == ({"trainer on algo-1, exit code 4"} if code else {""})
