"""Checkpoints: a job that was stopped goes on where it was, with the same result as one that was never stopped.

muster local --hosts 2 examples/training/resume.py --epochs 6 --checkpoint-dir "$PWD/kept" --stop-after-epoch 3
muster local --hosts 2 examples/training/resume.py --epochs 6 --checkpoint-dir "$PWD/kept"
"""

import argparse
import atexit
import os
import signal
import time
from types import FrameType

import torch
import torch.distributed as dist
from digits import accuracy, digits, join_ranks, network, say
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

stopping = False


def on_stop(_number: int, _frame: FrameType | None) -> None:
    """The platform's stop: only remembered here, since a checkpoint in the middle of a step would be half a step."""
    global stopping
    stopping = True


def save(path: str, state: dict[str, object]) -> None:
    """The whole file or the old one: a stop may come while it is written."""
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


def load(path: str, device: torch.device) -> dict[str, object]:
    """Rank 0's checkpoint, on every rank; empty at the first start. The other hosts need not have the file."""
    found = [torch.load(path, map_location=device) if dist.get_rank() == 0 and os.path.exists(path) else {}]
    dist.broadcast_object_list(found, device=device)
    return found[0]


def main(words: list[str] | None = None) -> float:
    """Trains and returns the sum of all weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--checkpoint-dir", default=os.environ.get("SM_CHECKPOINT_DIR", "/opt/ml/checkpoints"))
    parser.add_argument("--stop-after-epoch", type=int, default=0, help="ends the job there, as if it were stopped")
    args = parser.parse_args(words)
    signal.signal(signal.SIGTERM, on_stop)
    device = join_ranks()
    path = os.path.join(args.checkpoint_dir, "checkpoint.pt")

    train_set, test_set = digits()
    sampler = DistributedSampler(train_set, seed=0)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    first = 1
    if state := load(path, device):
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        first = state["epoch"] + 1
        say(f"goes on with epoch {first}")
    for epoch in range(first, args.epochs + 1):
        sampler.set_epoch(epoch)  # the order of the images follows from the number of the epoch
        for images, labels in DataLoader(train_set, batch_size=32, sampler=sampler):
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        # All ranks leave together: one alone would let the others wait in the next step.
        stop = torch.tensor(int(stopping or epoch == args.stop_after_epoch), device=device)
        dist.all_reduce(stop, dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            os.makedirs(args.checkpoint_dir, exist_ok=True)
            parts = {"model": model.module, "optimizer": optimizer, "schedule": schedule}
            save(path, {"epoch": epoch, **{name: part.state_dict() for name, part in parts.items()}})
        if stop:
            break
    weights = sum(float(each.detach().double().sum()) for each in model.parameters())
    say(f"epoch {epoch}: accuracy {accuracy(model.module, test_set, device):.4f}, sum of weights {weights:.9f}")
    dist.destroy_process_group()
    return weights


if __name__ == "__main__":
    atexit.register(time.sleep, 0.1)  # gloo's threads give their last tensors back (docs/torchrun.md)
    main()
