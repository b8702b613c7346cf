"""Data-parallel training of a small network on scikit-learn's handwritten digits (1,797 real images of 8 x 8 pixels).

An ordinary DistributedDataParallel script: it reads what every launcher sets (RANK, WORLD_SIZE, LOCAL_RANK and where
to meet) and where SageMaker wants the model (SM_MODEL_DIR). Run it on two hosts of this machine with

    muster local --hosts 2 examples/digits_ddp/train.py --epochs 20
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="over all ranks")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "."))
    return parser.parse_args()


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Training and test set: images of shape (1, 8, 8) with values from 0 to 1, and their digits."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train_images, test_images = (
        torch.tensor(part / 16, dtype=torch.float32).reshape(-1, 1, 8, 8) for part in parts[:2]
    )
    train_labels, test_labels = (torch.tensor(part, dtype=torch.int64) for part in parts[2:])
    return TensorDataset(train_images, train_labels), TensorDataset(test_images, test_labels)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    model.eval()
    images, labels = (tensor.to(device) for tensor in data.tensors)
    return (model(images).argmax(dim=1) == labels).float().mean().item()


def main() -> None:
    args = parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    train_set, test_set = digits()
    sampler = DistributedSampler(train_set, seed=0)
    loader = DataLoader(train_set, batch_size=max(1, args.batch_size // world_size), sampler=sampler)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    if rank == 0:
        print(f"{len(train_set)} images to learn from, {world_size} ranks, {device.type}", flush=True)

    for epoch in range(1, args.epochs + 1):
        model.train()
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            mean = total.item() / (len(loader) * world_size)
            print(
                f"epoch={epoch}; train:loss={mean:.4f}; test:accuracy={accuracy(model.module, test_set, device):.4f};",
                flush=True,
            )

    if rank == 0:
        path = os.path.join(args.model_dir, "model.pt")
        torch.save(model.module.state_dict(), path)
        print(f"saved {path}", flush=True)
    dist.barrier()  # rank 0 saves alone; nobody leaves before it has
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads give their last tensors back; Python must not end before (docs/torchrun.md)


if __name__ == "__main__":
    main()
