"""A parameter-server program of TensorFlow 2 with an evaluator beside it, both in one script, as its guide shows it."""

import os
import sys
import time

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
print(f"{resolver.task_type} {resolver.task_id} of {resolver.cluster_spec().jobs}", flush=True)
if resolver.task_type == "evaluator":
    while True:
        time.sleep(1)  # looks for checkpoints until it is ended
if resolver.task_type in ("worker", "ps"):
    sys.exit("servers are no business of this program")

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0)


@tf.function
def add():
    total.assign_add(1.0)
    return tf.strings.join(["done on ", tf.constant(os.environ["SM_CURRENT_HOST"])])


for _ in range(20):
    coordinator.schedule(add)
coordinator.join()
print("total", float(total), "on", total.device, flush=True)
