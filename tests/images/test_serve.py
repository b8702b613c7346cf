"""``muster serve --backend docker``: jobs whose hosts are containers of mapped images; and the server as one itself."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import pytest

from musterpoint.local.docker_container import RUN
from musterpoint.serve import Client, Server
from musterpoint.serve.running import read_exports
from musterpoint.serve.settings import PORT

from ..serve.jobs import BUCKET, IMAGE, Account, channel, hosts
from .containers import LABEL

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


SOCKET = "/var/run/docker.sock"
WITHIN = 5.0
"""Seconds in which the jobs of a server end that is killed."""


class Contained(Client):
    """A server in a container."""

    def __init__(self, container: Any, data: Path) -> None:
        with subprocess.Popen(["docker", "logs", "--follow", container.id], stdout=subprocess.PIPE) as logs:
            assert logs.stdout is not None and any(line.startswith(b"# ready: ") for line in logs.stdout)
            logs.kill()
        container.reload()
        said = container.exec_run(["muster", "serve", "--export"]).output.decode()
        port = container.ports[f"{PORT}/tcp"][0]["HostPort"]
        super().__init__({**read_exports(said), "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"})
        self.container, self.data = container, data / "muster-serve"


@pytest.fixture
def contained(
    engine: docker.DockerClient, image: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[..., Account]]:
    """Starts a server in a container; ``words`` are its options, ``volumes`` the daemon's socket, if any."""
    made: list[Any] = []

    def start(*words: str, volumes: tuple[str, ...] = (f"{SOCKET}:{SOCKET}",)) -> Account:
        made.append(
            engine.containers.run(
                image("serve"), list(words), detach=True, labels={LABEL: "1"}, ports={PORT: ("127.0.0.1", None)},
                volumes=[f"{tmp_path}:/muster", *volumes],
            )
        )  # fmt: skip
        return Account(Contained(made[-1], tmp_path))  # type: ignore[arg-type]

    yield start
    for each in made:
        print(each.logs().decode())
        each.remove(force=True, v=True)


def left(engine: docker.DockerClient) -> list[str]:
    """What of the jobs' containers and networks is there; one may go meanwhile."""
    named = {"label": RUN}
    found = (*engine.api.containers(all=True, filters=named), *engine.api.networks(filters=named))
    return [each["Id"] for each in found]


def test_a_server_that_is_a_container_has_its_hosts_beside_it(
    contained: Callable[..., Account], image: Callable[[str], str], engine: docker.DockerClient
) -> None:
    account = contained("--image", f"{IMAGE.partition(':')[0]}={image('base')}")
    account.put("data/a.txt", b"a")
    done = account.run("beside", SEES, **hosts(2), InputDataConfig=[channel("train", f"s3://{BUCKET}/data")])
    assert done["TrainingJobStatus"] == "Completed", (done.get("FailureReason"), account.log("beside"))
    said = account.archive("out/beside/output/model.tar.gz")
    assert {name: json.loads(text) for name, text in said.items()} == {
        host: [403, ["a.txt"], host] for host in ("algo-1", "algo-2")
    }
    assert not left(engine)


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL"])
def test_jobs_end_with_the_container_of_their_server(
    contained: Callable[..., Account], image: Callable[[str], str], engine: docker.DockerClient, signal: str
) -> None:
    account = contained("--image", f"{IMAGE.partition(':')[0]}={image('base')}")
    account.create("long", "import time; print('it runs', flush=True); time.sleep(600)", **hosts(2))
    account.until_it_says("long", "it runs")
    assert len(left(engine)) > 1
    container: Any = account.server.container  # type: ignore[attr-defined]
    container.kill(signal)
    container.wait()
    until = time.monotonic() + WITHIN
    while (there := left(engine)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not there


def test_without_the_daemons_socket_hosts_are_processes_in_it(contained: Callable[..., Account]) -> None:
    account = contained(volumes=())
    done = account.run("inside", SEES.replace('os.environ["SM_CHANNEL_TRAIN"]', '"/etc/apt"'), **hosts(2))
    assert done["TrainingJobStatus"] == "Completed", (done.get("FailureReason"), account.log("inside"))
    assert sorted(account.archive("out/inside/output/model.tar.gz")) == ["algo-1", "algo-2"]
