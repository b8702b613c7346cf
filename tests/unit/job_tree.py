"""The tree of a job, as the platform would make it."""

from __future__ import annotations

import json
from pathlib import Path

PROGRAM = "print('never run')\n"


def write_tree(
    base: Path, hyperparameters: dict[str, str], hosts: int = 1, current: int = 1, code: str = PROGRAM
) -> Path:
    """Writes the files of host ``current`` of ``hosts``, and train.py, below ``base``."""
    config = base / "input" / "config"
    names = [f"algo-{number + 1}" for number in range(hosts)]
    resources = {"current_host": f"algo-{current}", "hosts": names, "network_interface_name": "eth0"}
    for folder in (config, base / "code"):
        folder.mkdir(parents=True, exist_ok=True)
    (base / "code" / "train.py").write_text(code)
    (config / "hyperparameters.json").write_text(json.dumps(hyperparameters))
    (config / "resourceconfig.json").write_text(json.dumps(resources))
    (config / "inputdataconfig.json").write_text("{}")
    return base
