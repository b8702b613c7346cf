"""As books and blogs write it for SageMaker: TF_CONFIG made by hand from SM_HOSTS, ``fit``, a SavedModel."""

import argparse
import json
import os
import socket

import tensorflow as tf
from sklearn.datasets import load_digits


def _build_tf_config():
    hosts = json.loads(os.getenv("SM_HOSTS"))
    current_host = os.getenv("SM_CURRENT_HOST")
    tf_config = {
        "cluster": {"worker": [f"{host}:7777" for host in hosts]},
        "task": {"type": "worker", "index": hosts.index(current_host)},
    }
    os.environ["TF_CONFIG"] = json.dumps(tf_config)


def main(args):
    for host in json.loads(os.getenv("SM_HOSTS")):
        socket.gethostbyname(host)
    _build_tf_config()
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CollectiveCommunication.AUTO
        )
    )
    resolver = strategy.cluster_resolver
    print(f"worker {resolver.task_id} of {resolver.cluster_spec().num_tasks('worker')}", flush=True)
    tf.keras.utils.set_random_seed(0)
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.layers.InputLayer((64,)), tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(10)]
        )
        model.compile(
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            optimizer=tf.keras.optimizers.SGD(0.1),
            metrics=["accuracy"],
        )
    images, labels = load_digits(return_X_y=True)
    dataset = tf.data.Dataset.from_tensor_slices(((images / 16).astype("float32"), labels)).repeat()
    folder = os.getenv("SM_MODEL_DIR")
    history = model.fit(
        dataset.batch(args.batch_size),
        epochs=args.epochs,
        steps_per_epoch=args.steps_per_epoch,
        verbose=0,
        callbacks=[
            tf.keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 if epoch < 2 else 0.05),
            tf.keras.callbacks.ModelCheckpoint(os.path.join(folder, "ckpt_{epoch}"), save_weights_only=True),
        ],
    )
    print(f"worker {resolver.task_id} losses {history.history['loss']}", flush=True)
    model.save(folder, save_format="tf")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--model_dir", type=str, default=os.getenv("SM_MODEL_DIR"))
    parser.add_argument("--steps-per-epoch", type=int, default=15)
    main(parser.parse_args())
