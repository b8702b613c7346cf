"""Trains, saves in every way and goes on; or resumes from one of the files, and goes on in the same way.

The tied model's state dict, the optimizer's state and the training must come out as if nothing had happened.
"""

import os
import sys

import smdistributed.modelparallel.torch as smp
import torch
from ending import leave
from torch import nn

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
MODE, FOLDER = sys.argv[1:]


class Tied(nn.Module):
    """An embedding whose weights are the output's as well, blocks with running statistics, a buffer."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU(inplace=True), nn.Linear(12, 6))
            for _ in range(4)
        )
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, words):
        hidden = self.words(words).mean(1)
        for block in self.blocks:
            hidden = hidden + self.scale * block(hidden)
        return self.head(hidden)


@smp.step
def train_step(model, words, labels):
    loss = nn.functional.cross_entropy(model(words), labels)
    model.backward(loss)
    return loss


def train(model, optimizer, steps):
    for step in steps:
        words = torch.randint(0, 11, (8, 5), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        train_step(model, words, words[:, 0])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # by the norm of all parts
        optimizer.step()


smp.init({"microbatches": 2})
torch.manual_seed(3 if MODE == "save" else 4)
plain = Tied()
keys = list(plain.state_dict())
model = smp.DistributedModel(plain)
optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01))
path = os.path.join(FOLDER, "ck.pt")
assert list(model.state_dict()) == keys

if MODE == "save":
    train(model, optimizer, range(2))
    parts = {"model_state_dict": model.local_state_dict(), "optimizer_state_dict": optimizer.local_state_dict()}
    whole = {"model_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict()}
    assert list(whole["model_state_dict"]) == keys
    if smp.dp_rank() == 0:
        smp.save(parts, path, partial=True)
        smp.save(whole, path, partial=False)
    smp.save_checkpoint(FOLDER, "s2", model=model, optimizer=optimizer, user_content={"step": 2})
    smp.save_checkpoint(FOLDER, "full.pt", partial=False, model=model, optimizer=optimizer, user_content={"step": 2})
elif MODE == "full":
    read = smp.load(path, partial=False)
    model.load_state_dict(read["model_state_dict"])
    optimizer.load_state_dict(read["optimizer_state_dict"])
else:
    newest, partial = (None, True) if MODE == "newest" else ("full.pt", False)
    assert smp.resume_from_checkpoint(FOLDER, newest, partial=partial) == {"step": 2}


def difference():
    """Of this training's end from that of the one that saved."""
    train(model, optimizer, range(2, 4))
    end = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    if MODE == "save":
        smp.save(end, place, partial=False)
        smp.barrier()
    expected = torch.load(place, weights_only=True)  # as a program without this library
    Tied().load_state_dict(expected["model"])
    assert list(end["optimizer"]["state"]) == list(expected["optimizer"]["state"])
    pairs = [(end["model"][key], value) for key, value in expected["model"].items()]
    for index, values in expected["optimizer"]["state"].items():
        pairs += [(end["optimizer"]["state"][index][name], value) for name, value in values.items()]
    return max(float((found - value).abs().max()) for found, value in pairs)


place = os.path.join(FOLDER, "end.pt")
error = difference()
if MODE == "newest":  # once more, into a model that is divided already
    parts = smp.load(path)
    model.load_state_dict(parts["model_state_dict"])
    optimizer.load_state_dict(parts["optimizer_state_dict"])
    error = max(error, difference())
local = sum(1 for _ in model.local_parameters())
leave(error=error, parts=sorted(os.listdir(FOLDER)), local=local, keys=len(keys))
