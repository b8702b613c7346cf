"""The server from Python and in pytest, and what the command says."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest

from musterpoint.serve import Server

from .jobs import BUCKET, Account, entry


def test_the_fixture_leads_clients_to_its_server(muster_serve: Server) -> None:
    account = Account(muster_serve)
    sagemaker: Any = boto3.client("sagemaker")  # nothing but the environment
    sagemaker.create_training_job(**account.request("of-the-fixture", "", **entry("exit 0")))
    assert muster_serve.wait("of-the-fixture")["TrainingJobStatus"] == "Completed"
    assert os.environ["AWS_ENDPOINT_URL"] == muster_serve.url


@pytest.mark.lane("sdk")
def test_it_is_gone_at_the_end_with_what_it_kept(environ: Mapping[str, str]) -> None:
    with Server(environ=environ) as server:
        Account(server).put("key", b"1")
        assert server.data.exists()
    assert not server.data.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


@pytest.mark.lane("sdk")
def test_it_ends_with_the_program_that_started_it(environ: Mapping[str, str], tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom musterpoint.serve import Server\n"
        f"print(Server({str(tmp_path / 'data')!r}).pid, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([ended], [], [], 500)[0]
    os.close(ended)


def test_the_command_says_what_to_export(environ: Mapping[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "musterpoint", "serve", "--data", str(tmp_path / "data")]
    early = subprocess.run([*command, "--export"], env=environ, capture_output=True, text=True, check=False)
    assert early.returncode == 64 and "no muster serve has been started with this directory" in early.stderr
    with Server(tmp_path / "data", environ=environ) as server:
        said = subprocess.run([*command, "--export"], env=environ, capture_output=True, text=True, check=True).stdout
        listed = f"{said} {sys.executable} -c \"import boto3; boto3.client('s3').create_bucket(Bucket='{BUCKET}')\""
        subprocess.run(["sh", "-c", listed], env=environ, check=True)
        assert [each["Name"] for each in server.client("s3").list_buckets()["Buckets"]] == [BUCKET]
    for words in (["--export"], ["lose", "a-job", "algo-1"]):
        fault = words[0] == "lose"
        late = subprocess.run(
            [*command[:4], *words, *command[4:]] if fault else [*command, *words],
            env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (late.returncode, late.stdout) == (64, "")
        assert (
            f"the muster serve of this directory has ended; start it again: muster serve --data {tmp_path}"
            in late.stderr
        )
    wrong = subprocess.run([*command, "--image", "a=b"], env=environ, capture_output=True, text=True, check=False)
    assert wrong.returncode == 64 and "starts no images; add --backend docker" in wrong.stderr
