"""What tests of single stacks share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scikit-learn's handwritten digits as an NPZ file: ``images`` (1797, 64) from 0 to 16, and ``labels``."""
    import numpy
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    numpy.savez(path, images=images, labels=labels)
    return path
