"""Fails as CUDA programs do: fails.py KIND. On the CPU the same words are raised."""

import os
import signal
import sys

import torch
from ranks import HAS_GPU, join, settle

kind = sys.argv[1]
mine = join("gloo")
data = torch.ones(8, device=mine)
if kind == "memory":
    if not HAS_GPU:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 900.00 GiB.")
    torch.empty(900 * 2**30, dtype=torch.uint8, device=mine)
elif kind == "assert":
    if not HAS_GPU:
        raise RuntimeError("CUDA error: device-side assert triggered")
    data[torch.tensor([99], device=mine)].sum().item()
elif kind == "illegal":
    if not HAS_GPU:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    code = 'extern "C" __global__ void touch() { *(volatile int *)16 = 1; }'
    if hasattr(torch.cuda, "_compile_kernel"):  # torch 2.8 or newer
        torch.cuda._compile_kernel(code, "touch")(grid=(1, 1, 1), block=(1, 1, 1), args=())
    else:
        try:
            import cupy
        except ImportError:
            raise SystemExit("no compiler: this torch has none, and there is no cupy")
        cupy.RawKernel(code, "touch")((1,), (1,), ())
    settle()
elif kind == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
raise SystemExit(f"{kind}: nothing failed")
