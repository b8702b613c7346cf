"""MultiWorkerMirroredStrategy on scikit-learn's handwritten digits (1,797 real images of 8 x 8 pixels).

Every host is a worker; TF_CONFIG, which the strategy reads, is set for it. Run it on two hosts of this machine with

    muster local --hosts 2 --launcher tensorflow examples/tensorflow/mirrored.py --epochs 5
"""

import argparse
import os
import shutil

# Keras 3's fit does not work under this strategy: Keras 2 (the package tf-keras) does
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tensorflow as tf
from sklearn.datasets import load_digits


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="over all workers")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "."))
    return parser.parse_args()


def digits(batch_size: int) -> tf.data.Dataset:
    """Batches of images (64 values from 0 to 1) and their digits; each worker gets its share of every batch."""
    images, labels = load_digits(return_X_y=True)
    data = tf.data.Dataset.from_tensor_slices(((images / 16).astype("float32"), labels))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.shuffle(len(labels), seed=0).batch(batch_size).with_options(options)


def network(lr: float) -> tf.keras.Model:
    tf.keras.utils.set_random_seed(0)
    layers = [tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential([tf.keras.layers.InputLayer((64,)), *layers])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.Adam(lr), loss=loss, metrics=["accuracy"])
    return model


def save(model: tf.keras.Model, folder: str, chief: bool) -> None:
    """Every worker has to take part in saving; only the chief's copy is kept, in a numbered folder as for serving."""
    path = os.path.join(folder, "1") if chief else os.path.join(folder, "unused")
    model.save(path)
    if not chief:
        shutil.rmtree(path)
    else:
        print(f"saved {path}", flush=True)


def main() -> None:
    args = parse_args()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id or 0  # None: one host, no cluster
    print(f"worker {worker}: {strategy.num_replicas_in_sync} replicas", flush=True)
    with strategy.scope():
        model = network(args.lr)
    history = model.fit(digits(args.batch_size), epochs=args.epochs, verbose=2 if worker == 0 else 0)
    print(f"worker {worker}: train:loss={history.history['loss'][-1]:.6f};", flush=True)
    save(model, args.model_dir, chief=worker == 0)


if __name__ == "__main__":
    main()
