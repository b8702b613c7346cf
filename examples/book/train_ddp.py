"""A training script that knows nothing but CUDA and nccl, as it is written for GPU instances.

Rank 0 alone evaluates, through the DistributedDataParallel model: a habit that works with nccl. The images are
scikit-learn's handwritten digits.
"""

import argparse
import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler


def datasets() -> tuple[TensorDataset, TensorDataset]:
    images, labels = load_digits(return_X_y=True)
    every = TensorDataset(torch.from_numpy(images).float().div(16).reshape(-1, 1, 8, 8), torch.from_numpy(labels))
    return random_split(every, [1437, 360], torch.Generator().manual_seed(0))


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def train_one_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, scaler: object) -> float:
    model.train()
    running = 0.0
    for images, labels in loader:
        images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        optimizer.zero_grad()
        with torch.cuda.amp.autocast():
            loss = nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        running += loss.item()
    torch.cuda.synchronize()
    return running / len(loader)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    correct = sum((model(images.cuda()).argmax(1) == labels.cuda()).sum().item() for images, labels in loader)
    return correct / len(loader.dataset)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    dist.init_process_group(backend="nccl", rank=int(os.getenv("RANK", 0)), world_size=int(os.getenv("WORLD_SIZE", 1)))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda")
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)

    model = DDP(build_model().to(device), device_ids=[int(os.environ["LOCAL_RANK"])])
    batch_size = max(args.batch_size // dist.get_world_size(), 1)
    train_set, test_set = datasets()
    sampler = DistributedSampler(train_set)
    loader = DataLoader(
        train_set, batch_size=batch_size, shuffle=False, num_workers=0, pin_memory=True, sampler=sampler
    )
    test_loader = DataLoader(test_set, batch_size=256)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scaler = torch.cuda.amp.GradScaler()

    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        loss = train_one_epoch(model, loader, optimizer, scaler)
        if dist.get_rank() == 0:
            print(
                f"epoch={epoch}; train:loss={loss:.4f}; test:accuracy={evaluate(model, test_loader):.4f};", flush=True
            )

    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
    dist.barrier()  # rank 0 evaluates alone; nobody leaves before it is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
