"""What scripts do with autograd in a step, in two parts and in one: exact, or refused by name."""

import copy

import smdistributed.modelparallel.torch as smp
import torch
from another import forget, together
from ending import leave
from parts_and_whole import step
from torch import nn
from torch.nn import functional

M = 2


class Forces(nn.Module):
    """Gradients of an energy, inside of one module."""

    def __init__(self):
        super().__init__()
        self.energy = nn.Linear(4, 4)

    def forward(self, x):
        return torch.autograd.grad(torch.tanh(self.energy(x)).pow(2).sum(), x, create_graph=True)[0]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.forces = Forces()
        self.first, self.block, self.last = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 2)
        self.words = nn.Embedding(5, 4, sparse=True)

    def forward(self, x):
        return self.last(self.block(torch.tanh(self.first(x))))


def adversarial(model, net, x, backward):
    """Gradients of inputs leave parameters alone."""
    x = x.detach().requires_grad_()
    (direction,) = torch.autograd.grad(model(x).pow(2).mean(), x)
    loss = model(x + 0.1 * direction.sign()).pow(2).mean()
    backward(loss)
    return loss


def some(model, net, x, backward):
    """Gradients of some parameters, of two losses (GradNorm), with the graph kept."""
    output = model(x)
    losses = output.pow(2).mean(0)
    norms = [torch.autograd.grad(each, net.first.weight, retain_graph=True)[0].norm() for each in losses]
    loss = sum(each * norm.detach() for each, norm in zip(losses, norms))
    backward(loss)
    return loss


def twice(model, net, x, backward):
    output = model(x)
    output.pow(2).mean().backward(retain_graph=True)
    output.sum().backward()
    backward(model(x).mean())
    return output.mean()


def inputs(model, net, x, backward):
    """A backward pass for some tensors only."""
    output = model(x)
    output.sum().backward(inputs=[net.first.weight], retain_graph=True)
    backward(output.pow(2).mean())
    return output.mean()


def branches(model, net, x, backward):
    h = net.block(net.first(x))
    one, two = model(x).mean(), net.last(h * 2).pow(2).mean()
    backward(one + two)
    return one


def sparse(model, net, x, backward):
    loss = functional.embedding(torch.tensor([1, 2, 2]), net.words.weight, sparse=True).pow(2).sum() + model(x).mean()
    backward(loss)
    return loss


def penalty_here(model, net, x, backward):
    """Gradients of gradients, all of it on this rank."""
    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(torch.tanh(net.first(x)).sum(), x, create_graph=True)
    loss = slope.pow(2).mean() + model(x).mean()
    backward(loss)
    return loss


def penalty_there(model, net, x, backward):
    """Inside of one module of another rank."""
    loss = net.forces(torch.tanh(net.first(x))).pow(2).mean() + model(x).mean()
    backward(loss)
    return loss


def penalty(model, net, x, backward):
    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    backward(slope.pow(2).mean())


def penalty_by_backward(model, net, x, backward):
    x = x.detach().requires_grad_()
    model(x).sum().backward(create_graph=True)


def penalty_by_func(model, net, x, backward):
    backward(torch.func.grad(lambda x: model(x).pow(2).sum())(x).pow(2).mean())


def penalty_by_hessian(model, net, x, backward):
    torch.autograd.functional.vhp(lambda x: model(x).pow(2).sum(), x, x)


def again(model, net, x, backward):
    output = model(x)
    output.sum().backward()
    backward(output.mean())


def elsewhere(model, net, x, backward):
    torch.autograd.grad(model(x).sum(), net.block[0].weight)


EXACT = {"adversarial": adversarial, "some": some, "twice": twice, "inputs": inputs, "branches": branches,
         "sparse": sparse, "penalty here": penalty_here, "penalty there": penalty_there}  # fmt: skip
REFUSED = {
    "create_graph": penalty, "create_graph by backward": penalty_by_backward, "create_graph by vhp": penalty_by_hessian,
    "torch.func": penalty_by_func, "a second time": again, "elsewhere": elsewhere,
}  # fmt: skip


def fresh(run):
    forget()
    torch.manual_seed(5)
    net = Net()
    whole = copy.deepcopy(net)
    smp.set_partition(net.block, 1)
    smp.set_partition(net.words, 1)
    smp.set_partition(net.forces, 1)
    return together(smp.DistributedModel(net)), whole


found = {"exact": {}, "refused": {}}
for world in ({}, {"skip_tracing": True}, {"active_microbatches": 1}):
    smp.state._world = None
    smp.init({"microbatches": M, "partitions": 2, "auto_partition": False, "default_partition": 0, **world})
    for name, run in EXACT.items():
        model, whole = fresh(run)
        worst = 0.0
        for number in range(3):
            x = torch.randn(4, 4, generator=torch.Generator().manual_seed(number))
            losses = step(model, x, run).outputs
            for part, loss in zip(x.chunk(M), losses):
                worst = max(worst, (run(whole, whole, part, torch.Tensor.backward).detach() - loss).abs().item())
            for each in whole.parameters():
                if each.grad is not None and number == 0:
                    each.grad = each.grad / M
            if number == 0:
                expected = dict(whole.named_parameters())
                for key, each in model.local_named_parameters():
                    other = expected[key].grad
                    assert (each.grad is None) == (other is None), (name, key, each.grad, other)
                    if other is not None:
                        one, two = (g.to_dense() if g.is_sparse else g for g in (each.grad, other))
                        worst = max(worst, (one - two).abs().max().item())
        found["exact"][f"{name} {world}"] = worst
    for name, run in REFUSED.items():
        model, whole = fresh(run)
        optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))
        try:
            step(model, torch.ones(4, 4), run)
            optimizer.step()
            found["refused"][f"{name} {world}"] = "nothing was said"
        except Exception as error:
            found["refused"][f"{name} {world}"] = f"{type(error).__name__}: {error}"
        before = dict(whole.named_parameters())
        assert all(torch.equal(each, before[key]) for key, each in model.local_named_parameters()), name
leave(**found)
