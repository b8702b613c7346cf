"""XGBoost on scikit-learn's handwritten digits, each rank with its own part of the rows; the trees are one model's.

The tracker in which the ranks find each other runs on the leader; DMLC_* variables say where. Run it on two hosts of
this machine:

    muster local --hosts 2 --launcher ranks examples/xgboost/digits.py --rounds 5
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import xgboost
from sklearn.datasets import load_digits
from xgboost import collective


def communicator() -> dict[str, Any]:
    """What ``CommunicatorContext`` has to be told; it reads no variables itself. A single rank needs nothing."""
    if "DMLC_TRACKER_URI" not in os.environ:
        return {}
    return {
        "dmlc_tracker_uri": os.environ["DMLC_TRACKER_URI"],
        "dmlc_tracker_port": int(os.environ["DMLC_TRACKER_PORT"]),
        "dmlc_task_id": os.environ["DMLC_TASK_ID"],
    }


def train(rounds: int, shards: int | None) -> None:
    rank, size = collective.get_rank(), collective.get_world_size()
    shards = size if shards is None else shards
    print(f"rank {rank} of {size}", flush=True)
    if rank >= shards:
        raise LookupError(f"there are {shards} shards, and none for rank {rank}")
    images, labels = load_digits(return_X_y=True)
    rows = xgboost.DMatrix(images[rank::shards], labels[rank::shards])
    losses: dict[str, dict[str, list[float]]] = {}
    options = {"objective": "multi:softprob", "num_class": 10, "tree_method": "hist", "max_depth": 4, "nthread": 1}
    model = xgboost.train(options, rows, rounds, [(rows, "all")], evals_result=losses, verbose_eval=False)
    for epoch, loss in enumerate(losses["all"]["mlogloss"]):
        print(f"rank {rank} epoch {epoch}: loss {loss:.4f}", flush=True)
    if rank == 0:
        path = Path(os.environ.get("SM_MODEL_DIR", ".")) / "model.json"
        model.save_model(path)
        print(f"saved {path}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shards", type=int, default=None, help="parts of the data (default: one for each rank)")
    options = parser.parse_args()
    told = communicator()
    if not told:
        train(options.rounds, options.shards)
        return
    with collective.CommunicatorContext(**told):  # around all of the training: the tracker serves one group at a time
        train(options.rounds, options.shards)


if __name__ == "__main__":
    main()
