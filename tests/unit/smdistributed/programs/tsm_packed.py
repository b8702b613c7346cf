"""Packed sequences over two ranks that share them: attention as in one process; what else is asked for is refused."""

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
import torch
import torch.distributed as dist
from ending import error_of, leave
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.sagemaker.context_parallel import _Sequences, own_part

torch.set_default_dtype(torch.float64)
dist.init_process_group(backend="smddp")
rank, size, length = dist.get_rank(), dist.get_world_size(), 16
sequences = _Sequences(dist.group.WORLD)
PACKED = {
    "one": [[*range(16)], [*range(16)]],
    "packed": [[*range(5), *range(4), *range(7)], [*range(1), *range(9), *range(6)]],
}


def refused(**more):
    part = torch.zeros(1, 2, 4, 3)
    return error_of(sequences.attend, nn.Identity(), part, part, part, None, **more)


found = {}
for name, given in PACKED.items():
    positions = torch.tensor(given)
    torch.manual_seed(1)
    words = torch.randint(9, (2, length))
    whole = [torch.randn(2, 4 if index == 0 else 2, length, 3, requires_grad=True) for index in range(3)]
    numbers = (positions.diff(dim=1, prepend=positions[:, :1] - 1) != 1).cumsum(1)
    mask = torch.ones(length, length).tril().bool() & (numbers.unsqueeze(2) == numbers.unsqueeze(1))
    expected = scaled_dot_product_attention(*whole, attn_mask=mask.unsqueeze(1), enable_gqa=True).transpose(1, 2)
    factor = torch.randn_like(expected)
    (expected * factor).sum().backward()
    kwargs = {"input_ids": own_part(words, rank, size), "position_ids": own_part(positions, rank, size)}
    sequences.before(nn.Identity(), (), kwargs)
    parts = [own_part(each.detach(), rank, size, 2).requires_grad_() for each in whole]
    output, _ = sequences.attend(nn.Identity(), *parts, None, position_ids=kwargs["position_ids"], softcap=None)
    (output * own_part(factor, rank, size)).sum().backward()
    errors = [(output - own_part(expected, rank, size)).abs().max().item()]
    for part, each in zip(parts, whole):
        errors.append((part.grad - own_part(each.grad, rank, size, 2)).abs().max().item())
    found[name] = max(errors)
found["refused"] = [refused(softcap=3.0), refused(s_aux=torch.zeros(1)), refused(is_causal=False)]
leave(**found)
