"""Number formats: float32, TF32, bfloat16 or float16, with what each of them needs.

muster local --hosts 2 examples/training/precision.py --precision bf16
"""

import argparse
import atexit
import time

import torch
import torch.distributed as dist
from digits import accuracy, digits, join_ranks, network, say
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

CAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def main(words: list[str] | None = None) -> float:
    """Trains and returns the accuracy on the test set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="fp32")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args(words)
    device = join_ranks()
    # Weights and gradients stay float32 in all four. TF32 shortens the inputs of matrix products on GPUs that have it.
    torch.set_float32_matmul_precision("high" if args.precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    # autocast computes matrix products and convolutions in the short format, and sums and losses in float32.
    cast = torch.autocast(device.type, CAST.get(args.precision, torch.float32), enabled=args.precision in CAST)
    # float16 has no numbers below 6e-8: the loss is multiplied before backward, so that small gradients survive.
    scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "fp16")

    train_set, test_set = digits()
    sampler = DistributedSampler(train_set, seed=0)
    loader = DataLoader(train_set, batch_size=32, sampler=sampler)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    began, steps = time.process_time(), 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            with cast:
                loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)  # leaves the step out if a gradient is infinite, and scales less from then on
            scaler.update()
            steps += 1
    milliseconds = 1000 * (time.process_time() - began) / steps
    with cast:
        reached = accuracy(model.module, test_set, device)
    say(f"{args.precision}: accuracy {reached:.4f}, {milliseconds:.1f} ms of processor time per step, {steps} steps")
    dist.destroy_process_group()
    return reached


if __name__ == "__main__":
    atexit.register(time.sleep, 0.1)  # gloo's threads give their last tensors back (docs/torchrun.md)
    main()
