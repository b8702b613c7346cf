"""What one process computes that has the whole model, and how far from it the ranks that share it are."""

import torch


def distance(one, two):
    assert one.shape == two.shape, (one.shape, two.shape)
    return (one.double() - two.double()).abs().max().item() if one.numel() else 0.0


class Worst(dict):
    """The largest error in each kind of value."""

    def note(self, what, error):
        self[what] = max(self.get(what, 0.0), error if error == error else float("inf"))


def gradients(model, alone):
    """This rank's parameters that have gradients, and the whole model's, which has them for the same ones."""
    expected = dict(alone.named_parameters())
    for name, parameter in model.local_named_parameters():
        assert (parameter.grad is None) == (expected[name].grad is None), name
        if parameter.grad is not None:
            yield parameter, expected[name]


def plain_step(alone, batches, own, microbatches, computed):
    """The gradients of all ranks' ``batches`` in one process; what the rank's ``own`` gave, and its buffers.

    ``computed``: what a microbatch comes to, an output and a loss. Buffers stay as the first rank has them.
    """
    state = {name: buffer.clone() for name, buffer in alone.named_buffers()}
    outputs, losses, found = [], [], []
    for rank, (x, y) in enumerate(batches):
        _fill(alone, state)
        for xs, ys in zip(x.chunk(microbatches), y.chunk(microbatches)):
            output, loss = computed(xs, ys)
            (loss / (microbatches * len(batches))).backward()
            if rank == own:
                outputs.append(output.detach())
                losses.append(loss.detach())
        found.append({name: buffer.clone() for name, buffer in alone.named_buffers()})
    _fill(alone, found[0])
    return torch.cat(outputs), torch.stack(losses), found[own]


@torch.no_grad()
def _fill(alone, state):
    for name, buffer in alone.named_buffers():
        buffer.copy_(state[name])
