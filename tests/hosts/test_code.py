"""The user's code from S3 and archives, over networks that fail: all of it arrives, or nothing and a sentence."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Callable

import pytest

from .conftest import Train
from .network import usable
from .packages import tar_gz
from .s3 import CREDENTIALS, S3, Faulty

PROGRAM = """
import json, os, pathlib, sys
print(json.dumps({"argv": sys.argv, "cwd": os.getcwd(), "data": len(pathlib.Path("data.bin").read_bytes())}))
"""
DATA = os.urandom(3 * 1024 * 1024)
CODE = {"train.py": PROGRAM, "lib/__init__.py": "", "data.bin": DATA}


@pytest.fixture
def fetching(train: Train, stack: Callable[[str], Path]) -> Train:
    """A host whose code directory is empty; the user's Python has boto3, ours has none."""
    train.environ.update(CREDENTIALS, MUSTER_PYTHON=str(stack("s3") / "python"))
    return train


def name(train: Train, source: str, program: str = "train.py") -> None:
    words = {"sagemaker_program": json.dumps(program), "sagemaker_submit_directory": json.dumps(source), "lr": "0.1"}
    (train.base / "input/config/hyperparameters.json").write_text(json.dumps(words))


def nothing_is_left(train: Train) -> None:
    assert list((train.base / "code").iterdir()) == []
    assert sorted(path.name for path in train.base.iterdir()) == ["checkpoints", "code", "input", "model", "output"]


@pytest.mark.lane("suite")
def test_code_comes_from_s3(s3: S3, fetching: Train) -> None:
    name(fetching, s3.put("jobs", "one/source/sourcedir.tar.gz", tar_gz(CODE)))
    done = fetching.run(AWS_ENDPOINT_URL_S3=s3.url)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen == {"argv": ["train.py", "--lr", "0.1"], "cwd": str(fetching.base / "code"), "data": len(DATA)}
    assert (fetching.base / "code" / "data.bin").read_bytes() == DATA
    events = json.loads((fetching.base / "output" / "timeline.json").read_text())
    assert [event["source"] for event in events if event["event"] == "code-fetched"] == [
        "s3://jobs/one/source/sourcedir.tar.gz"
    ]


@pytest.mark.lane("suite")
@pytest.mark.parametrize(
    ("faults", "said"),
    [
        (["503"] * 6, b"it is tried again"),
        (["reset"], b""),
        (["cut", "cut"], b""),
        (["slow"], b""),
        (["503", "reset", "503", "503", "cut", "slow"], b""),
    ],
)
def test_a_network_that_fails_and_recovers(
    faults: list[str], said: bytes, s3: S3, faulty: Faulty, fetching: Train
) -> None:
    faulty.faults = list(faults)
    name(fetching, s3.put("jobs", "flaky/sourcedir.tar.gz", tar_gz(CODE)))
    done = fetching.run(AWS_ENDPOINT_URL_S3=faulty.url)
    assert done.returncode == 0, done.stderr
    assert (fetching.base / "code" / "data.bin").read_bytes() == DATA
    assert said in done.stderr
    assert faulty.faults == []


def test_a_network_that_never_recovers(s3: S3, faulty: Faulty, fetching: Train) -> None:
    faulty.always = "503"
    name(fetching, s3.put("jobs", "never/sourcedir.tar.gz", tar_gz(CODE)))
    done = fetching.run(AWS_ENDPOINT_URL_S3=faulty.url)
    assert done.returncode == 71
    assert fetching.reason.startswith(
        "muster: fetching s3://jobs/never/sourcedir.tar.gz: 8 tries failed in a row, the last with: "
    )
    assert "(503)" in fetching.reason
    nothing_is_left(fetching)


REFUSED: dict[str, tuple[str, str]] = {
    "no object": ("s3://jobs/none.tar.gz", "there is no object s3://jobs/none.tar.gz"),
    "no bucket": ("s3://nobodys-bucket/a.tar.gz", "there is no bucket 'nobodys-bucket'"),
    "no key": ("s3://jobs/", "names no object: expected s3://BUCKET/KEY"),
    "no scheme of ours": ("https://example.com/a.tar.gz", "is of no known kind: expected s3://BUCKET/KEY"),
}


@pytest.mark.lane("suite")
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_there(what: str, s3: S3, fetching: Train) -> None:
    source, says = REFUSED[what]
    name(fetching, source)
    done = fetching.run(AWS_ENDPOINT_URL_S3=s3.url)
    assert done.returncode == 71
    assert says in fetching.reason
    assert "Traceback" not in done.stderr.decode()
    nothing_is_left(fetching)


@pytest.mark.netns
@pytest.mark.skipif(not usable(), reason="mount namespaces need Linux and root")
def test_a_mount_as_code_directory(fetching: Train) -> None:
    """An empty volume: nothing can be renamed over it, so what comes is moved into it."""
    code, source = fetching.base / "code", fetching.base / "packed.tar.gz"
    source.write_bytes(tar_gz(CODE))
    name(fetching, str(source))
    command = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {code} && exec "$@"', "sh"]
    done = fetching.run(*command)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"] == len(DATA)


@pytest.mark.lane("suite")
def test_the_one_file_launcher_fetches_code_too(s3: S3, fetching: Train, tmp_path: Path) -> None:
    """Nothing of musterpoint is installed: the reader comes out of the file's archive."""
    made = [fetching.python, "-m", "musterpoint", "bundle", "-o", str(tmp_path / "train")]
    subprocess.run(made, env=fetching.environ, check=True, capture_output=True)
    name(fetching, s3.put("jobs", "bundled.tar.gz", tar_gz(CODE)))
    environ = {key: value for key, value in fetching.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [fetching.python, tmp_path / "train"], env={**environ, "AWS_ENDPOINT_URL_S3": s3.url}, capture_output=True,
        timeout=500, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"] == len(DATA)
