"""More ranks: the learning rate that fits a larger batch, gradient accumulation, and fused optimizers.

muster local --hosts 2 --slots 2 examples/training/scaling.py --lr-scale linear --warmup 10
"""

import argparse
import atexit
import contextlib
import math
import time

import torch
import torch.distributed as dist
from digits import accuracy, digits, join_ranks, network, say
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

SCALES = {"none": lambda factor: 1.0, "linear": lambda factor: factor, "sqrt": math.sqrt}


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank, in one pass")
    parser.add_argument("--lr", type=float, default=0.01, help="for --base-batch-size")
    parser.add_argument("--base-batch-size", type=int, default=16, help="over all ranks: what --lr was found with")
    parser.add_argument("--lr-scale", choices=SCALES, default="linear")
    parser.add_argument("--warmup", type=int, default=0, help="steps in which the learning rate rises to its value")
    parser.add_argument("--accumulate", type=int, default=1, help="passes whose gradients are added up for one step")
    parser.add_argument("--no-fused", action="store_true", help="update the weights one by one")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> float:
    """Trains and returns the accuracy on the test set."""
    args = parse(words)
    device = join_ranks()
    batch = args.batch_size * args.accumulate * dist.get_world_size()
    rate = args.lr * SCALES[args.lr_scale](batch / args.base_batch_size)

    train_set, test_set = digits()
    sampler = DistributedSampler(train_set, seed=0)
    loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(network().to(device))
    # fused: one kernel updates all weights, in place of several per weight
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, fused=not args.no_fused)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / (args.warmup + 1)))
    began, steps = time.process_time(), 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for number, (images, labels) in enumerate(loader, 1):
            last = number % args.accumulate == 0
            # no_sync: the ranks exchange gradients in the last pass only. The forward pass must be inside, too.
            with contextlib.nullcontext() if last else model.no_sync():
                loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
                (loss / args.accumulate).backward()  # the mean over all passes, as of one large batch
            if last:
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                steps += 1
        optimizer.zero_grad()  # passes that were left over at the end of the epoch
    spent = time.process_time() - began
    reached = accuracy(model.module, test_set, device)
    say(
        f"{dist.get_world_size()} ranks, batch {batch}, learning rate {rate:.3f}: accuracy {reached:.4f} after {steps} "
        f"steps, {spent:.1f} s of processor time on rank 0"
    )
    dist.destroy_process_group()
    return reached


if __name__ == "__main__":
    atexit.register(time.sleep, 0.1)  # gloo's threads give their last tensors back (docs/torchrun.md)
    main()
