"""Kubeflow's own function and transformers' callback, as far as they are noted; with the real ones: tests/hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

STARTUP = Path(__file__).parents[4] / "src" / "musterpoint" / "embedded" / "startup" / "path"
MODULES = {
    "kubeflow/trainer/backends/kubernetes/utils.py":
        "def update_trainjob_status(progress_percent=None, estimated_remaining_seconds=None, metrics=None):\n"
        "    return (progress_percent, estimated_remaining_seconds, metrics)\n",
    "kubeflow/trainer/__init__.py":
        "from kubeflow.trainer.backends.kubernetes.utils import update_trainjob_status\n",
    "transformers/integrations/integration_utils.py": "class KubeflowCallback: pass\n",
}  # fmt: skip
PROGRAM = """
import transformers.integrations.integration_utils
from kubeflow.trainer import update_trainjob_status
assert update_trainjob_status(140, metrics={"loss": 0.5}) == (140, None, {"loss": 0.5})
assert update_trainjob_status(progress_percent=41, estimated_remaining_seconds=-3) == (41, -3, None)
"""


def test_what_is_sent_is_noted(tmp_path: Path) -> None:
    for name, text in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    note = tmp_path / "progress.json"
    environ = {
        **os.environ, "PYTHONPATH": f"{STARTUP}{os.pathsep}{tmp_path}", "MUSTER_STARTUP": "trainjob_progress",
        "MUSTER_PROGRESS": str(note),
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "progress.json.sent").read_text()) == {
        "progressPercentage": 41, "estimatedRemainingSeconds": 0,
    }  # fmt: skip
    environ["MUSTER_PROGRESS"] = "/nowhere/at/all"
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
