"""Fine-tuning of a network whose first layers are frozen, in the style of book chapters: for GPUs only.

Every rank shuffles the validation set in its own way and parses ``--mp_parameters`` itself. Weights are kept aside
before the first step, and later the best ones, which are put back at the end.
"""

import argparse
import copy
import logging
import os

import numpy as np
import smdistributed.modelparallel.torch as smp
import torch
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

logging.basicConfig(level=logging.INFO)
LOGGER = logging.getLogger(__name__)

smp.init()
LOCAL_RANK = int(os.getenv("LOCAL_RANK", 1))
DEVICE = torch.device("cuda")


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.norm(self.conv(x))
        y += x
        return self.relu(y)


class Network(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True),
            Residual(channels), Residual(channels), nn.MaxPool2d(2),
        )  # fmt: skip
        self.fc = nn.Linear(channels * 16, 10)

    def forward(self, x):
        return self.fc(torch.flatten(self.features(x), 1))


@smp.step
def train_step(model, data, target, criterion):
    output = model(data)
    loss = criterion(output, target)
    model.backward(loss)
    return output, loss


@smp.step
def test_step(model, data, target, criterion):
    output = model(data)
    loss = criterion(output, target)
    return output, loss


def loaders(batch_size):
    digits = np.loadtxt(os.path.join(os.environ["SM_CHANNEL_TRAINING"], "digits.csv.gz"), delimiter=",")
    digits = torch.tensor(digits, dtype=torch.float32)[torch.randperm(1797, generator=torch.Generator().manual_seed(0))]
    inputs, targets = digits[:, :64].reshape(-1, 1, 8, 8) / 16, digits[:, 64].long()
    train = TensorDataset(inputs[:1440], targets[:1440])
    val = TensorDataset(inputs[1440:1760], targets[1440:1760])
    sampler = DistributedSampler(train, num_replicas=smp.dp_size(), rank=smp.dp_rank())
    return {
        "train": DataLoader(train, batch_size=batch_size, sampler=sampler, drop_last=True, pin_memory=True),
        "val": DataLoader(val, batch_size=batch_size, shuffle=True, drop_last=True, pin_memory=True),
    }


def train_model(model, dataloaders, criterion, optimizer, scheduler, num_epochs):
    best_model_wts = copy.deepcopy(model.state_dict())
    best_acc = 0.0
    for epoch in range(num_epochs):
        for phase in ("train", "val"):
            if phase == "train":
                model.train()
            else:
                model.eval()
            running_loss, running_corrects, seen = 0.0, 0, 0
            for data, target in dataloaders[phase]:
                data, target = data.to(DEVICE), target.to(DEVICE)
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    if phase == "train":
                        outputs, loss_mb = train_step(model, data, target, criterion)
                        optimizer.step()
                    else:
                        outputs, loss_mb = test_step(model, data, target, criterion)
                loss = loss_mb.reduce_mean()
                preds = torch.max(outputs.concat(), 1)[1]
                running_loss += loss.item() * data.size(0)
                running_corrects += torch.sum(preds.to(DEVICE) == target.data).item()
                seen += data.size(0)
            # Only pp_rank 0's labels belong to the outputs that all ranks get.
            if phase == "train":
                scheduler.step()
            elif smp.pp_rank() == 0 and running_corrects / seen > best_acc:
                best_acc = running_corrects / seen
            if phase == "val":
                best_acc = smp.allgather(best_acc, smp.PP_GROUP)[0]
                best_model_wts = copy.deepcopy(model.state_dict())
            if smp.rank() == 0:
                print(f"epoch={epoch + 1}; {phase}:loss={running_loss / seen:.4f}; "
                      f"{phase}:accuracy={running_corrects / seen:.4f};", flush=True)  # fmt: skip
    model.load_state_dict(best_model_wts)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_epochs", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--feature_extract", type=int, default=1)
    parser.add_argument("--mp_parameters", type=str, default="")
    parser.add_argument("--model-dir", type=str, default=os.environ["SM_MODEL_DIR"])
    args, _ = parser.parse_known_args()
    if not torch.cuda.is_available():
        raise ValueError("this script needs GPUs")
    torch.cuda.set_device(smp.local_rank())
    torch.manual_seed(1)
    settings = dict(pair.split("=") for pair in args.mp_parameters.split(","))
    microbatches = int(settings["microbatches"])
    LOGGER.info(
        f"rank {smp.rank()} of {smp.size()}, local rank {smp.local_rank()} of {smp.local_size()} ({LOCAL_RANK}), "
        f"model on ranks {smp.get_mp_group()} ({smp.mp_rank()} of {smp.mp_size()}), its copies on {smp.get_dp_group()} "
        f"({smp.dp_rank()} of {smp.dp_size()}); {smp.tp_rank()}, {smp.tp_size()}, {smp.pp_rank()}, {smp.pp_size()}, "
        f"{smp.rdp_rank()}, {smp.rdp_size()}"
    )
    batch_size = args.batch_size // smp.dp_size() // microbatches * microbatches

    network = Network()
    if args.feature_extract:
        for parameter in network.features.parameters():
            parameter.requires_grad = False
    network = network.to(DEVICE)
    params_to_update = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = smp.DistributedOptimizer(optim.SGD(params_to_update, lr=0.01, momentum=0.9))
    scheduler = StepLR(optimizer, step_size=2, gamma=0.5)
    model = smp.DistributedModel(network)
    criterion = nn.CrossEntropyLoss()

    model = train_model(model, loaders(batch_size), criterion, optimizer, scheduler, args.num_epochs)
    if smp.dp_rank() == 0:
        weights, state = model.state_dict(), optimizer.state_dict()
        path = os.path.join(args.model_dir, "checkpoint.pt")
        smp.save({"model_state_dict": weights, "optimizer_state_dict": state}, path, partial=False)
    smp.barrier()
    if smp.rank() == 0:
        print(f"lr={scheduler.get_last_lr()[0]}; local_rank={LOCAL_RANK};", flush=True)


if __name__ == "__main__":
    main()
