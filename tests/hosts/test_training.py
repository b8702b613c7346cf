"""The examples of examples/training, on two hosts: one job in which one program after the other trains."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import Local

PROGRAM = """
import json, os, sys, time

sys.path.insert(0, {examples!r})
import torch.distributed as dist

# One program after the other in one process: they meet once, and a group that is gone can't be made again at one port.
meet = dist.init_process_group
dist.init_process_group = lambda *words: dist.is_initialized() or meet(*words)
dist.destroy_process_group = lambda: None
import precision, resume, scaling, sharded

kept = {kept!r}
found = {{
    "precision": {{name: precision.main(["--epochs", "3", "--precision", name]) for name in precision.CAST}},
    "fp32": precision.main(["--epochs", "3"]),
    "tf32": precision.main(["--epochs", "3", "--precision", "tf32"]),
    "same rate": scaling.main(["--epochs", "3", "--lr-scale", "none", "--accumulate", "4"]),
    "linear": scaling.main(["--epochs", "3", "--accumulate", "4"]),
    "one by one": scaling.main(["--epochs", "3", "--accumulate", "4", "--no-fused"]),
    "by rank": sharded.main(["--channel", "whole", "--epochs", "2"]),
    "by host": sharded.main(["--epochs", "2"]),
    "whole": resume.main(["--epochs", "3", "--checkpoint-dir", kept + "/whole"]),
    "stopped": resume.main(["--epochs", "3", "--checkpoint-dir", kept + "/parts", "--stop-after-epoch", "1"]),
    "resumed": resume.main(["--epochs", "3", "--checkpoint-dir", kept + "/parts"]),
}}
with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], os.environ["RANK"] + ".json"), "w") as file:
    json.dump(found, file)
time.sleep(0.1)
"""


@pytest.mark.torch
def test_every_example_does_what_the_page_says(local: Local, root: Path, tmp_path: Path) -> None:
    examples = root / "examples" / "training"
    parts, kept = tmp_path / "parts", tmp_path / "kept"
    subprocess.run([local.python, examples / "digits.py", parts, "6"], env=local.environ, check=True)
    program = local.program(PROGRAM.format(examples=str(examples), kept=str(kept)))
    channels = ["--channel", f"train={parts}", "--channel", f"whole={parts}", "--sharded", "train"]
    ran = local.run("--hosts", "2", "--slots", "1", "--launcher", "ranks", *channels, program)
    assert ran.code == 0, ran.stderr
    one, other = (of_rank(local, rank) for rank in range(2))
    assert {**one, "by rank": 0, "by host": 0} == {**other, "by rank": 0, "by host": 0}, "ranks have one model"
    for accuracy in (one["fp32"], one["tf32"], *one["precision"].values(), one["by rank"][1], one["by host"][1]):
        assert accuracy > 0.6
    assert one["linear"] > one["same rate"] + 0.1, "more ranks, or more passes, want a higher learning rate"
    assert one["one by one"] == pytest.approx(one["linear"], abs=0.02)
    names = sorted(path.name for path in parts.iterdir())
    for how in ("by rank", "by host"):
        assert (one[how][0], other[how][0]) == (names[0::2], names[1::2])
    assert one["resumed"] == one["whole"] != one["stopped"], "to the last bit"


def of_rank(local: Local, rank: int) -> dict[str, Any]:
    path = local.output / "hosts" / f"algo-{rank + 1}" / "opt/ml/output/data" / f"{rank}.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found
