"""ParameterServerStrategy on scikit-learn's handwritten digits (1,797 real images of 8 x 8 pixels).

This program is the chief: it hands steps to the workers, and the variables lie on the parameter servers. Workers and
parameter servers run no code of their own, they are started beside it. Run it on two hosts of this machine with

    muster local --hosts 2 --launcher parameter-server --tf-roles worker=2,ps=1 examples/tensorflow/parameter_server.py
"""

import argparse
import os

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="per worker and step")
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "."))
    return parser.parse_args()


class Network(tf.Module):
    """Two dense layers; its variables are made where the strategy puts them."""

    def __init__(self) -> None:
        super().__init__()
        generator = tf.random.Generator.from_seed(0)
        self.hidden = tf.Variable(generator.normal((64, 32), stddev=0.2))
        self.output = tf.Variable(generator.normal((32, 10), stddev=0.2))

    @tf.function(input_signature=[tf.TensorSpec((None, 64), tf.float32)])
    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(images @ self.hidden) @ self.output


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images (64 values from 0 to 1 each) and their digits."""
    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype("float32"), labels


def main() -> None:
    args = parse_args()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        network = Network()
    data = digits()

    def batches() -> tf.data.Dataset:
        """Without end, and in an order of each worker's own."""
        return tf.data.Dataset.from_tensor_slices(data).shuffle(len(data[1])).repeat().batch(args.batch_size)

    @tf.function
    def step(iterator: tf.data.Iterator) -> tf.Tensor:
        images, labels = next(iterator)
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images))
            loss = tf.reduce_mean(losses)
        for variable, gradient in zip(network.trainable_variables, tape.gradient(loss, network.trainable_variables)):
            variable.assign_sub(args.lr * gradient)
        return loss

    iterators = iter(coordinator.create_per_worker_dataset(batches))
    steps = len(data[1]) // args.batch_size
    for epoch in range(1, args.epochs + 1):
        losses = [coordinator.schedule(step, args=(iterators,)) for _ in range(steps)]
        coordinator.join()
        mean = sum(float(loss.fetch()) for loss in losses) / steps
        print(f"epoch={epoch}; train:loss={mean:.4f};", flush=True)

    # saved as they are, the variables would be written by the parameter servers, on their own hosts' disks
    copy = Network()
    for mine, variable in zip(copy.variables, network.variables):
        mine.assign(variable)
    path = os.path.join(args.model_dir, "1")
    tf.saved_model.save(copy, path)
    print(f"saved {path}", flush=True)


if __name__ == "__main__":
    main()
