"""Trains models whose initialization is delayed, and compares them to the last bit with the same ones that weren't."""

import gc
import itertools

import smdistributed.modelparallel.torch as smp
import smp_models
import torch
from another import forget
from ending import leave
from smdistributed.modelparallel.torch import delayed, recording
from smp_models import batch
from torch import nn

torch.set_num_threads(1)
recording.SMALL = 64  # so that models of a test are large
recording.RESIDENT = 2048


class Odd(nn.Module):
    """Initialized by every other means: copies, decisions by values, borrowed and tied weights, a buffer of weights."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(24, 16, padding_idx=3)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 2)
        self.rnn = nn.LSTM(16, 16, batch_first=True)
        self.middle = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.head = nn.Linear(16, 24)
        self.head.weight = self.words.weight
        self.scales = nn.Parameter(torch.log(torch.arange(1, 17.0)).expand(4, 16).contiguous())
        nn.init.orthogonal_(self.middle[0].weight)
        nn.init.trunc_normal_(self.middle[1].weight, std=0.3)
        nn.init.trunc_normal_(self.middle[2].weight, std=3.0)  # which draws until everything fits
        with torch.no_grad():
            if self.middle[0].weight.sum() > self.middle[2].weight.sum():
                self.middle[2].weight.mul_(0.5)
            self.rnn.weight_hh_l0.copy_(self.rnn.weight_ih_l0).div_(2)
        self.register_buffer("first", self.middle[1].weight.detach().clone())

    def forward(self, x):
        h = self.words((x.flatten(1)[:, :6].abs() * 5).long() % 24)
        h, _ = self.rnn(self.layers(h))
        for layer in self.middle:
            h = torch.tanh(layer(h)) @ self.first + self.scales.mean(0)
        return self.head(h)[:, 0, :5]


@smp.step
def train(model, x, y):
    loss = nn.functional.cross_entropy(model(x).float(), y)
    model.backward(loss)
    return loss


def bytes_of(model):
    """What its parameters have in memory."""
    storages = {id(each): each for each in model.parameters()}.values()
    with torch._C.DisableTorchFunctionSubclass():
        return sum(each.untyped_storage().nbytes() for each in storages)


def trained(kind, delays, early, **creation):
    forget()
    torch.manual_seed(smp.rank())  # the values of rank 0 count
    with smp.model_creation(delayed_parameter_initialization=delays, **creation):
        net = kind()
    noise, taken = torch.rand(3), bytes_of(net)
    optimizer = torch.optim.AdamW(net.parameters(), 0.01, eps=0.01) if early else None
    model = smp.DistributedModel(net)
    optimizer = smp.DistributedOptimizer(optimizer or torch.optim.AdamW(model.parameters(), 0.01, eps=0.01))
    batches = smp.rdp_rank() if smp.state.cfg.prescaled_batch else smp.dp_rank()
    for step in range(2):
        optimizer.zero_grad()
        train(model, *batch(step, batches))
        if not step:
            first = {name: value.clone() for name, value in model.state_dict().items()}
        optimizer.step()
    assert not delayed.named(net)
    return {**first, "noise": noise}, model.state_dict(), taken


def loaded_before_the_first_step():
    """A whole state dict waits for the model to be divided; one rank that looks at values has all of them."""
    forget()
    other = Odd()
    with smp.delay_param_initialization():
        net = Odd()
    assert delayed.named(net)
    model = smp.DistributedModel(net)
    if smp.rank() == 1:
        assert not any(each.isnan().any() for each in model.state_dict().values())
        assert not delayed.named(net)
    values = smp.allgather(other.state_dict() if smp.rank() == 0 else None, smp.WORLD)[0]
    model.load_state_dict(values)
    smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.0))
    train(model, *batch(0, smp.dp_rank()))
    return all(torch.equal(each, values[name]) for name, each in model.state_dict().items())


WORLDS = (
    ({"partitions": 2, "skip_tracing": True}, {}),
    ({"partitions": 2, "tensor_parallel_degree": 2, "skip_tracing": True, "optimize": "speed", "prescaled_batch": True},
     {"tensor_parallelism": True}),
    ({"sharded_data_parallel_degree": 2}, {}),
    ({"partitions": 4, "bf16": True, "skip_tracing": True, "pipeline": "simple"}, {}),
    ({"shard_optimizer_state": True, "fp16": True, "tensor_parallel_degree": 2}, {"tensor_parallelism": True}),
)  # fmt: skip
result = {}
early = itertools.cycle((True, False))
for (world, creation), kind in zip(WORLDS, (Odd, Odd, Odd, smp_models.Tied, Odd)):
    smp.state._world = None
    smp.init({"microbatches": 2, "ddp": True, "delayed_parameter_initialization": True, **world})
    now = next(early)
    expected, last, whole = trained(kind, False, now, **creation)
    found, end, taken = trained(kind, None, now, **creation)
    assert list(found) == list(expected)
    differ = [name for name, value in expected.items() if not torch.equal(value, found[name])]
    error = max((value.double() - end[name].double()).abs().max().item() for name, value in last.items())
    result[str(world)] = [differ, error, taken / whole]
    gc.collect()
    if not creation and smp.pp_size() == 2:
        result["loaded"] = loaded_before_the_first_step()
leave(**result)
