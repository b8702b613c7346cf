"""A model trained with smp: in parts, a batch in microbatches. without_smp.py prints the same loss with plain PyTorch.

    muster local --slots 2 --distribution '{"smdistributed": {"modelparallel": {"enabled": true, "parameters":
        {"partitions": 2, "microbatches": 4, "ddp": true}}}}' examples/smdistributed/with_smp.py

With {"sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0, "ddp": true, "microbatches": 4} in place of
partitions each rank has a part of every layer, as in without_smp.py.
"""

import os

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn


@smp.step
def train_step(model, inputs, targets):
    loss = nn.functional.mse_loss(model(inputs), targets)
    model.backward(loss)
    return loss


smp.init()
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(4)]
model = smp.DistributedModel(nn.Sequential(*layers, nn.Linear(32, 1)))
optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))
for _ in range(20):
    inputs = torch.randn(64, 32)
    inputs = inputs.chunk(smp.dp_size())[smp.dp_rank()]  # the part of this copy of the model; its rank 0's counts
    optimizer.zero_grad()
    loss = train_step(model, inputs, inputs.sum(dim=1, keepdim=True).sin())
    optimizer.step()
losses = smp.allgather(loss.reduce_mean().item(), smp.DP_GROUP)
print(f"loss={sum(losses) / len(losses):.6f}")
smp.save(model.state_dict(), os.path.join(os.environ.get("SM_MODEL_DIR", "."), "model.pt"), partial=False)
