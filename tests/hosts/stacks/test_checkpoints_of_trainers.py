"""Checkpoints as transformers, Lightning and DeepSpeed write them: killed in a save, and gone on from elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest
from tests.conftest import clean

DIES = """
import os, signal, sys
def dies(event, args, saves=[0]):
    written = args[0] if event == "open" and args[1] and args[1][0] in "wx" else args[1] if event == "os.rename" else ""
    if isinstance(written, str) and written.endswith(os.environ.get("DIES_AT", "/nowhere")):
        saves[0] += 1
        if saves[0] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(dies)
"""
"""Begins a program that is killed when it comes to a file for the third time."""
TRANSFORMERS = """
import os, torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint
directory = os.environ["SM_CHECKPOINT_DIR"]
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        out = self.layer(x)
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}
data = [{"x": torch.ones(4), "labels": torch.ones(1)} for _ in range(64)]
last = get_last_checkpoint(directory)
print("from", last and os.path.basename(last), flush=True)
steps = 6 if last else 3
args = TrainingArguments(output_dir=directory, max_steps=steps, save_steps=1, save_total_limit=2, report_to=[],
                         use_cpu=True, per_device_train_batch_size=2, disable_tqdm=True)
trainer = Trainer(Model(), args, train_dataset=data)
trainer.train(resume_from_checkpoint=last)
print("at", trainer.state.global_step, flush=True)
"""
LIGHTNING = """
import os, torch, lightning
directory = os.environ["SM_CHECKPOINT_DIR"]
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _):
        return self.layer(batch).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=4)
last = os.path.join(directory, "last.ckpt")
begun = torch.load(last, weights_only=False)["epoch"] + 1 if os.path.exists(last) else 0
print("from epoch", begun, flush=True)
saves = lightning.pytorch.callbacks.ModelCheckpoint(dirpath=directory, save_last=True, every_n_epochs=1)
trainer = lightning.Trainer(max_epochs=6 if os.path.exists(last) else 3, accelerator="cpu", callbacks=[saves],
                            logger=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model(), data, ckpt_path=last if os.path.exists(last) else None)
print("at", trainer.current_epoch, flush=True)
"""


DEEPSPEED = """
import os, deepspeed, torch
import torch.distributed as dist
directory = os.environ["SM_CHECKPOINT_DIR"]
deepspeed.init_distributed(dist_backend="gloo")
model = torch.nn.Linear(4, 1)
config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2},
          "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}}}
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
path, client = engine.load_checkpoint(directory)
step = client["step"] if path else 0
print("from step", step, flush=True)
for step in range(step + 1, 4 + 3 * bool(path)):
    loss = engine(torch.ones(4, 4)).mean()
    engine.backward(loss)
    engine.step()
    engine.save_checkpoint(directory, client_state={"step": step})
print("at", step, flush=True)
dist.destroy_process_group()
"""
TRAINERS = {
    "transformers": (TRANSFORMERS, "huggingface", "trainer_state.json", "from None", "from checkpoint-2", "at 6"),
    "lightning": (LIGHTNING, "huggingface", "last.ckpt", "from epoch 0", "from epoch 2", "at 6"),
    "deepspeed": (DEEPSPEED, "deepspeed", "latest", "from step 0", "from step 2", "at 6"),
}
"""Program, stack, what is written last, and what it says: at first, when it goes on, and at its end."""


@pytest.mark.parametrize("name", TRAINERS)
def test_goes_on_from_what_was_kept(name: str, tmp_path: Path, stack: Callable[[str], Path]) -> None:
    """Killed in the third save, before what makes it whole: the second one is gone on from, on another disk."""
    program, environment, last, begins, goes_on, ends = TRAINERS[name]
    (tmp_path / "train.py").write_text(DIES + program)
    environ = {**clean({}), "MUSTER_PYTHON": str(stack(environment) / "python")}
    launcher = ("torchrun", "--slots", "2") if name == "deepspeed" else ("script",)
    words = [sys.executable, "-m", "musterpoint", "launch", "--job-name", "j", "--launcher", *launcher]
    words += ["--checkpoints", str(tmp_path / "place"), "train.py"]
    for more, code, said in (({"DIES_AT": last}, 137, (begins,)), ({}, 0, (goes_on, ends))):
        done = subprocess.run(words, cwd=tmp_path, env={**environ, **more}, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert all(each in done.stdout for each in said), done.stdout + done.stderr
        subprocess.run(["rm", "-rf", str(tmp_path / "muster-jobs")], check=True)
