"""The data server of a heterogeneous job: makes batches on machines without GPUs.

It adds noise to scikit-learn's handwritten digits; real ones decode images or tokenize texts.

    POST /batch {"size": 64} → {"images": [[…]], "labels": […]}
"""

from __future__ import annotations

from typing import Any

import numpy
from server import serve
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
images /= 16


def batch(asked: dict[str, Any]) -> dict[str, Any]:
    random = numpy.random.default_rng()
    rows = random.integers(len(images), size=asked["size"])
    noisy = images[rows] + random.normal(scale=0.1, size=(asked["size"], 64))
    return {"images": noisy.tolist(), "labels": labels[rows].tolist()}


if __name__ == "__main__":
    serve({"/batch": batch})
