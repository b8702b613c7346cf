"""A script for AWS's smdistributed.modelparallel with TensorFlow: each batch in four microbatches.

    muster local --hosts 1 --slots 1 --distribution '{"smdistributed": {"modelparallel": {"enabled": true, "parameters":
        {"partitions": 1, "microbatches": 4}}}, "mpi": {"enabled": true, "processes_per_host": 1}}' \\
        examples/smdistributed/tensorflow_microbatches.py
"""

import os

import numpy
import smdistributed.modelparallel.tensorflow as smp
import tensorflow as tf

smp.init()


class Model(smp.DistributedModel):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = tf.keras.layers.Dense(16, activation="tanh")
        self.last = tf.keras.layers.Dense(1)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.last(self.hidden(inputs))


generator = numpy.random.default_rng(0)
inputs = generator.normal(size=(512, 8)).astype("float32")
wanted = numpy.sin(inputs.mean(axis=1, keepdims=True))
data = tf.data.Dataset.from_tensor_slices((inputs, wanted)).batch(32, drop_remainder=True)
model, optimizer = Model(), tf.keras.optimizers.Adam(0.02)


@smp.step
def get_grads(batch: tf.Tensor, labels: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(batch) - labels) ** 2)
    return tape.gradient(loss, model.trainable_variables), loss


@tf.function
def train_step(batch: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    gradients, loss = get_grads(batch, labels)
    optimizer.apply_gradients(zip([each.accumulate() for each in gradients], model.trainable_variables))
    return loss.reduce_mean()


model(inputs[:1])
for epoch in range(5):
    for batch, labels in data:
        loss = train_step(batch, labels)
    print(f"epoch={epoch}; train:loss={float(loss):.6f};", flush=True)
model.save_model(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
