"""Stands still or is busy, in silence: waits.py KIND SECONDS. KIND: idle, kernel, compile, collective, stop.

For ``compile``, the number is that of the operations to compile.
"""

import os
import signal
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from ranks import HAS_GPU, device, settle, tell

kind, seconds = sys.argv[1], float(sys.argv[2])
mine = device()


def busy(until: float) -> None:
    """Keeps the device busy with kernels that the host only waits for."""
    while time.monotonic() < until:
        if HAS_GPU:
            torch.cuda._sleep(1_000_000_000)  # cycles: about half a second
            settle()
        else:
            torch.randn(400, 400) @ torch.randn(400, 400)


if kind == "collective":  # a collective that can't come to its end in time, as a kernel is before it
    dist.init_process_group("nccl" if HAS_GPU else "gloo", timeout=timedelta(seconds=seconds))
    data = torch.ones(8, device=mine)
    dist.all_reduce(data)
    settle()
    if not HAS_GPU:
        print("a collective waits", flush=True)
        raise RuntimeError("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE) ran for")
    for _ in range(20):
        torch.cuda._sleep(2_000_000_000)  # about a second
    tell(nccl=torch.cuda.nccl.version())
    dist.all_reduce(data)
    print("a collective waits", flush=True)
    # not for the GPU: torch's watchdog asks CUDA how far it is, and can't while a thread waits for the whole device
    # (ProcessGroupNCCL.cpp, finishedGPUExecutionInternal); it then saw no timeout
    time.sleep(30)
    raise SystemExit("the watchdog did nothing")
if kind == "stop":
    saved = threading.Event()

    def save(_number: int, _frame: object) -> None:
        settle()  # a checkpoint waits for the kernel that runs
        open(os.path.join(os.environ["SM_MODEL_DIR"], "saved"), "w").close()
        saved.set()

    signal.signal(signal.SIGTERM, save)
    torch.ones(8, device=mine).sum().item()
    print("a kernel runs", flush=True)
    while not saved.is_set():
        busy(time.monotonic() + 1)
    raise SystemExit(0)
torch.ones(8, device=mine).sum().item()
print("silent from now on", flush=True)
if kind == "idle":
    threading.Event().wait()
elif kind == "kernel":
    busy(time.monotonic() + seconds)
elif kind == "compile":

    @torch.compile
    def compiled(data: torch.Tensor) -> torch.Tensor:
        for number in range(int(seconds)):
            data = torch.sin(data * number).cumsum(0).relu() + data.mean()
        return data

    began = time.monotonic()
    compiled(torch.ones(257, device=mine)).sum().item()
    tell(compiled_in=time.monotonic() - began)
print("done", flush=True)
