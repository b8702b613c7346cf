"""Callbacks for ``model.fit``."""

from __future__ import annotations

from typing import Any

import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

from ..operations import broadcast_variables, oob_allreduce, size


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Gives every rank the model's and the optimizer's variables of ``root_rank``.

    Before the first batch where the model is built by then, and again behind it, when all variables are there.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self._root, self._done = root_rank, False

    def on_train_begin(self, logs: Any = None) -> None:
        if self.model.built:
            broadcast_variables(self.model.variables, self._root)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._done:
            self._done = True
            variables = self.model.optimizer.variables
            broadcast_variables(self.model.variables, self._root)
            broadcast_variables(variables() if callable(variables) else variables, self._root)


class MetricAverageCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Averages the metrics of an epoch over all ranks, for the callbacks behind it. Put it before those."""

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not logs or size() == 1:
            return
        names = sorted(name for name, value in logs.items() if _is_number(value))
        averages = oob_allreduce(tf.constant([float(logs[name]) for name in names], tf.float64)).numpy()
        logs.update(zip(names, averages.tolist()))


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
