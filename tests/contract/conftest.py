"""The real sagemaker-training, and a pip that only notes what it is asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Iterator

import pytest

PEER = "MUSTER_TEST_SAGEMAKER_TRAINING"

PIP = """
import json, os, sys
if "PIP_CALLS" in os.environ:
    words = ["." if os.path.isdir(word) else word for word in sys.argv[1:]]
    with open(os.environ["PIP_CALLS"], "a") as file:
        print(json.dumps([words, os.getcwd()]), file=file)
"""


@pytest.fixture(scope="session")
def peer() -> Path:
    """The directory of the commands of a virtual environment that has sagemaker-training 5.1.4."""
    python = os.environ.get(PEER, "")
    if not os.access(python, os.X_OK):
        pytest.fail(f"{PEER} isn't the path of a Python with sagemaker-training==5.1.4; scripts/test makes one")
    return Path(python).parent


@pytest.fixture(scope="session")
def no_pip(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A path with a ``pip`` that installs nothing, and notes what it is asked and where."""
    folder = tmp_path_factory.mktemp("no-pip")
    (folder / "pip.py").write_text(PIP)
    return str(folder)


@pytest.fixture(scope="session")
def their_train(peer: Path, no_pip: str) -> Iterator[subprocess.Popen[str]]:
    """The process that runs sagemaker-training's ``train``, see peer.py."""
    serves = subprocess.Popen(
        [peer / "python", Path(__file__).parent / "peer.py", peer], env={**os.environ, "PYTHONPATH": no_pip},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with serves:
        yield serves
        assert serves.stdin is not None
        serves.stdin.close()
