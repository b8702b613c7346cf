"""Tries everything that changes a tensor on parameters and buffers of another rank, in a step and outside of steps.

What there is comes from torch itself: methods, operators and functions by their names. For each, arguments are looked
for with which it changes a plain tensor; then the same is done to one that is elsewhere.
"""

import copy
import warnings

import smdistributed.modelparallel.torch as smp
import torch
from ending import leave
from first_and_part import Net
from smdistributed.modelparallel.torch.absent import changes_in_place
from smdistributed.modelparallel.torch.errors import SMPStepError
from torch import nn

warnings.simplefilter("ignore")
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
some, whole, mask = torch.rand(4, 4) + 0.1, torch.full((4, 4), 3), torch.eye(4, dtype=torch.bool)
row, rows = torch.arange(4), torch.zeros(4, 4, dtype=torch.int64)
HELD = {
    "real": some + 0.3,
    "negative": -some - 0.3,
    "whole": torch.arange(16).view(4, 4) + 8,
    "mask": mask.clone(),
    "flat": some[0] - 0.6,
    "wide": some[None] + 0.3,
    "turning": (some + 0.3j),
    "undefined": some * float("nan"),
}
"""A buffer and, where it may have gradients, a parameter of each."""
DOUBLE = lambda *given: given[0] * 2  # noqa: E731
ARGUMENTS = (
    (), (0.5,), (2,), (some,), (some, some), (some, 0.5), (0.25, 0.5), (0, 0.5), (0, row, some), (0, row, 0.5),
    (0, rows, some), (0, rows, 0.5), (0, rows, some, "sum"), (0, row, some, "prod"), (mask, 0.5), (mask, some),
    (whole,), (0, 1), (1, 0.5, 2), (2, 0, 0.5), ([16],), (row, some[0]), ((row,), some[:, 0]), (some[0], some[0]),
    (some, some[0]), ((row, row), some[0]), (some[None], some[None]), (0,), (DOUBLE,), (some, DOUBLE),
    (some, some, DOUBLE), (-some,), ((2, 2), (2, 1)), (some.to_sparse(),), (False,), (None,), (mask,),
    (some.numpy(),), (1.0, 0.0),
)  # fmt: skip
NOT_OF_DENSE = {"_coalesced_", "resize_as_sparse_", "sparse_resize_", "sparse_resize_and_clear_"}
"""Those of sparse tensors only."""
NO_CHANGE = {"conj_physical_", "squeeze_"}
"""They need a shape or type of their own to change anything; any call that torch takes will do."""
NOT_OF_VALUES = {"share_memory_", "detach_", "requires_grad_"}
"""They leave values as they are; tried apart."""
REFUSED = "is on rank 1 of the pipeline"
PAST = {
    "numpy": lambda p: p.detach().numpy().fill(0.5),
    "data numpy": lambda p: p.data.numpy().fill(0.5),
    "apply": lambda p: p.detach().apply_(lambda x: x * 2),
    "map": lambda p: p.detach().map_(some, lambda a, b: b),
    "storage": lambda p: p.untyped_storage().fill_(1),
    "data storage": lambda p: p.data.untyped_storage().fill_(1),
    "dlpack": lambda p: torch.from_dlpack(p.detach()).zero_(),
    "row": lambda p: p[0].zero_(),
    "view": lambda p: p.view(-1).mul_(2),
    "transposed": lambda p: p.T.mul_(2),
    "data": lambda p: p.data.mul_(2),
    "detached": lambda p: p.detach().add_(1),
    "data =": lambda p: setattr(p, "data", some),
    "data row": lambda p: p.data[0].fill_(2),
    "augmented": lambda p: exec("p += 1", {"p": p}),
    "augmented row": lambda p: exec("p[0] *= 2", {"p": p}),
    "out": lambda p: torch.add(some, some, out=p),
    "data out": lambda p: torch.add(some, some, out=p.data),
    "foreach": lambda p: torch._foreach_mul_([p], 2.0),
    "foreach of data": lambda p: torch._foreach_add_([p.data], 1.0),
    "init": lambda p: nn.init.normal_(p),
    "init of data": lambda p: nn.init.ones_(p.data),
    "vector": lambda p: nn.utils.vector_to_parameters(torch.ones(16), [p]),
    "swap": lambda p: torch.utils.swap_tensors(p, nn.Parameter(some.clone())),
    "dropout": lambda p: nn.functional.dropout(p, inplace=True),
    "relu": lambda p: nn.functional.relu_(p.data.neg_()),
    "lerp": lambda p: p.lerp_(some, 0.5),
    "setstate": lambda p: p.__setstate__((some.untyped_storage(), 0, (4, 4), (4, 1))),
    "renorm": lambda p: nn.functional.embedding(row, p.data, max_norm=0.1),
    "switch": lambda p: p.requires_grad_(False),
    "switched": lambda p: setattr(p, "requires_grad", False),
    "detach": lambda p: p.detach_(),
    "shared": lambda p: p.share_memory_(),
    "optimizer": lambda p: stepped(p),
}
"""Ways past the methods of the parameter itself."""


