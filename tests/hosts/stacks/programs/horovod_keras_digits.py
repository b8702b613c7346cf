"""Keras training on scikit-learn's digits (the NPZ file given) with horovod.tensorflow.keras and its callbacks."""

from __future__ import annotations

import hashlib
import sys

import horovod.tensorflow.keras as hvd
import numpy
import tensorflow as tf

hvd.init()
rank, size = hvd.rank(), hvd.size()
data = numpy.load(sys.argv[1])
images, labels = data["images"].astype("float32") / 16, data["labels"]
mine = slice(rank, len(images) - len(images) % size, size)

tf.keras.utils.set_random_seed(rank)  # the broadcast makes them one
model = tf.keras.Sequential([tf.keras.layers.Dense(32, "relu", input_shape=(64,)), tf.keras.layers.Dense(10)])
model.compile(
    optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.legacy.Adam(5e-3)),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
history = model.fit(images[mine], labels[mine], batch_size=32, epochs=3, shuffle=False, callbacks=callbacks, verbose=0)
for epoch, loss in enumerate(history.history["loss"]):
    print(f"rank {rank} epoch {epoch}: loss {loss:.6f}", flush=True)
weights = b"".join(value.tobytes() for value in model.get_weights())
print(f"rank {rank} of {size} weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
