"""Data-parallel training with AWS's ``smddp`` backend, on scikit-learn's handwritten digits (1,797 images, 8 x 8).

Written as scripts for smdistributed.dataparallel are: nothing in it knows musterpoint. As a job of two hosts on this
machine, with mpirun or, where there is none, torchrun:

    muster local --hosts 2 --distribution '{"smdistributed": {"dataparallel": {"enabled": true}}}' \
        examples/smdistributed/data_parallel.py --epochs 8
"""

import argparse
import os

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - makes the backend known
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group(backend="smddp")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64, help="over all ranks")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "."))
    return parser.parse_args()


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Training and test set: images of shape (1, 8, 8) with values from 0 to 1, and their digits."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    inputs = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)[order]
    targets = torch.tensor(labels, dtype=torch.int64)[order]
    return TensorDataset(inputs[:1440], targets[:1440]), TensorDataset(inputs[1440:], targets[1440:])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


@torch.no_grad()
def evaluate(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    model.eval()
    images, labels = (tensor.to(device) for tensor in data.tensors)
    return (model(images).argmax(dim=1) == labels).float().mean().item()


def main() -> None:
    args = parse_args()
    rank, world_size, local_rank = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    train_set, test_set = digits()
    sampler = DistributedSampler(train_set, world_size, rank)
    loader = DataLoader(train_set, batch_size=max(1, args.batch_size // world_size), sampler=sampler)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        model.train()
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images.to(device)), labels.to(device)).backward()
            optimizer.step()
        if rank == 0:  # alone, and through the model that all ranks share
            accuracy = evaluate(model, test_set, device)
            print(f"epoch={epoch}; ranks={world_size}; test:accuracy={accuracy:.4f};", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(args.model_dir, "model.pt"))


if __name__ == "__main__":
    main()
