"""Whatever goes wrong on one rank is an error on all of them, in its words; goes on where smp_features.py ends."""

import io
import logging
import os
import socket
import time

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from another import forget
from first_and_part import Net
from torch import nn

said = {}
log = io.StringIO()
smp.logger.addHandler(logging.StreamHandler(log))
smp.logger.setLevel(logging.INFO)


class Break(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("broken backwards")


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, how):
        if how == "forward":
            raise KeyError("broken forwards")
        if how == "exit":
            print('{"died": true}', flush=True)
            os._exit(0)
        x = self.linear(x)
        return Break.apply(x) if how == "backward" else x


@smp.step
def train(model, x, how):
    if how == "body":
        raise ZeroDivisionError("broken body")
    if how != "nothing":
        model.backward(model(x, (lambda: None) if how == "lambda" else how).sum())


def fresh():
    forget()
    return smp.DistributedModel(Net(Part()))


def fails(how, x=None):
    """The error of a step that goes wrong; on one rank of each pipeline, in both replicas."""
    model = fresh()
    train(model, torch.ones(8, 4, dtype=torch.float64), "fine")
    torch.distributed.barrier()  # or an error comes while another replica is still in this step
    try:
        train(model, torch.ones(8, 4, dtype=torch.float64) if x is None else x, how)
    except (RuntimeError, ValueError, KeyError, ArithmeticError) as error:
        said[how] = [type(error).__name__, str(error)]
    smp.state.wait = lambda work, kind: work.wait()
    torch.distributed.barrier()


for how in ("body", "forward", "backward", "lambda", "nothing"):
    fails(how)
fails("indivisible", torch.ones(3, 4, dtype=torch.float64))

# the leader steps alone: it says what it waits for, and the others can still help
model = fresh()
train(model, torch.ones(8, 4, dtype=torch.float64), "fine")
log.seek(0)
log.truncate()
store, handler = dist.distributed_c10d._get_default_store(), logging.Handler()
handler.addFilter(lambda record: "haven't called" in record.getMessage())
handler.emit = lambda record: store.set(f"hint {smp.dp_rank()}", "")
smp.logger.addHandler(handler)
if smp.pp_rank() == 1:
    store.wait([f"hint {smp.dp_rank()}"])
train(model, torch.ones(8, 4, dtype=torch.float64), "fine")
said["hint"] = log.getvalue()

# who doesn't know the token gets in nowhere
address = model._server._transport.address
with socket.create_connection(address, timeout=10) as stranger:
    stranger.sendall(b"x" * 36)
    stranger.recv(100)
    stranger.sendall(b"y" * 32)
    said["stranger"] = len(stranger.recv(100))
smp.barrier()

# a rank ends in the middle of a step: the other one of its pipeline says so at once, and the replica hears it from that
began = time.monotonic()
try:
    train(model, torch.ones(8, 4, dtype=torch.float64), "exit" if smp.dp_rank() == 0 else "fine")
except RuntimeError as error:
    said["lost"] = [type(error).__name__, str(error)]
said["seconds"] = time.monotonic() - began
