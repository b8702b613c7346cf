"""A loop as in transformers' Trainer: the calls it makes where a job uses smdistributed.modelparallel.

Dicts of tensors in and a subclass of dict out, gradients of several steps added up, optimizer made after the model,
checkpoints with a hook that loads the optimizer's state after the first step.
"""

import argparse
import json
import os
from collections import OrderedDict
from pathlib import Path

import numpy as np
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel import __version__
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

smp.init()
SMP_VERSION = tuple(int(part) for part in __version__.split("+")[0].split(".")[:2])


class Output(OrderedDict):
    """As transformers' ModelOutput: items that are attributes too, and positions of those that are not None."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key):
        return dict(self.items())[key] if isinstance(key, str) else tuple(self.values())[key]


class Classifier(nn.Module):
    """Sequences of eight rows. The embedding of labels and the head share their weights."""

    def __init__(self, width=32):
        super().__init__()
        self.rows = nn.Linear(8, width)
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True) for _ in range(3)
        )
        self.pool = nn.Linear(8 * width, width)
        self.labels_in = nn.Embedding(10, width)
        self.labels_out = nn.Linear(width, 10, bias=False)
        self.labels_out.weight = self.labels_in.weight

    def forward(self, pixels=None, labels=None, hints=None, return_hidden=None):
        hidden = self.rows(pixels)
        for layer in self.encoder:
            hidden = layer(hidden)
        pooled = self.pool(hidden.flatten(1))
        if hints is not None:
            pooled = pooled + self.labels_in(hints)
        logits = self.labels_out(pooled)
        found = Output()
        if labels is not None:
            found["loss"] = nn.functional.cross_entropy(logits, labels)
        found["logits"] = logits
        if return_hidden:
            found["hidden_states"] = (hidden,)
        return found


@smp.step()
def forward_backward(model, inputs, gradient_accumulation_steps=1):
    outputs = model(**inputs)
    loss = outputs["loss"] if isinstance(outputs, dict) else outputs[0]
    loss /= gradient_accumulation_steps
    model.backward(loss)
    return loss


@smp.step()
def forward_only(model, inputs):
    return model(**inputs)


def gather(tensor):
    if isinstance(tensor, (list, tuple)):
        return type(tensor)(gather(each) for each in tensor)
    return torch.cat([each.cpu() for each in smp.allgather(tensor, smp.CommGroup.DP_GROUP)], dim=0)


def nested_concat(tensor):
    if isinstance(tensor, (list, tuple)):
        return type(tensor)(nested_concat(each) for each in tensor)
    if isinstance(tensor, dict):
        return type(tensor)({name: nested_concat(each) for name, each in tensor.items()})
    return tensor.detach().concat().cpu()


class Trainer:
    def __init__(self, args, device):
        self.args, self.device = args, device
        torch.manual_seed(5)
        self.model = Classifier()
        self.wrapped = self.model
        self.optimizer = self.scheduler = None

    def wrap(self):
        if isinstance(self.wrapped, smp.model.DistributedModel):
            return self.wrapped
        return smp.DistributedModel(self.model, backward_passes_per_step=self.args.accumulate)

    def create_optimizer_and_scheduler(self):
        decay = [each for name, each in self.wrapped.named_parameters() if "norm" not in name and "bias" not in name]
        kept = {id(each) for each in decay}
        rest = [each for each in self.wrapped.parameters() if id(each) not in kept]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]
        self.optimizer = smp.DistributedOptimizer(torch.optim.AdamW(groups, lr=2e-3))
        self.scheduler = LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 10))

    def batches(self, inputs, targets, epoch):
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(epoch))
        for index in order[smp.dp_rank() :: smp.dp_size()].split(self.args.batch_size):
            if len(index) == self.args.batch_size:
                yield {"pixels": inputs[index].to(self.device), "labels": targets[index].to(self.device)}

    def train(self, inputs, targets, resume=None):
        self.model.to(self.device)
        self.wrapped = self.wrap()
        self.create_optimizer_and_scheduler()
        if resume:
            self.load(resume)
        total = torch.tensor(0.0)
        for epoch in range(self.args.epochs):
            for step, batch in enumerate(self.batches(inputs, targets, epoch)):
                self.wrapped.train()
                loss_mb = forward_backward(self.wrapped, batch, self.args.accumulate)
                total += loss_mb.reduce_mean().detach().to("cpu")
                if (step + 1) % self.args.accumulate == 0:
                    self.optimizer.step()
                    self.scheduler.step()
                    self.wrapped.zero_grad()
        return total

    def load(self, folder):
        if os.path.isfile(os.path.join(folder, "user_content.pt")):
            smp.resume_from_checkpoint(path=folder, tag="pytorch_model.bin", partial=False, load_optimizer=False)
        else:
            state_dict = torch.load(os.path.join(folder, "pytorch_model.bin"), map_location="cpu", weights_only=True)
            state_dict["_smp_is_partial"] = False
            self.wrapped.load_state_dict(state_dict, strict=True)

        def load_optimizer(model, optimizer):
            optimizer.load_state_dict(smp.load(os.path.join(folder, "optimizer.pt"), partial=True))

        self.wrapped.register_post_step_hook(load_optimizer)

    def evaluate(self, inputs, targets):
        self.wrapped.eval()
        right, count = 0, 0
        for batch in self.batches(inputs, targets, 0):
            with torch.no_grad():
                outputs = forward_only(self.wrapped, batch)
            loss = outputs["loss"].reduce_mean().detach().cpu()
            logits = nested_concat(tuple(each for name, each in outputs.items() if name != "loss"))[0]
            labels = gather(batch["labels"])
            right += (gather(logits).argmax(dim=1) == labels).sum().item()
            count += len(labels)
        return right / count, loss.item()

    def save(self, folder):
        os.makedirs(folder, exist_ok=True)
        state_dict = self.wrapped.state_dict()
        if smp.rank() == 0:
            torch.save(state_dict, os.path.join(folder, "pytorch_model.bin"))
        if SMP_VERSION >= (1, 10):
            Path(folder, "user_content.pt").touch()
        state = self.optimizer.local_state_dict(gather_if_shard=False)
        smp.barrier()
        if smp.rdp_rank() == 0 or smp.state.cfg.shard_optimizer_state:
            smp.save(state, os.path.join(folder, "optimizer.pt"), partial=True, v3=smp.state.cfg.shard_optimizer_state)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--output", default=os.environ.get("SM_MODEL_DIR"))
    parser.add_argument("--resume", default="")
    parser.add_argument("--mp_parameters", type=str, default="")
    args = parser.parse_args()
    options = json.loads(os.environ.get("SM_HP_MP_PARAMETERS", "{}"))
    assert "partitions" in options, options
    device = torch.device("cuda", smp.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    if smp.state.cfg.fp16 or smp.state.cfg.prescaled_batch:
        raise ValueError("neither half precision nor one batch for several ranks is meant here")
    digits = np.loadtxt(os.path.join(os.environ["SM_CHANNEL_TRAINING"], "digits.csv.gz"), delimiter=",")
    digits = torch.tensor(digits, dtype=torch.float32)[torch.randperm(1797, generator=torch.Generator().manual_seed(0))]
    inputs, targets = digits[:, :64].reshape(-1, 8, 8) / 16, digits[:, 64].long()
    trainer = Trainer(args, device)
    trainer.train(inputs[:1440], targets[:1440], args.resume)
    accuracy, loss = trainer.evaluate(inputs[1440:1760], targets[1440:1760])
    if smp.rank() == 0:
        print(f"test:loss={loss:.4f}; test:accuracy={accuracy:.4f};", flush=True)
    trainer.save(args.output)
    smp.barrier()


if __name__ == "__main__":
    main()
