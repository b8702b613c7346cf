"""Input in files: each rank reads its own part of them.

    python examples/training/digits.py parts 8
    muster local --hosts 2 --channel train=parts examples/training/sharded.py
    muster local --hosts 2 --channel train=parts --sharded train examples/training/sharded.py

The first job gives every host all files, and ranks take theirs by rank. In the second each host has its own files, as
with SageMaker's ShardedByS3Key, and only the ranks of one host share them out. The job's settings say which it is.
"""

import argparse
import atexit
import json
import os
import time

import torch
import torch.distributed as dist
from digits import accuracy, digits, join_ranks, network, say
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def my_files(channel: str) -> list[str]:
    """The files of this rank."""
    folder = os.environ[f"SM_CHANNEL_{channel.upper()}"]
    settings = json.loads(os.environ["SM_INPUT_DATA_CONFIG"])[channel]
    place, ranks = dist.get_rank(), dist.get_world_size()
    if settings["S3DistributionType"] == "ShardedByS3Key":  # the other hosts' files aren't here
        place, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))[place::ranks]]


def main(words: list[str] | None = None) -> tuple[list[str], float]:
    """Trains and returns the names of this rank's files, and the accuracy on the test set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channel", default="train")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    args = parser.parse_args(words)
    device = join_ranks()
    files = my_files(args.channel)
    if not files:
        raise ValueError(f"rank {dist.get_rank()} has no file: there are fewer files than ranks")
    images, labels = (torch.cat(parts) for parts in zip(*(torch.load(file) for file in files)))
    names = [os.path.basename(file) for file in files]
    print(f"rank {dist.get_rank()}: {len(labels)} images from {', '.join(names)}", flush=True)

    # Ranks have different numbers of images, and every step needs all of them: they agree on the smallest number.
    steps = torch.tensor(len(labels) // args.batch_size, device=device)
    dist.all_reduce(steps, dist.ReduceOp.MIN)
    torch.manual_seed(dist.get_rank())  # each rank shuffles its own files
    loader = DataLoader(TensorDataset(images, labels), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(args.epochs):
        for _, (some, classes) in zip(range(int(steps)), loader):
            loss = nn.functional.cross_entropy(model(some.to(device)), classes.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    reached = accuracy(model.module, digits()[1], device)
    say(f"accuracy {reached:.4f}, {int(steps)} steps per epoch")
    dist.destroy_process_group()
    return names, reached


if __name__ == "__main__":
    atexit.register(time.sleep, 0.1)  # gloo's threads give their last tensors back (docs/torchrun.md)
    main()
