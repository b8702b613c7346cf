"""Checkpoints as transformers and Lightning write them: kept while they train, and gone on from on another disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest
from tests.conftest import clean

pytestmark = pytest.mark.timeout(600)

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
print("from", "last.ckpt" if os.path.exists(last) else None, flush=True)
saves = lightning.pytorch.callbacks.ModelCheckpoint(dirpath=directory, save_last=True, every_n_epochs=1)
trainer = lightning.Trainer(max_epochs=6 if os.path.exists(last) else 3, accelerator="cpu", callbacks=[saves],
                            logger=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model(), data, ckpt_path=last if os.path.exists(last) else None)
print("at", trainer.current_epoch, flush=True)
"""


@pytest.mark.parametrize(
    ("program", "last"), [(TRANSFORMERS, "checkpoint-3"), (LIGHTNING, "last.ckpt")], ids=["transformers", "lightning"]
)
def test_goes_on_from_what_was_kept(program: str, last: str, tmp_path: Path, stack: Callable[[str], Path]) -> None:
    (tmp_path / "train.py").write_text(program)
    environ = {**clean({}), "MUSTER_PYTHON": str(stack("huggingface") / "python")}
    for before, after in ((None, 3), (last, 6)):
        words = [sys.executable, "-m", "musterpoint", "launch", "--job-name", "j", "--launcher", "script"]
        words += ["--checkpoints", str(tmp_path / "place"), "train.py"]
        done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        assert f"from {before}" in done.stdout and f"at {after}" in done.stdout, done.stdout + done.stderr
        subprocess.run(["rm", "-rf", str(tmp_path / "muster-jobs")], check=True)
