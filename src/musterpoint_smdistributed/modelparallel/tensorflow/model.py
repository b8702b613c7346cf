"""The model's class, its partitions and its checkpoints."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

from ..backend.exceptions import SMPUnsupportedError
from .world import rank


class DistributedModel(tf.keras.Model):  # type: ignore[misc]
    """A Keras model, to be subclassed with a ``call``; each rank has all of it."""

    def save_model(self, save_path: str = "/opt/ml/model") -> None:
        """Saves the whole model for serving, on rank 0."""
        if rank() == 0:
            tf.saved_model.save(self, save_path)


@contextlib.contextmanager
def partition(index: int) -> Iterator[None]:
    """Places what is made inside on partition ``index``; there is only 0. Raises SMPUnsupportedError: it is another."""
    if index:
        raise SMPUnsupportedError(
            f"smp.partition({index}): musterpoint's smdistributed.modelparallel.tensorflow has one partition, 0; use "
            "smdistributed.modelparallel.torch with PyTorch to divide a model"
        )
    yield


def register_post_partition_hook(hook: Callable[[], Any]) -> Callable[[], Any]:
    """Calls ``hook`` now: the model is as divided as it will be."""
    hook()
    return hook


class CheckpointManager:
    """``tf.train.CheckpointManager`` by AWS's names; data-parallel replicas are alike, so rank 0's is saved."""

    def __init__(
        self,
        checkpoint: Any,
        directory: str = "/opt/ml/checkpoints",
        max_to_keep: int | None = None,
        checkpoint_name: str = "ckpt",
    ) -> None:
        self._checkpoint = checkpoint
        self._manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep, checkpoint_name=checkpoint_name)

    @property
    def directory(self) -> str:
        return str(self._manager.directory)

    def save(self, *args: Any, **kwargs: Any) -> Any:
        """Saves on rank 0; the path, None elsewhere."""
        return self._manager.save(*args, **kwargs) if rank() == 0 else None

    def restore(self, save_path: str | None = None) -> Any:
        """Restores the newest checkpoint, or that of ``save_path``."""
        return self._checkpoint.restore(save_path or self._manager.latest_checkpoint)
