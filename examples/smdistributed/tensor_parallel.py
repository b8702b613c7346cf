"""Tensor-parallel training of a small vision transformer, on scikit-learn's handwritten digits (8 x 8).

Written as scripts for smdistributed.modelparallel are: nothing in it knows musterpoint. Two ranks share the tensors of
each layer, and with two partitions as well the model is on four. As a job of two hosts with two ranks each:

    muster local --hosts 2 --distribution '{"smdistributed": {"modelparallel": {"enabled": true, "parameters":
        {"tensor_parallel_degree": 2, "partitions": 2, "microbatches": 4, "ddp": true}}},
        "mpi": {"enabled": true, "processes_per_host": 2}}' \
        examples/smdistributed/tensor_parallel.py --epochs 4
"""

import argparse
import os

import smdistributed.modelparallel.torch as smp
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@smp.step
def train_step(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Runs once for each microbatch; what it returns comes back as one value for all of them."""
    loss = nn.functional.cross_entropy(model(images), labels)
    model.backward(loss)
    return loss


@smp.step
def test_step(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    return model(images)


class VisionTransformer(nn.Module):
    """16 patches of 2 x 2 pixels in, scores of ten digits out."""

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, kernel_size=2, stride=2)
        self.positions = nn.Parameter(torch.randn(16, width) / 10)
        # each rank has some of the attention heads and of the intermediate channels
        self.encoder = smp.nn.DistributedTransformer(
            num_layers=depth, num_attention_heads=4, hidden_size=width, intermediate_size=4 * width,
            attention_dropout_prob=0.0, hidden_dropout_prob=0.0,
        )  # fmt: skip
        with smp.tensor_parallelism():  # torch's own modules made here are shared out where their sizes allow it
            self.head = nn.Sequential(nn.Linear(16 * width, 128), nn.GELU(), nn.Linear(128, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        tokens = self.encoder((tokens, None))[0]
        return self.head(tokens.flatten(1))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64, help="over all ranks")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "."))
    parser.add_argument("--mp_parameters", default="", help="the platform passes them here too; smp.init reads them")
    return parser.parse_args()


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Training and test set: images of shape (1, 8, 8) with values from 0 to 1, and their digits."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    inputs = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)[order]
    targets = torch.tensor(labels, dtype=torch.int64)[order]
    return TensorDataset(inputs[:1437], targets[:1437]), TensorDataset(inputs[1437:], targets[1437:])


def evaluate(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    """The share of right answers. All ranks call it, with batches of the same shape: each has a part of the model."""
    images, labels = (tensor.to(device) for tensor in data.tensors)
    model.eval()
    with torch.no_grad():
        scores = test_step(model, images).concat()
    return (scores.argmax(dim=1).to(device) == labels).float().mean().item()


def main() -> None:
    args = parse_args()
    smp.init()
    device = torch.device("cuda", smp.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    train_set, test_set = digits()
    # Each rank that shares tensors has images of its own; with prescaled_batch they would have the same ones.
    same = smp.state.cfg.prescaled_batch
    count, number = (smp.rdp_size(), smp.rdp_rank()) if same else (smp.dp_size(), smp.dp_rank())
    sampler = DistributedSampler(train_set, count, number)
    loader = DataLoader(train_set, batch_size=args.batch_size // count, sampler=sampler, drop_last=True)
    model = smp.DistributedModel(VisionTransformer().to(device))
    optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=args.lr))
    for epoch in range(1, args.epochs + 1):
        model.train()
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = train_step(model, images.to(device), labels.to(device))
            optimizer.step()
        accuracy = evaluate(model, test_set, device)
        if smp.rank() == 0:
            print(f"epoch={epoch}; ranks={smp.size()}; partitions={smp.pp_size()}; tensors={smp.tp_size()}; "
                  f"train:loss={loss.reduce_mean().item():.4f}; test:accuracy={accuracy:.4f};", flush=True)  # fmt: skip
    if smp.rdp_rank() == 0:  # all ranks of one copy of the model: each has a part of what is saved
        smp.save({"model_state_dict": model.state_dict()}, os.path.join(args.model_dir, "checkpoint.pt"), partial=False)
    smp.barrier()


if __name__ == "__main__":
    main()