def changed(name, held, arguments):
    """Whether that changes a plain tensor."""
    plain = held.clone()
    try:
        getattr(plain, name)(*copy.deepcopy(arguments))
    except Exception:
        return False
    if (plain.shape, plain.dtype, plain.stride()) != (held.shape, held.dtype, held.stride()):
        return True
    return plain.numpy().tobytes() != held.numpy().tobytes() or name in NO_CHANGE


def ways():
    """Each method with what it is tried on and with; those of GPUs with arguments that fit."""
    found = {}
    for name in dir(torch.Tensor):
        if changes_in_place(name) and name not in NOT_OF_DENSE | NOT_OF_VALUES and name != "__setstate__":
            cases = ((kind, each) for kind in HELD for each in ARGUMENTS)
            with torch.no_grad():
                shown = (case for case in cases if changed(name, HELD[case[0]], case[1]))
                found[name] = next(shown, ("real", (torch.ones(2, dtype=torch.uint64), 0.0, 1.0)))
    return found


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        for name, value in HELD.items():
            self.register_buffer(f"buffer_{name}", value.clone())
            if value.is_floating_point() or value.is_complex():
                self.register_parameter(f"parameter_{name}", nn.Parameter(value.clone()))

    def forward(self, x):
        return self.linear(x)


def attempt(change):
    """What is said to a change; within a step, where nothing else may have been changed before."""
    try:
        with torch.no_grad():
            change()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        watched, GUARD()._watched = GUARD()._watched, []
        values, GUARD()._values = GUARD()._values, []
    GUARD()._watched, GUARD()._values = watched, values
    try:  # what is only seen behind the line
        GUARD().ran(1)
        GUARD()._look_at_values()
    except SMPStepError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        GUARD()._watched.clear()
        GUARD()._values.clear()
    return "nothing was said"


def everything(part):
    """What is said, by way."""
    found = {}
    for name, case in WAYS.items():
        for sort in ("buffer", "parameter"):
            tensor = getattr(part, f"{sort}_{case[0]}", None)
            if tensor is not None:
                found[f"{sort} {name}"] = attempt(lambda t=tensor, n=name, a=case[1]: getattr(t, n)(*copy.deepcopy(a)))
    for name, way in PAST.items():
        found[f"past {name}"] = attempt(lambda way=way: way(part.parameter_real))
    return found


def stepped(parameter):
    parameter.grad = torch.ones(4, 4)
    torch.optim.SGD([parameter], 0.1).step()


@smp.step
def train(model, x, tries):
    loss = model(x).pow(2).mean()
    if tries and smp.pp_rank() == 0:
        said["step"] = everything(model.module.part)
    model.backward(loss)
    return loss


WAYS = ways()
said = {"step": {}, "outside": {}}
smp.init({"partitions": 2, "auto_partition": False, "default_partition": 0, "skip_tracing": True})
torch.manual_seed(1)
net = Net(Part())
smp.set_partition(net.part, 1)
model = smp.DistributedModel(net)
GUARD = lambda: model._server._routing.guard  # noqa: E731
train(model, some, False)
before = (
    {name: each.clone() for name, each in model.module.part.state_dict(keep_vars=False).items()} if smp.rank() else {}
)
train(model, some, True)
GUARD()._watched.clear()
if smp.rank() == 0:
    said["outside"] = everything(model.module.part)
else:
    after = model.module.part.state_dict()
    assert all(before[name].numpy().tobytes() == each.numpy().tobytes() for name, each in after.items())
missed = {f"{where} {way}": text for where, ways in said.items() for way, text in ways.items() if REFUSED not in text}
unknown = sorted(name for name, case in WAYS.items() if not changed(name, HELD[case[0]], case[1]))
leave(ways={where: len(ways) for where, ways in said.items()}, missed=missed, unknown=unknown)
