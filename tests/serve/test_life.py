"""A server's life, and that of its jobs: how they begin, what they may, and that nothing of them outlives it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from musterpoint.base.errors import UsageError
from musterpoint.serve import Server
from musterpoint.serve.api import ControlClient

from ..hosts.conftest import survivors
from .jobs import BUCKET, Account, channel, entry, hosts, statuses

SOON = 5.0
"""Seconds within which jobs end with their server."""


def waits(token: str) -> dict[str, object]:
    """A job whose processes are known by the token."""
    return {**entry("echo here; sleep 500 & sleep 500"), "Environment": {"MUSTER_TEST_TOKEN": token}}


def gone_after(token: str) -> float:
    """Seconds until no process with the token is left."""
    began = time.monotonic()
    while survivors(token) and time.monotonic() - began < 60:
        time.sleep(0.05)
    return time.monotonic() - began


def running(server: Server, name: str, token: str) -> Account:
    account = Account(server)
    account.create(name, "", **hosts(2), **waits(token))
    account.until_it_says(name, "here")
    return account


NAMESPACES = pytest.param("netns", signal.SIGKILL, marks=[pytest.mark.lane("sdk"), pytest.mark.netns])


@pytest.mark.parametrize(("backend", "signo"), [("process", signal.SIGKILL), ("process", signal.SIGTERM), NAMESPACES])
def test_its_jobs_end_with_it(environ: Mapping[str, str], tmp_path: Path, backend: str, signo: int) -> None:
    server, token = Server(tmp_path / "data", backend=backend, environ=environ), f"muster-test-{os.urandom(8).hex()}"
    running(server, "waits", token)
    os.kill(server.pid, signo)
    assert gone_after(token) < SOON
    server.stop()
    with Server(tmp_path / "data", environ=environ) as again:
        account = Account(again)  # with no bucket, and no job
        assert account.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
        assert account.run("waits", "", **entry("exit 0"))["TrainingJobStatus"] == "Completed"
    assert (tmp_path / "data" / "jobs" / "waits.1" / "run-1" / "hosts" / "algo-2" / "log").exists()


def test_a_job_whose_process_dies_has_failed_and_gives_its_place_to_the_next(
    environ: Mapping[str, str], tmp_path: Path
) -> None:
    token = f"muster-test-{os.urandom(8).hex()}"
    with Server(tmp_path / "data", max_jobs=1, environ=environ) as server:
        account = running(server, "dies", token)
        limits = {"MaxRuntimeInSeconds": 1, "MaxWaitTimeInSeconds": 1}
        account.create("late", "", EnableManagedSpotTraining=True, StoppingCondition=limits, **entry("exit 0"))
        late = server.wait("late")  # its time is over while the other one runs
        assert (late["TrainingJobStatus"], late["SecondaryStatus"]) == ("Stopped", "MaxWaitTimeExceeded")
        words = ["pgrep", "--parent", str(server.pid), "--full", "job_main"]
        for pid in subprocess.run(words, capture_output=True, text=True, check=True).stdout.split():  # and one in wait
            os.kill(int(pid), signal.SIGKILL)
        done = server.wait("dies")
        assert done["TrainingJobStatus"] == "Failed" and "ended with code -9" in done["FailureReason"]
        assert gone_after(token) < SOON
        assert account.run("next", "", **entry("exit 0"))["TrainingJobStatus"] == "Completed"


@pytest.mark.lane("sdk")
def test_a_stop_right_after_a_job_was_made_is_heard(environ: Mapping[str, str], tmp_path: Path) -> None:
    server, token = Server(tmp_path / "data", environ=environ), f"muster-test-{os.urandom(8).hex()}"
    account = Account(server)
    account.create("made", "", **waits(token))
    account.sagemaker.stop_training_job(TrainingJobName="made")
    assert server.wait("made")["TrainingJobStatus"] == "Stopped"
    account.create("made-then", "", **waits(token))
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 2 * SOON
    assert gone_after(token) < SOON


def test_one_server_per_directory_which_is_its_users_alone(environ: Mapping[str, str], tmp_path: Path) -> None:
    with Server(tmp_path / "own", environ=environ), pytest.raises(UsageError, match="ended with code 64"):
        Server(tmp_path / "own", environ=environ)
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "odd").mkdir(mode=0o700)
    (tmp_path / "odd" / "server.json").mkdir()
    (tmp_path / "file").touch()
    for wrong in ("open", "odd", "file"):
        with pytest.raises(UsageError, match="ended with code 64"):
            Server(tmp_path / wrong, environ=environ)


REAL = {
    "AWS_PROFILE": "nosuch",
    "AWS_ACCESS_KEY_ID": "AKIAREAL",
    "AWS_SECRET_ACCESS_KEY": "real-secret",
    "AWS_SESSION_TOKEN": "real-token",
}
TELLS = """
import os, pathlib
pathlib.Path(os.environ["SM_MODEL_DIR"], "keys").write_text(
    "\\n".join(f"{name} {value}" for name, value in os.environ.items() if name.startswith("AWS_")))
