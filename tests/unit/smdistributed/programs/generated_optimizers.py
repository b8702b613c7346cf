"""Optimizers of generated models: torch's, and some that scripts have of their own."""

import torch
from torch import nn


class Own(torch.optim.Optimizer):
    """``update``: from a parameter, its gradient and its state what is subtracted, times the rate."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    each.sub_(group["lr"] * self.update(each, each.grad, self.state[each]))


class Soft(Own):
    """Lion with a softer sign, so that it doesn't make much of last digits; element by element."""

    def update(self, parameter, gradient, state):
        momentum = state.setdefault("momentum", torch.zeros_like(parameter))
        found = torch.tanh(10 * (0.9 * momentum + 0.1 * gradient))
        momentum.mul_(0.99).add_(gradient, alpha=0.01)
        return found


class Trust(Own):
    """LAMB's ratio of norms, for each parameter."""

    def update(self, parameter, gradient, state):
        return gradient * (parameter.norm() + 0.1) / (gradient.norm() + 1)


class Two(torch.optim.Optimizer):
    """Another optimizer for matrices than for the rest, inside of one."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})
        every = [each for group in self.param_groups for each in group["params"]]
        matrices = [each for each in every if each.dim() > 1]
        rest = [each for each in every if each.dim() < 2]
        self.inner = {"rest": [torch.optim.SGD(rest, lr)]} if rest else {}
        self.matrices = torch.optim.AdamW(matrices, lr, eps=1e-2)

    def step(self, closure=None):
        for each in (self.matrices, *self.inner.get("rest", ())):
            each.step()


def muon(params, lr):
    """Torch's, which takes matrices only."""
    groups = [{**each, "params": [one for one in each["params"] if one.dim() == 2]} for each in params]
    return torch.optim.Muon([each for each in groups if each["params"]], lr)


MADE = {
    "SGD": (torch.optim.SGD, {}), "momentum": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "Adam": (torch.optim.Adam, {"eps": 1e-2}), "AdamW": (torch.optim.AdamW, {"eps": 1e-2, "amsgrad": True}),
    "NAdam": (torch.optim.NAdam, {"eps": 1e-2}), "RMSprop": (torch.optim.RMSprop, {"eps": 0.1, "centered": True}),
    "Adagrad": (torch.optim.Adagrad, {"eps": 1e-2}), "Rprop": (torch.optim.Rprop, {"step_sizes": (1e-6, 0.02)}),
    "ASGD": (torch.optim.ASGD, {}), "Adafactor": (torch.optim.Adafactor, {}), "Muon": (muon, {}),
    "soft": (Soft, {}), "trust": (Trust, {}), "two": (Two, {}),
}  # fmt: skip


def clip(kind, parameters):
    """Clips gradients as a script does. ``kind``: empty for one that doesn't."""
    given = list(parameters)
    gradients = [each.grad for each in given if each.grad is not None]
    if kind == "norm":
        nn.utils.clip_grad_norm_(given, 0.1)
    if kind == "value":
        nn.utils.clip_grad_value_(given, 0.02)
    if kind == "total":
        nn.utils.clip_grads_with_norm_(given, 0.1, nn.utils.get_total_norm(gradients))
    if kind == "hand":
        for each in gradients:
            each.clamp_(-0.02, 0.02)


def clip_more(parameters, limit):
    """Clips at a norm where there is more than that."""
    given = list(parameters)
    total = nn.utils.get_total_norm([each.grad for each in given if each.grad is not None])
    if total > limit:
        nn.utils.clip_grads_with_norm_(given, limit, total)
