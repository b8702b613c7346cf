"""What sessions of TensorFlow 1 need."""

from __future__ import annotations

from typing import Any

import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

from .operations import broadcast, world
from .world import Collectives


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Gives every rank the variables of ``root_rank`` when a session of TensorFlow 1 begins; needs Horovod.

    Raises:
        NotImplementedError: Horovod isn't installed: TensorFlow's own operations have no sessions here.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        if isinstance(world(), Collectives):
            raise NotImplementedError(
                "BroadcastGlobalVariablesHook: sessions of TensorFlow 1 need Horovod, which this Python doesn't have; "
                "install it, or call broadcast_variables() in TensorFlow 2"
            )
        self._root, self._operation = root_rank, None

    def begin(self) -> None:
        variables = tf.compat.v1.global_variables()
        assigned = [variable.assign(broadcast(variable, self._root)) for variable in variables]
        self._operation = tf.group(*assigned)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._operation)
