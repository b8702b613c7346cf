"""A server, and clients of AWS as people have them, each in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from musterpoint.serve import Server

from ...conftest import clean
from ..jobs import Account

BUCKET = "sagemaker-us-east-1-123456789012"
"""The bucket that the SDKs take by default."""
ROLE = "arn:aws:iam::123456789012:role/training"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
TRAIN = """
import argparse, json, os
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--lr", type=float, default=0.5)
given, _ = parser.parse_known_args()
host = os.environ["SM_CURRENT_HOST"]
if "TF_CONFIG" in os.environ:
    print("cluster of", len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]), flush=True)
for epoch in range(given.epochs):
    print(f"{host} epoch {epoch} loss={given.lr / (epoch + 1):.4f}", flush=True)
with open(os.path.join(os.environ["SM_MODEL_DIR"], f"{host}.json"), "w") as file:
    json.dump(vars(given), file)
"""

NEXT = "---- next part ----\n"
PARTS = f"""
import json, sys, traceback
for program in json.load(open(sys.argv[1])).values():
    print({NEXT!r}, end="", flush=True)
    try:
        exec(compile(program, "part", "exec"), globals())
    except BaseException:
        print("FAILED", traceback.format_exc(), flush=True)
    sys.stderr.flush()
"""


class Client:
    """A directory with a user's code, and what runs in it beside the server of ``account``."""

    def __init__(self, account: Account, folder: Path) -> None:
        self.account, self.folder = account, folder
        (folder / "src").mkdir()
        (folder / "src" / "train.py").write_text(TRAIN)
        (folder / "data").mkdir()
        (folder / "data" / "numbers.txt").write_text("1 2 3")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.environ = {
            **clean(kept),
            **account.server.variables,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
            "HOME": str(folder),
        }

    def streams(self, prefix: str) -> list[str]:
        """The text of each log stream whose name begins with ``prefix``, in the order of the names."""
        logs, group = self.account.server.client("logs"), "/aws/sagemaker/TrainingJobs"
        found = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=prefix, orderBy="LogStreamName")
        names = [stream["logStreamName"] for stream in found["logStreams"]]
        events = [logs.get_log_events(logGroupName=group, logStreamName=name)["events"] for name in names]
        return ["\n".join(event["message"] for event in each) for each in events]

    def parts(self, python: Path, **programs: str) -> dict[str, str]:
        """What each program said, run one after another in one Python, which loads an SDK once.

        A program that fails says its traceback and ``FAILED``, and the others go on.
        """
        path = self.folder / "programs.json"
        path.write_text(json.dumps(programs))
        said = self.run(
            python, "-c", PARTS, path, PYTHONUNBUFFERED="1", SDK_PATH=f"{python.parent}:{os.environ['PATH']}"
        )
        found = said.split(NEXT)
        return dict(zip(("", *programs), found, strict=True))

    def run(self, *words: str | Path, **environ: str) -> str:
        """What a command wrote, which must end with 0."""
        done = subprocess.run(
            [*map(str, words)], cwd=self.folder, env={**self.environ, **environ}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """A server for the clients of one module, with a role that SageMaker may take."""
    with Server(tmp_path_factory.mktemp("data"), max_jobs=3, environ=clean(os.environ)) as server:
        account = Account(server)
        server.client("iam").create_role(RoleName="training", AssumeRolePolicyDocument=json.dumps(TRUST))
        yield account


@pytest.fixture(scope="module")
def client(served: Account, tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(served, tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def python(stack: Callable[[str], Path]) -> Callable[[str], Path]:
    """The Python of a client's environment, by the stage that makes it."""
    return lambda name: stack(name) / "python"
