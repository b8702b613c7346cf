"""Microbatches of ``smdistributed.modelparallel.tensorflow`` on each rank, against the whole batch in one piece.

Before it the script of its first argument runs, which starts smdistributed.dataparallel; behind it that of the second.
"""

from __future__ import annotations

import os
import runpy
import sys

import numpy
import smdistributed.modelparallel.tensorflow as smp
import tensorflow as tf

first, last = (word for word in sys.argv[1:] if word.endswith(".py"))
runpy.run_path(first)
asked = os.environ["SM_HP_MP_PARAMETERS"]
os.environ["SM_HP_MP_PARAMETERS"] = asked.replace('"partitions":1', '"partitions":2')
try:
    smp.init()
except NotImplementedError as error:
    print(error)
os.environ["SM_HP_MP_PARAMETERS"] = asked
smp.init()
smp.init()  # a second call does nothing
assert (smp.num_microbatches(), smp.mp_size(), smp.dp_size()) == (4, 1, smp.size())


class Model(smp.DistributedModel):
    def __init__(self) -> None:
        super().__init__()
        with smp.partition(0):
            self.dense = tf.keras.layers.Dense(3, dtype="float64")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.tanh(self.dense(inputs))


model = Model()
generator = numpy.random.default_rng(7)
images, labels = generator.normal(size=(8, 5)), generator.normal(size=(3, 8))
model(images)


@smp.step(non_split_inputs=["scale"], input_split_axes={"labels": 1})
def gradients_of(images: tf.Tensor, labels: tf.Tensor, scale: tf.Tensor) -> tuple[list[tf.Tensor], ...]:
    assert images.shape == (2, 5) and labels.shape == (3, 2), (images.shape, labels.shape)
    with tf.GradientTape() as tape:
        predictions = model(images)
        loss = tf.reduce_mean((predictions * scale - tf.transpose(labels)) ** 2)
    return tape.gradient(loss, model.trainable_variables), loss, predictions


scale = tf.constant([2.0, 1.0, 0.5], tf.float64)


@tf.function
def train_step(images: tf.Tensor, labels: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
    gradients, loss, predictions = gradients_of(images, labels, scale)
    return [each.accumulate() for each in gradients], loss.reduce_mean(), predictions.merge()


found, loss, predictions = train_step(tf.constant(images), tf.constant(labels))
with tf.GradientTape() as tape:
    whole = model(images)
    wanted = tf.reduce_mean((whole * scale - labels.T) ** 2)
for mine, plain in zip((*found, loss, predictions), (*tape.gradient(wanted, model.trainable_variables), wanted, whole)):
    assert abs(mine.numpy() - plain.numpy()).max() <= 1e-12
try:
    gradients_of(images[:7], labels, scale)
except ValueError as error:
    print(error)
manager = smp.CheckpointManager(tf.train.Checkpoint(model=model), os.environ["SM_OUTPUT_DATA_DIR"], max_to_keep=1)
saved = manager.save()
assert (saved is None) == (smp.rank() != 0)
kept = model.dense.kernel.numpy()
if saved:
    model.dense.kernel.assign(kept * 0)
    manager.restore()
    assert (model.dense.kernel.numpy() == kept).all()
model.save_model(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
smp.barrier()
print(f"rank {smp.rank()} of {smp.size()}: microbatches are exact", flush=True)
runpy.run_path(last)
