"""The real sagemaker-training, and a pip that only notes what it is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
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


class Theirs:
    """sagemaker-training's ``train``, run again and again by the process of peer.py."""

    def __init__(self, serves: subprocess.Popen[str]) -> None:
        self._serves = serves

    def __call__(self, environ: Mapping[str, str], output: Path) -> int:
        """Its exit code; what it says is in ``output``."""
        assert self._serves.stdin is not None
        assert self._serves.stdout is not None
        asked = {"environ": dict(environ), "cwd": "/", "output": str(output)}
        print(json.dumps(asked), file=self._serves.stdin, flush=True)
        return int(self._serves.stdout.readline())


@pytest.fixture(scope="session")
def their_train(peer: Path, no_pip: str) -> Iterator[Theirs]:
    serves = subprocess.Popen(
        [peer / "python", Path(__file__).parent / "peer.py", peer], env={**os.environ, "PYTHONPATH": no_pip},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with serves:
        yield Theirs(serves)
        assert serves.stdin is not None
        serves.stdin.close()


@pytest.fixture
def both_environ(environ: dict[str, str], no_pip: str, tmp_path: Path) -> dict[str, str]:
    """The environment that both toolkits start in: a job in ``ml``, and pip that installs nothing."""
    kept = {key: value for key, value in environ.items() if not key.startswith(("AWS_", "PIP_"))}
    return {
        **kept, "SAGEMAKER_BASE_DIR": str(tmp_path / "ml"), "SM_STUDIO_LOCAL_MODE": "true", "PYTHONPATH": no_pip,
        "AWS_CONFIG_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true", "DUMP_PYTHON": sys.executable,
    }  # fmt: skip


@pytest.fixture
def our_path(environ: dict[str, str], no_pip: str) -> str:
    """PYTHONPATH for ours, which is here as source."""
    return os.pathsep.join((environ["PYTHONPATH"], no_pip))
