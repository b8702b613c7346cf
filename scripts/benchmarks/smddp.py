"""What the backend ``smddp`` costs over the plain backend, for the same training step of the same ranks."""

from __future__ import annotations

import statistics

from benchmarks import ranks, trial
from benchmarks.figure import Figure, milliseconds

RANKS = 2
ROUNDS = 120
JOBS = 3  # in a single one, where memory lies can favour either backend by a percent
GOAL = 1.02

# One job: the same model twice, over a group of each backend, in rounds that change which one comes first.
PROGRAM = """
import json, os, sys, time
import smdistributed.dataparallel.torch.torch_smddp
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("smddp")
cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
groups = {"smddp": dist.new_group(), "plain": dist.new_group(backend="nccl" if cuda else "gloo")}
models = {}
for name, group in groups.items():
    network = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8))).to(device)
    models[name] = DistributedDataParallel(network, process_group=group)
data = torch.randn(16, 256, device=device)

def steps(name, count):
    dist.barrier()
    began = time.perf_counter()
    for _ in range(count):
        models[name](data).sum().backward()
    if cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / count

times = {name: [] for name in models}
for index in range(-3, int(sys.argv[1])):
    for name in sorted(models, reverse=index % 2 == 0):
        seconds = steps(name, 10)
        if index >= 0:
            times[name].append(seconds)
if dist.get_rank() == 0:
    print(json.dumps(times), flush=True)
dist.barrier()
os._exit(0)
"""


def measure(bench: trial.Bench) -> list[Figure]:
    jobs = [ranks.run(bench, PROGRAM, RANKS, str(ROUNDS)) for _ in range(JOBS)]  # seconds of each round, by backend
    return [judge({name: [seconds for job in jobs for seconds in job[name]] for name in jobs[0]})]


def judge(times: dict[str, list[float]]) -> Figure:
    """By the median of the rounds' own ratios: whatever else the machine does in a round slows down both."""
    ratio = statistics.median(ours / plain for ours, plain in zip(times["smddp"], times["plain"]))
    ours, plain = (statistics.median(times[name]) for name in ("smddp", "plain"))
    return Figure(
        f"a DistributedDataParallel step over `smddp`, {RANKS} ranks, over the plain backend in the same run",
        f"≤ {GOAL} ×",
        f"{ratio:.3f} × ({milliseconds(ours)}, {milliseconds(plain)})",
        ratio <= GOAL,
        {"ratio": round(ratio, 4), "smddp": round(ours, 6), "plain": round(plain, 6), "rounds": len(times["smddp"])},
    )
