"""Jobs of real containers: trees as SageMaker makes them, a network of their own, and what tests look at afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Callable

import docker
from docker.utils.socket import STDOUT, frames_iter

LABEL = "musterpoint.test"
DIRECTORIES = ("input/config", "input/data", "model", "output/data", "checkpoints", "code")
RANKS = {"sagemaker_torch_distributed_enabled": "true"}
"""A distribution, as the SDK's hyperparameters."""
MPI = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": '""'}
BY_RANKS = {"MUSTER_LAUNCHER": "ranks"}
"""The environment in which that distribution needs no torch."""


class Host:
    """One container of a job. Its output is read from before its start to its end, byte for byte, by a thread."""

    def __init__(self, container: Any, name: str, ml: Path) -> None:
        self.container, self.name, self.ml = container, name, ml
        self._pipe = os.open(ml / "checkpoints" / "go", os.O_RDWR)
        self.stdout, self.stderr = b"", b""
        self.code: int | None = None
        self.ended_at = 0.0
        self._news = threading.Condition()
        self._socket = container.attach_socket(params={"stdout": 1, "stderr": 1, "stream": 1})
        self._reader = threading.Thread(target=self._read, name=f"output of {name}", daemon=True)

    def _read(self) -> None:
        for stream, data in frames_iter(self._socket, tty=False):
            with self._news:
                if stream == STDOUT:
                    self.stdout += data
                else:
                    self.stderr += data
                self._news.notify_all()
        code = self.container.wait()["StatusCode"]
        with self._news:
            self.code, self.ended_at = code, time.monotonic()
            self._news.notify_all()

    def start(self) -> None:
        self._reader.start()
        self.container.start()

    @property
    def log(self) -> str:
        """What it wrote so far: stdout, then stderr."""
        return (self.stdout + self.stderr).decode(errors="replace")

    def saw(self, text: str, timeout: float = 150.0) -> None:
        """Returns when ``text`` stands in the output."""
        with self._news:
            self._news.wait_for(lambda: text in self.log or self.code is not None, timeout)
        assert text in self.log, f"{self.name} never said {text!r}; exit code {self.code}"

    def end(self, timeout: float = 150.0) -> int:
        """The container's exit code, once it has ended."""
        with self._news:
            self._news.wait_for(lambda: self.code is not None, timeout)
        assert self.code is not None, f"{self.name} had not ended after {timeout} s"
        return self.code

    def stop(self, grace: int = 60) -> None:
        """``docker stop``: SIGTERM to its first process, SIGKILL after ``grace`` seconds; returns when it has ended."""
        self.container.stop(timeout=grace)

    def run(self, *words: str) -> str:
        """What a command in the running container printed."""
        done = self.container.exec_run(list(words))
        text: str = done.output.decode(errors="replace")
        assert done.exit_code == 0, (self.name, words, done.exit_code, text)
        return text

    def go(self) -> None:
        """Lets a program go on that reads a line from ``/opt/ml/checkpoints/go``."""
        os.write(self._pipe, b"go\n")

    @property
    def state(self) -> dict[str, Any]:
        self.container.reload()
        state: dict[str, Any] = self.container.attrs["State"]
        return state

    @property
    def addresses(self) -> list[str]:
        """Its addresses, one per network."""
        self.container.reload()
        return [each["IPAddress"] for each in self.container.attrs["NetworkSettings"]["Networks"].values()]

    @property
    def reason(self) -> str:
        """The failure file; empty where there is none."""
        path = self.ml / "output" / "failure"
        return path.read_text() if path.exists() else ""

    @property
    def outcome(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.ml / "output" / "outcome.json").read_text())
        return found

    def models(self) -> list[str]:
        return sorted(os.listdir(self.ml / "model"))

    def remove(self) -> None:
        self.container.remove(force=True, v=True)
        if self._reader.ident is not None:
            self._reader.join(500)
        connection = self._socket._sock  # closing what docker gives out leaves the connection itself open
        self._socket.close()
        connection.close()
        os.close(self._pipe)


