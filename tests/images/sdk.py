"""The SageMaker SDKs as clients of our images: scripts as users write them, run without AWS, and what they left."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
CODE = {"train.py": "who.py", "sub/who.py": "who.py", "shards.py": "shards.py"}
"""Files of a user's code, and which of our programs each one is."""
NETWORK = "sagemaker-local"
"""The one name that both SDKs give to their jobs' network: tests with them can't run side by side."""

NOBODY = "http://127.0.0.1:9"
WITHOUT_AWS = {
    "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_ENDPOINT_URL": NOBODY, "AWS_MAX_ATTEMPTS": "1", "HTTPS_PROXY": NOBODY, "HTTP_PROXY": NOBODY,
}  # fmt: skip
"""Stub credentials, and an endpoint that refuses at once whatever is sent to AWS all the same."""

NO_TELEMETRY = """
SchemaVersion: "1.0"
SageMaker:
  PythonSDK:
    Modules:
      TelemetryOptOut: true
"""


def snippet(page: str, name: str, image: str) -> str:
    """The Python block of ``docs/PAGE`` that is marked with ``<!-- sdk NAME -->``, with an image in its place."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.search(rf"<!-- sdk {name} -->\n```python\n(.*?)```", text, re.DOTALL)
    assert found, f"docs/{page} has no Python block marked <!-- sdk {name} -->"
    assert '"my-training-image"' in found[1]
    return found[1].replace('"my-training-image"', json.dumps(image))


class Client:
    """A directory with a user's code and data, and scripts run in it by the Python of one SDK."""

    def __init__(self, python: Path, environ: dict[str, str], folder: Path) -> None:
        self.python, self.folder = python, folder
        (folder / "src" / "sub").mkdir(parents=True)
        for name, program in CODE.items():
            shutil.copy(PROGRAMS / program, folder / "src" / name)
        (folder / "data").mkdir()
        (folder / "data" / "numbers.txt").write_text("1 2 3")
        (folder / "sagemaker.yaml").write_text(NO_TELEMETRY)
        (folder / "tmp").mkdir()
        kept = {name: value for name, value in environ.items() if not name.startswith("AWS_")}
        config = str(folder / "sagemaker.yaml")
        self.environ = {
            **kept, **WITHOUT_AWS, "TMPDIR": str(folder / "tmp"), "SAGEMAKER_USER_CONFIG_OVERRIDE": config,
            "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": config, "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
        }  # fmt: skip

    def run(self, script: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A script's end, with both its streams in ``stdout``."""
        return subprocess.run(
            [self.python, "-c", script, *words], cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=900, check=False,
        )  # fmt: skip

    @staticmethod
    def part(log: str, job: str) -> tuple[str, str]:
        """What one of several jobs wrote between its lines BEGIN and END, and what stands in the last one."""
        text, _, rest = log.partition(f"BEGIN {job}\n")[2].partition(f"END {job} ")
        return text, rest.partition("\n")[0].strip()

    def model(self, archive: str) -> dict[str, Any]:
        """The JSON files of a ``model.tar.gz`` below the directory, by name."""
        with tarfile.open(self.folder / archive) as file:
            members = {member.name: file.extractfile(member) for member in file.getmembers() if member.isfile()}
            return {name.removesuffix(".json"): json.load(data) for name, data in members.items() if data}

    def text(self, archive: str, name: str) -> str:
        """A text file in an archive below the directory."""
        return self.member(archive, name).decode()

    def member(self, archive: str, name: str) -> bytes:
        """A file in an archive below the directory."""
        with tarfile.open(self.folder / archive) as file:
            member = file.extractfile(name)
            assert member, f"{name} isn't a file"
            return member.read()

    def containers(self, *flags: str) -> list[str]:
        """The containers of jobs of this client, by id; SDKs give them no label, compose names its directory."""
        row = '{{.ID}} {{.Label "com.docker.compose.project.working_dir"}}'
        rows = [line.partition(" ") for line in _docker("ps", "--format", row, *flags).splitlines()]
        return [identity for identity, _, place in rows if Path(place).is_relative_to(self.folder)]

    def remove(self) -> None:
        """What both SDKs leave behind: ended containers and the network."""
        left = self.containers("--all")
        if left:
            _docker("rm", "--force", "--volumes", *left)
        if NETWORK in _docker("network", "ls", "--format", "{{.Name}}").split():
            _docker("network", "rm", NETWORK)


@contextmanager
def client_of(bin_directory: Path, environ: dict[str, str], folder: Path) -> Iterator[Client]:
    """A client of the SDK in this environment, and nothing left of its jobs."""
    made = Client(bin_directory / "python", environ, folder)
    yield made
    running = made.containers()
    made.remove()
    assert running == [], "containers of the job were still running"


def _docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True, timeout=500).stdout
