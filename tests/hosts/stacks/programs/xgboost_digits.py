"""Trains XGBoost on every other row of the digits per rank; ``fail``: rank 1 raises within the communicator."""

from __future__ import annotations

import os
import sys

import numpy
import xgboost
from xgboost import collective

COMMUNICATOR = {
    "dmlc_tracker_uri": os.environ["DMLC_TRACKER_URI"],
    "dmlc_tracker_port": int(os.environ["DMLC_TRACKER_PORT"]),
    "dmlc_task_id": os.environ["DMLC_TASK_ID"],
}


def main(data: str, then: str = "") -> None:
    with collective.CommunicatorContext(**COMMUNICATOR), numpy.load(data) as digits:
        rank, size = collective.get_rank(), collective.get_world_size()
        print(f"rank {rank} of {size} is task {os.environ['DMLC_TASK_ID']}, {os.environ['RANK']}", flush=True)
        if then == "fail" and rank == 1:
            raise LookupError("no such shard")
        rows = xgboost.DMatrix(digits["images"][rank::size], digits["labels"][rank::size] == 3, nthread=1)
        losses: dict[str, dict[str, list[float]]] = {}
        options = {"tree_method": "hist", "nthread": 1, "objective": "binary:logistic"}
        model = xgboost.train(options, rows, 4, [(rows, "all")], evals_result=losses, verbose_eval=False)
        for epoch, loss in enumerate(losses["all"]["logloss"]):
            print(f"rank {rank} epoch {epoch}: loss {loss:.5f}", flush=True)
        print(f"trees {hash(tuple(model.get_dump()))}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
