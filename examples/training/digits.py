"""What the examples of this directory share: scikit-learn's handwritten digits (1,797 real images of 8 x 8 pixels).

As a program it writes the training images as files of about the same size, for sharded.py:

    python digits.py DIRECTORY 8
"""

import os
import sys

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import TensorDataset


def join_ranks() -> torch.device:
    """Meets the other ranks; the device of this one. Every launcher sets the variables that this reads."""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        return torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("gloo")
    return torch.device("cpu")


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Training and test set: images of shape (1, 8, 8) with values from 0 to 1, and their digits."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    shaped = [torch.tensor(part / 16, dtype=torch.float32).reshape(-1, 1, 8, 8) for part in parts[:2]]
    classes = [torch.tensor(part, dtype=torch.int64) for part in parts[2:]]
    return TensorDataset(shaped[0], classes[0]), TensorDataset(shaped[1], classes[1])


def network() -> nn.Module:
    """Without batch normalization: its statistics would depend on the batch of each rank."""
    torch.manual_seed(0)  # every rank begins with the same weights
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    images, labels = (tensor.to(device) for tensor in data.tensors)
    return (model(images).argmax(dim=1) == labels).float().mean().item()


def say(text: str) -> None:
    """Prints on rank 0 alone."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def write_files(folder: str, count: int) -> None:
    """The training set as ``count`` files of tensors, shuffled, so that each file has every digit in it."""
    images, labels = digits()[0].tensors
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    os.makedirs(folder, exist_ok=True)
    for number, rows in enumerate(order.chunk(count)):
        torch.save((images[rows].clone(), labels[rows].clone()), os.path.join(folder, f"part-{number:03}.pt"))


if __name__ == "__main__":
    write_files(sys.argv[1], int(sys.argv[2]))
