"""Image classification in the style of the first examples: Adadelta, partial checkpoints, ``test`` on rank 0 alone.

The steps return numbers, which come back as lists; the network is in two groups, and the second has dropout.
"""

import argparse
import os

import numpy as np
import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Subset, TensorDataset


class Net1(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, 1)
        self.conv2 = nn.Conv2d(16, 32, 3, 1)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        return torch.flatten(x, 1)


class Net2(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(128, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = self.fc2(self.dropout(x))
        return F.log_softmax(x, 1)


class GroupedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = Net1()
        self.net2 = Net2()

    def forward(self, x):
        return self.net2(self.net1(x))


@smp.step
def train_step(args, model, data, target):
    output = model(data)
    loss = F.nll_loss(output, target, reduction="mean")
    model.backward(loss)
    return output, loss


@smp.step
def test_step(model, data, target):
    output = model(data)
    loss = F.nll_loss(output, target, reduction="sum").item()
    correct = output.argmax(dim=1, keepdim=True).eq(target.view_as(output.argmax(dim=1, keepdim=True))).sum().item()
    return loss, correct


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        _, loss_mb = train_step(args, model, data, target)
        loss = loss_mb.reduce_mean()
        optimizer.step()
        if smp.rank() == 0 and batch_idx % args.log_interval == 0:
            print(f"epoch={epoch}; batch={batch_idx}; train:loss={loss.item():.4f};", flush=True)


def test(model, device, loader):
    model.eval()
    test_loss, correct, seen = 0.0, 0, 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            loss_batch, correct_batch = test_step(model, data, target)
            test_loss += sum(loss_batch)
            correct += sum(correct_batch)
            seen += len(data)
    print(f"test:loss={test_loss / seen:.4f}; test:accuracy={correct / seen:.4f};", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--log_interval", type=int, default=10)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR"))
    parser.add_argument("--checkpoints", default=os.environ.get("CHECKPOINTS"))
    parser.add_argument("--mp_parameters", type=str, default="")
    args = parser.parse_args()
    smp.init()
    device = "cpu"
    if torch.cuda.is_available():
        torch.cuda.set_device(smp.local_rank())
        device = "cuda"
    torch.manual_seed(3)

    digits = np.loadtxt(os.path.join(os.environ["SM_CHANNEL_TRAINING"], "digits.csv.gz"), delimiter=",")
    digits = torch.tensor(digits, dtype=torch.float32)[torch.randperm(1797, generator=torch.Generator().manual_seed(0))]
    inputs, targets = digits[:, :64].reshape(-1, 1, 8, 8) / 16, digits[:, 64].long()
    dataset = TensorDataset(inputs[:1440], targets[:1440])
    if smp.dp_size() > 1:
        dataset = Subset(dataset, range(smp.dp_rank(), 1440, smp.dp_size()))
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = None
    if smp.rank() == 0:
        test_set = TensorDataset(inputs[1440:1760], targets[1440:1760])
        test_loader = DataLoader(test_set, batch_size=args.batch_size, shuffle=True, drop_last=True)

    model = smp.DistributedModel(GroupedNet())
    optimizer = smp.DistributedOptimizer(optim.Adadelta(model.parameters(), lr=4.0))
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, loader, optimizer, epoch)
        scheduler.step()
    if smp.rank() == 0:
        test(model, device, test_loader)
    smp.barrier()

    if smp.dp_rank() == 0:  # each rank of one model its part
        model_dict, opt_dict = model.local_state_dict(), optimizer.local_state_dict()
        path = os.path.join(args.checkpoints, "mnist.pt")
        smp.save({"model_state_dict": model_dict, "optimizer_state_dict": opt_dict}, path, partial=True)
    smp.barrier()
    print(f"rank {smp.rank()} is through", flush=True)


if __name__ == "__main__":
    main()
