"""Changes of a model while it is trained, in parts and in one process alike.

A moment is a call of the step function, two a step; those below 0 come before the model is wrapped.
"""

import smdistributed.modelparallel.torch as smp
import torch
from generated_blocks import WIDTH
from torch import nn

OLD = {"thaws": [], "adds": False, "zeroes": False, "replaces": None, "hooks": [], "dials": "", "caches": False}
"""Values for specs that were drawn before these were."""
WRAPPING = -1
CAPTURED = []
"""Outputs that hooks have seen, for the loss of the same microbatch."""


def capture(module, args, output):
    CAPTURED.append(output)


def enlarge(module, args, output):
    return output * 1.5


def name(module, args, kwargs):
    """The same call, with another number and other words."""
    return (args[0] * 0.5,), {**dict(zip(("ids", "others"), args[1:])), **kwargs}


def halve(gradient):
    return gradient * 0.5


def halve_all(parameter):
    parameter.grad.mul_(0.5)


def register(hook, block):
    """Registers a hook; its handle, or None: plain torch lets no frozen parameter have one."""
    kind = hook["kind"]
    if kind == "name":
        return block.register_forward_pre_hook(name, with_kwargs=True)
    if kind in ("capture", "enlarge"):
        return block.register_forward_hook({"capture": capture, "enlarge": enlarge}[kind])
    parameter = getattr(block.linear, hook["name"])
    if not parameter.requires_grad:
        return None
    if kind == "halve":
        return parameter.register_hook(halve)
    return parameter.register_post_accumulate_grad_hook(halve_all)


def wanted(spec, parameters):
    """Parameters that an optimizer is made with."""
    return [each for each in parameters if each.requires_grad or not spec["adds"]]


def add(net, optimizer):
    """Gives an optimizer a group of what it doesn't have of the trained parameters."""
    known = {id(each) for group in optimizer.param_groups for each in group["params"]}
    new = [each for each in net.parameters() if each.requires_grad and id(each) not in known]
    if new:
        optimizer.add_param_group({"params": new, "lr": 0.03})


def dialed(name, value):
    """Another value of a number among buffers; None: it is no such number."""
    if name.endswith(".alpha"):
        return value * 0.9
    return value % 3 + 1 if name.endswith(".shift") else None


class Life:
    """Brings about what a spec says of moments.

    Args:
        make: an optimizer by the spec and a model.
    """

    def __init__(self, spec, make):
        self.spec, self.make, self.handles = spec, make, {}

    def begin(self, net):
        """Brings about what comes before the model is wrapped."""
        self._switch(WRAPPING, net)
        self._hook(WRAPPING, net)

    def before(self, step):
        """The moments of the steps before one."""
        return [2 * each + part for each in range(step) for part in range(self.spec["accumulates"])]

    def reach(self, moment, model, optimizer, alone):
        """Brings about a moment; the optimizer, which may be another one then."""
        alone.optimizer = self._of(alone.replicas, moment, alone.optimizer, lambda made: made)
        return self._of([model.module], moment, optimizer, smp.DistributedOptimizer)

    def dial(self, model, alone):
        """Changes numbers between steps; a checkpoint has those of its own."""
        if self.spec["dials"] == "load":
            state = model.state_dict()
            new = {name: dialed(name, each) for name, each in state.items()}
            model.load_state_dict({name: state[name] if each is None else each for name, each in new.items()})
        elif self.spec["dials"] and model.partitioned:
            set_all(model.local_named_buffers())
        else:
            return
        for net in alone.replicas:
            set_all(net.named_buffers())

    def _of(self, nets, moment, optimizer, wrap):
        replaces = self.spec["replaces"] or {"moment": None}
        changed = is_due = replaces["moment"] == moment
        for net in nets:
            if is_due:
                self._replace(replaces, net)
            changed |= self._switch(moment, net) and self.spec["adds"]
            self._hook(moment, net)
        if is_due and replaces["makes"]:
            return wrap(self.make(self.spec, nets[0]))
        if changed:
            add(nets[0], optimizer)
        return optimizer

    def _switch(self, moment, net):
        """Changes who is to be trained; whether anything was."""
        chosen = [(start, trains) for at, start, trains in self.spec["thaws"] if at == moment]
        for start, trains in chosen:
            for name, each in net.named_parameters():
                if name.startswith(start):
                    each.requires_grad_(trains)
        return bool(chosen)

    def _hook(self, moment, net):
        for index, hook in enumerate(self.spec["hooks"]):
            if hook["moment"] == moment:
                self.handles[index, net] = register(hook, net.blocks[hook["block"]])
            if hook["until"] == moment and self.handles[index, net]:
                self.handles[index, net].remove()

    def _replace(self, replaces, net):
        block = net.blocks[replaces["block"]]
        with torch.random.fork_rng():
            torch.manual_seed(self.spec["seed"])
            if replaces["what"] == "head":
                net.last = nn.Linear(WIDTH, 2)
            elif replaces["what"] == "module":
                block.add_module("added", nn.Linear(WIDTH, WIDTH))
            elif replaces["what"] == "attribute":
                block.gain = nn.Parameter(torch.rand(WIDTH) + 0.5)
            else:
                block.register_parameter("gain", nn.Parameter(torch.rand(WIDTH) + 0.5))


@torch.no_grad()
def set_all(buffers):
    for name, each in buffers:
        value = dialed(name, each)
        if value is not None:
            each.copy_(value)
