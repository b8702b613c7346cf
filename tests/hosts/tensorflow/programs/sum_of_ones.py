"""Adds one of each worker with TensorFlow's strategy of several workers; ``--alone`` drops TF_CONFIG first."""

import os
import sys

if "--alone" in sys.argv:
    os.environ.pop("TF_CONFIG", None)

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function
def step():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))


print("sum", float(step()), flush=True)
