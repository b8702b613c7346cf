"""Gradients of TensorFlow over all ranks, by AWS's names, against those of one process; then ``model.fit``."""

from __future__ import annotations

import os
import sys

import numpy
import smdistributed.dataparallel.tensorflow as sdp
import tensorflow as tf

sdp.init()
try:
    sdp.init()
except RuntimeError as error:
    print(error)
rank, size = sdp.rank(), sdp.size()
print(f"rank {rank} of {size}, local {sdp.local_rank()} of {sdp.local_size()}, on {os.environ['SM_CURRENT_HOST']}")


def loss_on(shard: int, weights: list[tf.Variable]) -> tf.Tensor:
    """The loss on the data of rank ``shard``; the weights are a matrix, a vector and rows that are looked up."""
    generator = numpy.random.default_rng(shard)
    dtype = weights[0].dtype
    inputs, wanted = (tf.constant(generator.normal(size=(6, width)), dtype) for width in (4, 3))
    rows = tf.gather(weights[2], generator.integers(5, size=6))
    return tf.reduce_mean((tf.tanh(inputs @ weights[0]) * weights[1] + rows - wanted) ** 2)


def weights_of(seed: int, dtype: tf.DType) -> list[tf.Variable]:
    generator = numpy.random.default_rng(seed)
    return [tf.Variable(generator.normal(size=shape), dtype=dtype) for shape in ((4, 3), (3,), (5, 3))]


@tf.function
def step(weights: list[tf.Variable]) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        loss = loss_on(rank, weights)
    return sdp.DistributedGradientTape(tape).gradient(loss, weights)


for dtype, within in ((tf.float64, 1e-12), (tf.float32, 1e-6)):
    weights = weights_of(100 + rank, dtype)  # others on each rank, until rank 0's are sent
    sdp.broadcast_variables(weights, root_rank=0)
    own = weights_of(100, dtype)
    with tf.GradientTape() as tape:
        mean = tf.add_n([loss_on(shard, own) for shard in range(size)]) / size
    expected = [tf.convert_to_tensor(each).numpy() for each in tape.gradient(mean, own)]
    for _ in range(2):
        found = step(weights)
    with tf.GradientTape() as tape:
        loss = loss_on(rank, weights)
    eager = sdp.DistributedGradientTape(tape).gradient(loss, weights)
    for gradients in (found, eager):
        worst = max(float(abs(g.numpy() - e).max()) for g, e in zip(gradients, expected))
        assert worst <= within, (dtype, worst)

for op, wanted in (("SUM", sum(range(size))), ("MIN", 0), ("MAX", size - 1)):
    assert sdp.oob_allreduce(tf.constant([rank]), op=sdp.ReduceOp[op]).numpy().tolist() == [wanted], op
half = sdp.allreduce(tf.constant([1.0 + rank]), 0, 1, compression=sdp.Compression.fp16)
assert half.dtype == tf.float32 and half.numpy()[0] == 1 + (size - 1) / 2
assert sdp.broadcast(tf.constant([rank == 1]), 1).numpy().tolist() == [True]

import smdistributed.dataparallel.tensorflow.keras as dist  # noqa: E402

tf.keras.utils.set_random_seed(rank)
model = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="tanh"), tf.keras.layers.Dense(1)])
model.compile(dist.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
generator = numpy.random.default_rng(rank)
averages = dist.callbacks.MetricAverageCallback()
fitted = model.fit(
    generator.normal(size=(16, 3)), generator.normal(size=(16, 1)), batch_size=4, epochs=2, verbose=0,
    callbacks=[dist.callbacks.BroadcastGlobalVariablesCallback(0), averages],
)  # fmt: skip
for number, each in enumerate(model.trainable_variables):
    least, most = (sdp.allreduce(each, number, 4, op=sdp.ReduceOp[op]).numpy() for op in ("MIN", "MAX"))
    assert (least == most).all(), f"weights {number} differ"
from smdistributed.dataparallel.tensorflow.operations import world  # noqa: E402

if world().name == "Horovod":  # sessions of TensorFlow 1
    with tf.Graph().as_default():
        weight = tf.compat.v1.get_variable("w", initializer=tf.constant([2.0 + rank], tf.float64), use_resource=True)
        descent = sdp.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5))
        train = descent.minimize(tf.reduce_sum(weight**2) * (1.0 + rank))
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=[sdp.BroadcastGlobalVariablesHook(0)]) as session:
            session.run(train)
            (value,) = session.run(weight)
    assert abs(value - (2 - 0.5 * 4 * (1 + (size - 1) / 2))) < 1e-12, value
print(f"rank {rank}: exact, by {world().name}; losses {[round(each, 9) for each in fitted.history['loss']]}")
sys.stdout.flush()
sdp.shutdown()