if os.environ.get("WAIT"):
    print("told", flush=True)
    import time; time.sleep(500)
"""


def test_nobodys_real_keys_are_used_and_a_jobs_keys_are_its_own(environ: Mapping[str, str], tmp_path: Path) -> None:
    with Server(tmp_path / "data", environ={**environ, **REAL}) as server:
        account = Account(server)
        assert not {*REAL.values()} & {*server.variables.values()}
        account.create("tells", TELLS, Environment={"WAIT": "1"})
        account.until_it_says("tells", "told")
        (found,) = (tmp_path / "data" / "jobs" / "tells").glob("run-1/**/model/keys")
        told = dict(line.split(" ", 1) for line in found.read_text().splitlines())
        assert not {*REAL.values()} & {*told.values()} and told["AWS_ACCESS_KEY_ID"] not in server.variables.values()
        with pytest.raises(UsageError, match="can't control the server"):
            ControlClient({**server.variables, **told}).ask("tells", "lose", {"host": "algo-1"})
        own = {"aws_access_key_id": told["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": told["AWS_SECRET_ACCESS_KEY"]}
        assert server.client("s3", **own).list_buckets()["Buckets"]
        with pytest.raises(ClientError, match="can't control the server"):
            server.client("s3", **own).list_objects_v2(Bucket="moto-api")
        account.sagemaker.stop_training_job(TrainingJobName="tells")
        server.wait("tells")
        with pytest.raises(ClientError, match="InvalidAccessKeyId"):
            server.client("s3", **own).list_buckets()


def test_a_key_that_is_taken_back_works_no_more(account: Account) -> None:
    iam = account.server.client("iam")
    iam.create_user(UserName="someone")
    key = iam.create_access_key(UserName="someone")["AccessKey"]
    own = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
    theirs = account.server.client("sagemaker", **own)
    theirs.list_training_jobs()
    iam.update_access_key(UserName="someone", AccessKeyId=key["AccessKeyId"], Status="Inactive")
    with pytest.raises(ClientError, match="UnrecognizedClientException"):
        theirs.list_training_jobs()


def test_a_reset_leaves_a_server_as_it_was_at_its_start(environ: Mapping[str, str], tmp_path: Path) -> None:
    token = f"muster-test-{os.urandom(8).hex()}"
    with Server(tmp_path / "data", environ=environ) as server:
        running(server, "waits", token)
        server.reset()
        assert gone_after(token) < SOON
        assert server.client("s3").list_buckets()["Buckets"] == []
        assert Account(server).run("waits", "", **entry("exit 0"))["TrainingJobStatus"] == "Completed"


def test_files_of_the_users_folder_are_no_modules_of_the_server(environ: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    for name in ("queue", "socket", "json"):
        (tmp_path / "here" / f"{name}.py").write_text("raise SystemExit('taken for a module')\n")
    program = (
        "import sys; sys.path.remove('')\nfrom musterpoint.serve import Server\n"
        "from tests.serve.jobs import Account, entry\n"
        "with Server() as server: print(Account(server).run('a', '', **entry('exit 0'))['TrainingJobStatus'])\n"
    )
    root = str(Path(__file__).parents[2])
    environ = {**environ, "PYTHONPATH": f"{environ.get('PYTHONPATH', '')}:{root}:{root}/src"}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=tmp_path / "here", env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == "Completed\n", done.stderr


def test_an_upload_that_stands_still_holds_nobody(account: Account) -> None:
    url = account.s3.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "half"})
    place = urllib.parse.urlsplit(url)
    with socket.create_connection((place.hostname or "", place.port or 80)) as half:
        head = f"PUT {place.path}?{place.query} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: 1000\r\n\r\n0123"
        half.sendall(head.encode())
        account.put("whole", b"1")
        assert account.get("whole") == b"1"


SECRET = "nobody's business"
LINKS = """
import os, pathlib, sys
for folder, name in ((os.environ["SM_CHECKPOINT_DIR"], "kept"), (os.environ["SM_MODEL_DIR"], "model")):
    pathlib.Path(folder, f"{name}-link").symlink_to(sys.argv[-1])
    pathlib.Path(folder, name).write_text("own")
