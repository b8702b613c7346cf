"""A script for AWS's smdistributed.dataparallel with TensorFlow, which runs with musterpoint's as it is.

    muster local --hosts 2 --slots 1 --distribution '{"smdistributed": {"dataparallel": {"enabled": true}}}' \\
        examples/smdistributed/tensorflow_data_parallel.py
"""

import os

import numpy
import smdistributed.dataparallel.tensorflow as sdp
import tensorflow as tf

sdp.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[sdp.local_rank()], "GPU")

generator = numpy.random.default_rng(0)
inputs = generator.normal(size=(512, 8)).astype("float32")
wanted = (inputs @ generator.normal(size=(8, 1)).astype("float32")) + 1
mine = slice(sdp.rank(), None, sdp.size())
data = tf.data.Dataset.from_tensor_slices((inputs[mine], wanted[mine])).batch(32)

model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.SGD(0.05)


@tf.function
def train_step(batch: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(batch, training=True) - labels) ** 2)
    gradients = sdp.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return sdp.oob_allreduce(loss)


sdp.broadcast_variables(model.variables, root_rank=0)
for epoch in range(5):
    for batch, labels in data:
        loss = train_step(batch, labels)
    if sdp.rank() == 0:
        print(f"epoch={epoch}; train:loss={float(loss):.6f};", flush=True)
if sdp.rank() == 0:
    tf.saved_model.save(model, os.path.join(os.environ["SM_MODEL_DIR"], "1"))
