"""Lightning on scikit-learn's handwritten digits (1,797 real images of 8 x 8 pixels).

The ranks are there already, so that Lightning starts none: devices and num_nodes have to say how many there are. Two
hosts of this machine:

    muster local --hosts 2 --slots 2 --launcher ranks examples/lightning/digits.py --epochs 2
"""

import argparse
import atexit
import os
import time

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse_args() -> argparse.Namespace:
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--devices", type=int, default=devices)
    parser.add_argument("--num-nodes", type=int, default=int(os.environ.get("WORLD_SIZE", "1")) // devices)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "."))
    return parser.parse_args()


class Digits(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, at):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def on_train_epoch_end(self) -> None:
        loss = self.trainer.callback_metrics["loss"]
        print(f"rank {self.global_rank} epoch {self.current_epoch + 1}: loss {loss:.6f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)


def main() -> None:
    args = parse_args()
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    lightning.seed_everything(0, verbose=False)
    model = Digits()
    trainer = lightning.Trainer(
        devices=args.devices, num_nodes=args.num_nodes, strategy="ddp", max_epochs=args.epochs, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, DataLoader(data, batch_size=args.batch_size, shuffle=True))
    weights = sum(float(each.detach().sum()) for each in model.parameters())
    print(f"rank {trainer.global_rank} of {trainer.world_size} weights {weights:.6f}", flush=True)
    trainer.save_checkpoint(os.path.join(args.model_dir, "digits.ckpt"))


if __name__ == "__main__":
    atexit.register(time.sleep, 0.1)  # gloo's threads give their last tensors back (docs/torchrun.md)
    main()
