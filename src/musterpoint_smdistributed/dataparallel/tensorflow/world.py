"""The ranks of a job, and the two operations that all else is made of, by Horovod or by TensorFlow itself."""

from __future__ import annotations

import os
import zlib
from typing import Any, Literal, Mapping, Protocol

import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

from ...shared.meeting import TOKEN, meet
from ...shared.rank_environment import Place, place

Merge = Literal["sum", "min", "max"]


class World(Protocol):
    """All ranks. ``name`` says what carries the data."""

    name: str
    rank: int
    size: int
    local_rank: int
    local_size: int

    def reduce(self, tensor: Any, merge: Merge, label: str) -> Any:
        """The sum (or …) of ``tensor`` over all ranks, on each; ``label`` is the same on all, and this tensor's own."""

    def broadcast(self, tensor: Any, root: int, label: str) -> Any:
        """Rank ``root``'s ``tensor``, which has this shape and type on all ranks."""

    def close(self) -> None:
        """Ends it."""


def make_world() -> World:
    """Horovod's world where it is installed and has as many ranks as were started; else TensorFlow's."""
    own = place(os.environ)
    return _horovod(own.size) or (Collectives(own, os.environ) if own.size > 1 else Alone())


def _horovod(size: int) -> World | None:
    try:
        import horovod.tensorflow as hvd  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        return None
    hvd.init()
    if hvd.size() != size:  # the launcher is one that Horovod doesn't know
        hvd.shutdown()
        return None
    return Horovod(hvd)


class Alone:
    """One rank, which no launcher started or which is the only one."""

    name = "nothing: there is one rank"
    rank = local_rank = 0
    size = local_size = 1

    def reduce(self, tensor: Any, merge: Merge, label: str) -> Any:
        return tf.convert_to_tensor(tensor)

    def broadcast(self, tensor: Any, root: int, label: str) -> Any:
        return tf.convert_to_tensor(tensor)

    def close(self) -> None:
        pass


class Horovod:
    """Horovod's ranks and operations."""

    name = "Horovod"

    def __init__(self, hvd: Any) -> None:
        self._hvd = hvd
        self.rank, self.size = hvd.rank(), hvd.size()
        self.local_rank, self.local_size = hvd.local_rank(), hvd.local_size()

    def reduce(self, tensor: Any, merge: Merge, label: str) -> Any:
        operation = {"sum": self._hvd.Sum, "min": self._hvd.Min, "max": self._hvd.Max}[merge]
        return self._hvd.allreduce(tensor, op=operation, name=_scope(label))

    def broadcast(self, tensor: Any, root: int, label: str) -> Any:
        return self._hvd.broadcast(tensor, root, name=_scope(label))

    def close(self) -> None:
        self._hvd.shutdown()


def _scope(label: str) -> str:
    """``label`` as the name of an operation."""
    return f"smdistributed.{label.replace(' ', '.')}"


LEADER = "/job:worker/replica:0/task:0"
_GROUP = 1
_MERGES = {"sum": "Add", "min": "Min", "max": "Max"}


class Collectives:
    """TensorFlow's collective operations between a server in each rank.

    The servers start when TensorFlow does, so that a script may still choose its GPU after ``init()``. Every operation
    has a key by its label, type and shape: ranks whose functions were traced in another order still agree.
    """

    name = "TensorFlow's collective operations"

    def __init__(self, own: Place, environ: Mapping[str, str]) -> None:
        from tensorflow.python.eager import context  # type: ignore[import-untyped,import-not-found,unused-ignore]

        self.rank, self.size, self.local_rank, self.local_size = own
        address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
        if not address or not port:
            raise RuntimeError(
                "smdistributed.dataparallel: MASTER_ADDR and MASTER_PORT don't say where rank 0 is: set both"
            )
        ranks = meet(self.rank, self.size, address, int(port), environ.get(TOKEN, ""))
        cluster = tf.train.ClusterSpec({"worker": ranks})
        task = f"/job:worker/task:{self.rank}"
        config = tf.compat.v1.ConfigProto(device_filters=[task])
        config.experimental.collective_group_leader = LEADER
        config.gpu_options.allow_growth = True
        if len(tf.config.list_physical_devices("GPU")) >= self.local_size > 1:
            config.gpu_options.visible_device_list = str(self.local_rank)
        server = tf.train.ServerDef(
            cluster=cluster.as_cluster_def(),
            default_session_config=config,
            job_name="worker",
            task_index=self.rank,
            protocol="grpc",
        )
        context.context().configure_collective_ops(collective_leader=LEADER, device_filters=(task,))
        context.context().enable_collective_ops(server)
        self._labels: dict[int, str] = {}
        self._last: Any = None

    def reduce(self, tensor: Any, merge: Merge, label: str) -> Any:
        tensor = tf.convert_to_tensor(tensor)
        key = self._key(f"{merge} {label}", tensor)
        with self._after_the_last():
            return self._ordered(
                tf.raw_ops.CollectiveReduceV2(
                    input=tensor,
                    group_size=self.size,
                    group_key=_GROUP,
                    instance_key=key,
                    ordering_token=[],
                    merge_op=_MERGES[merge],
                    final_op="Id",
                    communication_hint="auto",
                )
            )

    def broadcast(self, tensor: Any, root: int, label: str) -> Any:
        tensor = tf.convert_to_tensor(tensor)
        key = self._key(f"from {root} {label}", tensor)
        place = {"group_size": self.size, "group_key": _GROUP, "instance_key": key, "communication_hint": "auto"}
        with self._after_the_last():
            if self.rank == root:
                return self._ordered(tf.raw_ops.CollectiveBcastSendV2(input=tensor, **place))
            return self._ordered(tf.raw_ops.CollectiveBcastRecvV2(shape=tensor.shape, T=tensor.dtype, **place))

    def close(self) -> None:
        pass  # TensorFlow's server ends with the process

    def _key(self, label: str, tensor: Any) -> int:
        text = f"{label} {tensor.dtype.name} {tuple(tensor.shape)}"
        key = zlib.crc32(text.encode()) & 0x7FFFFFFF
        if self._labels.setdefault(key, text) != text:
            raise RuntimeError(
                f"smdistributed.dataparallel: {text!r} and {self._labels[key]!r} have one key: rename one"
            )
        return key

    def _after_the_last(self) -> Any:
        """In a function the operations run one after the other, in the order in which the script names them: two that
        run at once could wait for each other on different ranks.
        """
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        same = graph is not None and self._last is not None and self._last.graph is graph
        return tf.control_dependencies([self._last] if same else [])

    def _ordered(self, result: Any) -> Any:
        self._last = None if tf.executing_eagerly() else result
        return result
