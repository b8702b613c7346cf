"""How a job ends where a module on another rank ends Python, is interrupted, or raises what can't be pickled."""

import os
import signal
import sys
import threading

import smdistributed.modelparallel.torch as smp
import torch
from first_and_part import Net
from torch import nn


class Locked(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, how):
        if how == "exit":
            sys.exit(0)
        if how == "locked":
            raise Locked("with a lock")
        if how == "interrupted":
            os.kill(os.getpid(), signal.SIGINT)
        return self.linear(x)


@smp.step
def train(model, x, how):
    model.backward(model(x, how).sum())


signal.signal(signal.SIGINT, signal.default_int_handler)
smp.init({"partitions": 2, "microbatches": 2, "auto_partition": False, "default_partition": 0, "skip_tracing": True})
net = Net(Part())
smp.set_partition(net.part, 1)
model = smp.DistributedModel(net)
train(model, torch.ones(4, 4), "fine")
if sys.argv[1] == "leaves" and smp.rank() == 1:
    os._exit(0)
train(model, torch.ones(4, 4), sys.argv[1])
