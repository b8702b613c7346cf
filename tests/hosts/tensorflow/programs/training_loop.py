"""A training loop of its own under MultiWorkerMirroredStrategy, with a Keras 3 model and the TF_CONFIG it was given."""

import argparse
import json
import os

import tensorflow as tf
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
args = parser.parse_args()

strategy = tf.distribute.MultiWorkerMirroredStrategy()
worker = strategy.cluster_resolver.task_id
config = json.loads(os.environ["TF_CONFIG"])
print("CONFIG", json.dumps(config), "keras", tf.keras.__version__, flush=True)

tf.keras.utils.set_random_seed(0)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((64,)), tf.keras.layers.Dense(10)])

images, labels = load_digits(return_X_y=True)
data = tf.data.Dataset.from_tensor_slices(((images / 16).astype("float32"), labels)).repeat().batch(90)
batches = iter(strategy.experimental_distribute_dataset(data))


def replica(images, labels):
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))
        loss = tf.reduce_sum(losses) / 90
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
    for variable, gradient in zip(model.trainable_variables, gradients):
        variable.assign_sub(0.5 * gradient)
    return loss


@tf.function
def step(images, labels):
    return strategy.reduce("sum", strategy.run(replica, args=(images, labels)), axis=None)


losses = [float(step(*next(batches))) for _ in range(args.steps)]
print(f"worker {worker} losses {[round(loss, 6) for loss in losses]}", flush=True)
if worker == 0:
    model.save(os.path.join(os.environ["SM_MODEL_DIR"], "digits.keras"))