class Job:
    """Containers on a network of their own, named as the platform names hosts; all of it carries one label."""

    def __init__(self, client: docker.DockerClient, folder: Path) -> None:
        self.client, self.folder = client, folder
        self.token = f"muster-test-{uuid.uuid4().hex[:12]}"
        self.labels = {LABEL: self.token, LABEL + ".run": os.environ.get("MUSTER_TEST_RUN", "")}
        self.network = client.networks.create(self.token, driver="bridge", labels=self.labels, check_duplicate=True)
        self.others: list[Any] = []
        self.hosts: dict[str, Host] = {}

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def make(
        self, image: str, program: str | Path, *, hosts: int | tuple[str, ...] = 2,
        hyperparameters: dict[str, Any] | None = None, distribution: dict[str, str] | None = None,
        environment: dict[str, str] | None = None, files: dict[str, str] | None = None, user: int = 0,
        command: str | list[str] = "train", volumes: dict[str, Any] | None = None, entry: str = "",
        **settings: Any,
    ) -> Job:  # fmt: skip
        """Containers that wait to be started. ``program`` is a file, or the text of one.

        ``files`` lie beside it, one of which may be the ``entry`` in its place. ``hostname`` is the host's own name as
        in the SDK's local mode, unless ``settings`` give another; those are the Docker SDK's.
        """
        names = tuple(f"algo-{number}" for number in range(1, hosts + 1)) if isinstance(hosts, int) else hosts
        name, text = (program.name, program.read_text()) if isinstance(program, Path) else ("program.py", program)
        words = {
            **{key: json.dumps(value) for key, value in (hyperparameters or {}).items()}, **(distribution or {}),
            "sagemaker_program": json.dumps(entry or name), "sagemaker_submit_directory": json.dumps("/opt/ml/code"),
            "sagemaker_container_log_level": "20", "sagemaker_job_name": json.dumps(self.token),
            "sagemaker_region": json.dumps("eu-central-1"),
        }  # fmt: skip
        for host in names:
            ml = self.folder / host / "ml"
            for directory in DIRECTORIES:
                (ml / directory).mkdir(parents=True)
            os.mkfifo(ml / "checkpoints" / "go")
            for file, content in {name: text, **(files or {})}.items():
                (ml / "code" / file).write_text(content)
            resources = {"current_host": host, "hosts": list(names), "network_interface_name": "eth0"}
            config = {"hyperparameters": words, "resourceconfig": resources, "inputdataconfig": {}}
            for file, value in config.items():
                (ml / "input/config" / f"{file}.json").write_text(json.dumps(value))
            if user:
                self._hand_over(ml, user)
            self._create(host, ml, image=image, command=command, user=f"{user}:{user}" if user else None,
                         environment={"TRAINING_JOB_NAME": self.token, **(environment or {})},
                         volumes={str(ml): {"bind": "/opt/ml", "mode": "rw"}, **(volumes or {})},
                         **{"hostname": host, **settings})  # fmt: skip
        return self

    def _create(self, host: str, ml: Path, *, environment: dict[str, str], **settings: Any) -> None:
        alias = self.client.api.create_endpoint_config(aliases=[host])
        container = self.client.containers.create(
            name=f"{self.token}-{host}", labels=self.labels, network=self.network.name,
            networking_config={self.network.name: alias}, environment=environment, **settings,
        )  # fmt: skip
        self.hosts[host] = Host(container, host, ml)

    @staticmethod
    def _hand_over(ml: Path, user: int) -> None:
        for folder, _, files in os.walk(ml):
            for name in (".", *files):
                os.chown(os.path.join(folder, name), user, user)

    def start(self, *names: str) -> Job:
        """Starts these, or all."""
        for name in names or self.hosts:
            self.hosts[name].start()
        return self

    def ends(self, timeout: float = 500.0) -> list[int]:
        """Every container's exit code, in order, once all have ended."""
        deadline = time.monotonic() + timeout
        return [host.end(max(0.0, deadline - time.monotonic())) for host in self.hosts.values()]

    def cut(self, name: str) -> None:
        """Takes a host off the network, its name with it: packets stop, nobody is told."""
        self.network.disconnect(self.hosts[name].container)

    def mend(self, name: str, address: str | None = None) -> None:
        """Puts it back, as a rule under another address."""
        self.network.connect(self.hosts[name].container, aliases=[name], ipv4_address=address)

    def network_beside(self, *names: str) -> None:
        """Another network, with these hosts on it."""
        another = self.client.networks.create(f"{self.token}-beside", labels=self.labels, check_duplicate=True)
        self.others.append(another)
        for name in names:
            another.connect(self.hosts[name].container, aliases=[name])

    def volume(self, **options: str) -> Any:
        """A volume of Docker's ``local`` driver, with options of mount(8)."""
        return self.client.volumes.create(f"{self.token}-volume", driver="local", driver_opts=options,
                                          labels=self.labels)  # fmt: skip

    def show(self) -> None:
        for host in self.hosts.values():
            print(f"--- {host.name}: exit code {host.code}; stdout\n{host.stdout.decode(errors='replace')[-20000:]}")
            print(f"--- {host.name}: stderr\n{host.stderr.decode(errors='replace')[-20000:]}")

    def remove(self) -> None:
        mine = {"filters": {"label": f"{LABEL}={self.token}"}}
        with contextlib.ExitStack() as last:
            for volume in self.client.volumes.list(**mine):
                last.callback(volume.remove, force=True)
            for network in (self.network, *self.others):
                last.callback(network.remove)
            for host in self.hosts.values():
                last.callback(host.remove)
        left = [*self.client.containers.list(all=True, ignore_removed=True, **mine), *self.client.networks.list(**mine)]
        assert left == self.client.volumes.list(**mine) == [], "left behind"


MakeJob = Callable[..., Job]
