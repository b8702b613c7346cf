"""Data-parallel training in JAX on scikit-learn's handwritten digits (1,797 real images of 8 x 8 pixels).

Each process holds its own part of the images; one jitted function works on all of them. ``initialize()`` needs no
arguments. Run it on two hosts of this machine, two processes each:

    muster local --hosts 2 --slots 2 --launcher jax examples/jax/digits.py --epochs 20
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

Weights = dict[str, jax.Array]


def shard(sharding: NamedSharding, values: numpy.ndarray) -> jax.Array:
    """The array of which this process holds ``values``; as many rows of the data as all processes can share."""
    count, index = jax.process_count(), jax.process_index()
    rows = len(values) // jax.device_count() * jax.device_count()
    return jax.make_array_from_process_local_data(sharding, values[:rows][index::count])


def loss_of(weights: Weights, images: jax.Array, labels: jax.Array) -> jax.Array:
    scores = jnp.tanh(images @ weights["hidden"]) @ weights["out"]
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1).mean()


@jax.jit
def step(weights: Weights, images: jax.Array, labels: jax.Array, rate: float) -> tuple[Weights, jax.Array]:
    """One step on all images of all processes: JAX adds the gradients up over the hosts."""
    loss, gradients = jax.value_and_grad(loss_of)(weights, images, labels)
    return jax.tree.map(lambda weight, gradient: weight - rate * gradient, weights, gradients), loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=1.0)
    options = parser.parse_args()

    jax.distributed.initialize()
    rank = jax.process_index()
    print(f"rank {rank} of {jax.process_count()}: {jax.device_count()} devices", flush=True)

    data = NamedSharding(Mesh(numpy.array(jax.devices()), ("data",)), PartitionSpec("data"))
    images, labels = load_digits(return_X_y=True)
    images, labels = shard(data, (images / 16).astype("float32")), shard(data, labels.astype("int32"))
    random = numpy.random.default_rng(0)  # the same on every process
    weights = {
        "hidden": jnp.asarray(random.normal(size=(64, 32)) / 8, "float32"),
        "out": jnp.asarray(random.normal(size=(32, 10)) / 6, "float32"),
    }
    for epoch in range(options.epochs):
        weights, loss = step(weights, images, labels, options.lr)
        if epoch % 5 == 0 or epoch == options.epochs - 1:
            print(f"rank {rank} epoch {epoch}: loss {float(loss):.4f}", flush=True)
    if rank == 0:
        path = Path(os.environ.get("SM_MODEL_DIR", ".")) / "weights.npz"
        numpy.savez(path, **weights)
        print(f"saved {path}", flush=True)


if __name__ == "__main__":
    main()
