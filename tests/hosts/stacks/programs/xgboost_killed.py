"""Runs the program given, whose last rank is killed in the middle of training, in the first attempt."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from typing import Any

import xgboost
from xgboost import collective

train = xgboost.train


class Killed(xgboost.callback.TrainingCallback):  # type: ignore[misc,unused-ignore]
    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if epoch == 1 and collective.get_rank() == collective.get_world_size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return False


if os.environ["MUSTER_ATTEMPT"] == "0":
    xgboost.train = lambda *words, **options: train(*words, callbacks=[Killed()], **options)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
