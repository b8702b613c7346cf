"""A parameter-server program of TensorFlow 1: master and workers each build the graph, the variables lie on ps tasks.

``--steps`` is how far they go together; with 0 they go on until they are told to end.
"""

import argparse
import functools
import json
import os
import time

import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits
from tensorflow.python.training.session_manager import SessionManager

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
args = parser.parse_args()

config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]
print("CONFIG", json.dumps(config), flush=True)

# a worker that comes before the master has made the variables looks again after 30 s otherwise
SessionManager.__init__ = functools.partialmethod(SessionManager.__init__, recovery_wait_secs=0.5)
tf.disable_v2_behavior()
cluster = tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job_name=role, task_index=index)
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:{role}/task:{index}")):
    images = tf.placeholder(tf.float32, (None, 64))
    labels = tf.placeholder(tf.int64, (None,))
    weights = tf.get_variable("weights", (64, 10), initializer=tf.zeros_initializer())
    bias = tf.get_variable("bias", (10,), initializer=tf.zeros_initializer())
    step = tf.train.get_or_create_global_step()
    loss = tf.losses.sparse_softmax_cross_entropy(labels, images @ weights + bias)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
print("PLACES", weights.device, bias.device, flush=True)

x, y = load_digits(return_X_y=True)
hooks = [tf.train.StopAtStepHook(last_step=args.steps)] if args.steps else []
losses = []
# without filters a session waits for every task of the cluster, and for ever for one that has already gone
tasks = tf.ConfigProto(device_filters=["/job:ps", f"/job:{role}/task:{index}"])
with tf.train.MonitoredTrainingSession(
    master=server.target, is_chief=role == "master", hooks=hooks, config=tasks
) as session:
    while not session.should_stop():
        value, _ = session.run([loss, train], {images: x / 16, labels: y})
        losses.append(float(value))
        if len(losses) == 5:
            open(os.path.join(os.environ["SM_MODEL_DIR"], "training"), "w").close()
        time.sleep(0 if args.steps else 0.05)
print(f"{role} {index} losses {losses[0]:.4f} {losses[-1]:.4f}", flush=True)
