"""Hugging Face's accelerate on scikit-learn's handwritten digits (1,797 real images of 8 x 8 pixels).

Nothing in the script says how many ranks there are: the Accelerator finds out. Two hosts of this machine:

    muster local --hosts 2 --slots 2 --launcher accelerate examples/huggingface/accelerated.py --epochs 5
"""

import argparse
import atexit
import os
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "."))
    return parser.parse_args()


def digits() -> TensorDataset:
    """Images of shape (64,) with values from 0 to 1, and their digits."""
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))


def main() -> None:
    args = parse_args()
    accelerator = Accelerator()
    rank, world_size = accelerator.process_index, accelerator.num_processes
    print(f"rank {rank} of {world_size} on {accelerator.device}, {accelerator.mixed_precision}", flush=True)
    set_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    loader = DataLoader(digits(), batch_size=args.batch_size, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(1, args.epochs + 1):
        total = torch.zeros((), device=accelerator.device)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            total += loss.detach()
        mean = accelerator.reduce(total, "mean").item() / len(loader)
        print(f"rank {rank} epoch {epoch}: loss {mean:.6f}", flush=True)
    plain = accelerator.unwrap_model(model)
    print(f"rank {rank} weights {sum(float(each.detach().sum()) for each in plain.parameters()):.6f}", flush=True)
    if accelerator.is_main_process:
        torch.save(plain.state_dict(), os.path.join(args.model_dir, "model.pt"))
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    atexit.register(time.sleep, 0.1)  # gloo's threads give their last tensors back (docs/torchrun.md)
    main()
