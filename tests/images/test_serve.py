"""``muster serve --backend docker``: jobs whose hosts are containers of mapped images."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from musterpoint.serve import Server

from ..serve.jobs import BUCKET, IMAGE, Account, channel, hosts

SEES = """
import json, os, pathlib, socket, urllib.error, urllib.request
host = os.environ["SM_CURRENT_HOST"]
try:
    urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"] + "/nothing", timeout=60)
except urllib.error.HTTPError as error:
    answer = error.code
files = [path.name for path in pathlib.Path(os.environ["SM_CHANNEL_TRAIN"]).iterdir()]
pathlib.Path(os.environ["SM_MODEL_DIR"], host).write_text(json.dumps([answer, files, socket.gethostname()]))
"""


@pytest.fixture
def account(image: Callable[[str], str], environ: Mapping[str, str], tmp_path: Path) -> Iterator[Account]:
    mapped = {IMAGE.partition(":")[0]: image("base")}
    with Server(tmp_path / "data", backend="docker", image=mapped, environ=environ) as server:
        yield Account(server)


def test_hosts_are_containers_that_reach_the_server(account: Account) -> None:
    account.put("data/a.txt", b"a")
    done = account.run("contained", SEES, **hosts(2), InputDataConfig=[channel("train", f"s3://{BUCKET}/data")])
    assert done["TrainingJobStatus"] == "Completed", (done.get("FailureReason"), account.log("contained"))
    left = account.archive("out/contained/output/model.tar.gz")
    assert {name: json.loads(text) for name, text in left.items()} == {
        host: [403, ["a.txt"], host] for host in ("algo-1", "algo-2")
    }


def test_an_entry_point_of_the_requests_own_and_an_image_that_isnt_there(account: Account) -> None:
    entry = {
        "ContainerEntrypoint": ["sh", "-c"],
        "ContainerArguments": ["cat /opt/ml/input/config/resourceconfig.json"],
    }
    algorithm = {"TrainingImage": IMAGE, "TrainingInputMode": "File", **entry}
    done = account.run("own-entry", "", AlgorithmSpecification=algorithm)
    assert done["TrainingJobStatus"] == "Completed" and '"current_host": "algo-1"' in account.log("own-entry")
    absent = account.run("absent", "", AlgorithmSpecification={**algorithm, "TrainingImage": "no-such-image:1"})
    assert absent["TrainingJobStatus"] == "Failed"
    assert "no such image on this machine: docker pull no-such-image:1" in absent["FailureReason"]