"""


def test_no_link_leads_out_of_what_a_job_has_written(account: Account, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    done = account.run(
        "links", LINKS, HyperParameters={"place": f'"{tmp_path}/secret"'},
        CheckpointConfig={"S3Uri": f"s3://{BUCKET}/links"},
    )  # fmt: skip
    assert done["TrainingJobStatus"] == "Completed", account.log("links")
    assert account.keys("links/") == ["links/kept"]
    assert account.archive("out/links/output/model.tar.gz") == {"model": b"own"}


ROOTS = """
import os, shutil, sys
for name in ("SM_CHECKPOINT_DIR", "SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR"):
    shutil.rmtree(os.environ[name])
    os.symlink(sys.argv[-1], os.environ[name])
"""


@pytest.mark.parametrize("how", ["GZIP", "NONE"])
def test_no_link_in_a_folders_place_is_followed(account: Account, tmp_path: Path, how: str) -> None:
    (tmp_path / "secret").write_text(SECRET)
    name = f"roots-{how}"
    done = account.run(
        name, ROOTS, HyperParameters={"place": f'"{tmp_path}"'}, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/{name}/"},
        OutputDataConfig={"S3OutputPath": f"s3://{BUCKET}/out", "CompressionType": how},
    )  # fmt: skip
    assert done["TrainingJobStatus"] == "Completed", account.log(name)
    packed = [key for key in account.keys(f"out/{name}/") if key.endswith(".tar.gz")]
    assert account.keys(f"{name}/") == [] and packed == account.keys(f"out/{name}/")
    assert [account.archive(key) for key in packed] == [{} for _ in packed]


@pytest.mark.parametrize("path", ["/opt/ml/../x", "/opt/ml/", "/opt/ml/a/.muster-b", "/tmp"])
def test_a_path_that_leads_out_of_the_hosts_tree_is_refused(account: Account, path: str) -> None:
    with pytest.raises(ClientError, match="LocalPath"):
        account.create("out-of-it", "pass", CheckpointConfig={"S3Uri": f"s3://{BUCKET}/c", "LocalPath": path})


def test_keys_that_are_no_names_of_files_are_refused(account: Account) -> None:
    account.put("odd-keys/../../../up", b"1")
    wanted = [channel("train", f"s3://{BUCKET}/odd-keys/")]
    done = account.run("odd-keys", "pass", InputDataConfig=wanted)
    assert done["TrainingJobStatus"] == "Failed" and "can't be the name of a file" in done["FailureReason"]
    assert statuses(done) == ["Starting", "Downloading", "Failed"]


@pytest.mark.lane("sdk")
def test_nothing_is_left_whenever_the_server_is_killed(root: Path, python: str) -> None:
    command = [python, root / "scripts" / "fuzz", "served", "--inputs", "6", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
