"""Channels from S3 and results to it, against boto3, s5cmd and `aws s3 cp`: bytes a second, processor time, memory.

The server is `rclone serve s3` on this machine; how fast it is by itself is measured, too. 10,000 files of 1 MiB and 10
of 1 GiB; with `--quick` a tenth of both. Each tool moves the same files in the same run, one after the other.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import trial
from benchmarks.figure import Figure

ROOT = Path(__file__).resolve().parent.parent.parent
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
MEMORY = 200 << 20
READERS = 4
OURS = """
import os, sys
from musterpoint.core.data.moves import bring
from musterpoint.core.data.mover_process import Access
from musterpoint.core.data.places import Channel
from musterpoint.core.data.moves import send
what, uri, directory, python = sys.argv[1:]
access = Access(os.environ, (python,))
bring(Channel("train", uri), directory, access) if what == "get" else send(directory, uri, access)
"""
BOTO3 = """
import boto3, os, sys
from concurrent.futures import ThreadPoolExecutor
what, uri, directory = sys.argv[1:]
bucket, _, prefix = uri.removeprefix("s3://").partition("/")
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"])
if what == "get":
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [each["Key"] for page in pages for each in page["Contents"]]
    def move(key):
        s3.download_file(bucket, key, os.path.join(directory, os.path.basename(key)))
else:
    keys = os.listdir(directory)
    def move(key):
        s3.upload_file(os.path.join(directory, key), bucket, prefix + key)
with ThreadPoolExecutor(8) as pool:
    list(pool.map(move, keys))
"""


class Cost(NamedTuple):
    """What a tool's run took: seconds, processor seconds and bytes of its largest process."""

    seconds: float
    processor: float
    memory: int


class Load(NamedTuple):
    """Files of one size."""

    name: str
    files: int
    size: int

    @property
    def bytes(self) -> int:
        return self.files * self.size


def measure(bench: trial.Bench) -> list[Figure]:
    part = 10 if bench.quick else 1
    loads = (Load("small", 10_000 // part, 1 << 20), Load("large", 10, (1024 // part) << 20))
    setup = subprocess.run([ROOT / "scripts" / "setup", "transfers"], stdout=subprocess.PIPE, text=True, check=True)
    tools = Path(setup.stdout.splitlines()[-1])
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        return [figure for load in loads for figure in _measure(bench, tools, Path(folder), load)]


def _measure(bench: trial.Bench, tools: Path, folder: Path, load: Load) -> list[Figure]:
    bucket, place = folder / "served" / load.name, folder / "files"
    bucket.mkdir(parents=True)
    block = os.urandom(1 << 20)
    for number in range(load.files):
        with open(bucket / f"{number:05}.bin", "wb") as file:
            for _ in range(load.size >> 20):
                file.write(block)
    figures: list[Figure] = []
    with _served(tools, folder / "served") as address:
        alone = _speed_of(address, load)
        environ = trial.environment(**KEYS, AWS_ENDPOINT_URL_S3=f"http://{address}")
        for what in ("get", "put"):
            costs = {}
            for name, words in _commands(bench, tools, what, f"http://{address}", load.name, str(place)).items():
                if what == "get":
                    shutil.rmtree(place, ignore_errors=True)
                    place.mkdir()
                costs[name] = _run(words, environ)
                _check(place if what == "get" else folder / "served" / _own(load.name, name), load)
                if what == "put":
                    shutil.rmtree(folder / "served" / _own(load.name, name))
            figures += _figures(load, what, costs, alone)
    shutil.rmtree(bucket)
    shutil.rmtree(place)
    return figures


def _commands(
    bench: trial.Bench, tools: Path, what: str, endpoint: str, bucket: str, place: str
) -> dict[str, Sequence[str]]:
    """By tool, the words that bring ``bucket`` to the directory ``place``, or what is there to a bucket of its own."""
    python, s5cmd, aws = str(tools / "python"), str(tools / "s5cmd"), str(tools / "aws")
    uris = {name: f"s3://{bucket}/" if what == "get" else f"s3://{_own(bucket, name)}/" for name in _TOOLS}
    return {
        "musterpoint": (str(bench.python), "-c", OURS, what, uris["musterpoint"], place, python),
        "boto3": (python, "-c", BOTO3, what, uris["boto3"], place),
        "s5cmd": (s5cmd, "--endpoint-url", endpoint, "cp",
                  *((f"{uris['s5cmd']}*", f"{place}/") if what == "get" else (f"{place}/", uris["s5cmd"]))),
        "aws s3 cp": (aws, "--endpoint-url", endpoint, "s3", "cp", "--recursive", "--only-show-errors",
                      *((uris["aws s3 cp"], place) if what == "get" else (place, uris["aws s3 cp"]))),
    }  # fmt: skip


_TOOLS = ("musterpoint", "boto3", "s5cmd", "aws s3 cp")


def _own(bucket: str, tool: str) -> str:
    """The bucket to which ``tool`` sends what is in ``bucket``."""
    return f"{bucket}-{tool.replace(' ', '-')}"


def _run(words: Sequence[str], environ: dict[str, str]) -> Cost:
    began = time.monotonic()
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        said = process.stdout.read().decode(errors="replace")
        _, status, used = os.wait4(process.pid, 0)  # with what it has started and waited for
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{words[0]} ended with code {process.returncode}: {said[-2000:]}")
    return Cost(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss << 10)


def _check(folder: Path, load: Load) -> None:
    sizes = [path.stat().st_size for path in folder.iterdir()]
    if sizes != [load.size] * load.files:
        raise RuntimeError(f"{folder} has {len(sizes)} files of {sum(sizes):,} bytes: expected {load}")


@contextmanager
def _served(tools: Path, folder: Path) -> Iterator[str]:
    """The address of an S3 server, whose buckets are the folders of ``folder``."""
    for name in _TOOLS:
        for each in ("small", "large"):
            (folder / _own(each, name)).mkdir(exist_ok=True)
    words = [str(tools / "rclone"), "serve", "s3", str(folder), "--addr", "127.0.0.1:0", "--config", os.devnull]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            for line in server.stderr:
                if found := re.search(r"http://(127\.0\.0\.1:\d+)", line):
                    yield found[1]
                    break
            else:
                raise RuntimeError("rclone has not begun to serve")
        finally:
            server.terminate()


def _speed_of(address: str, load: Load) -> float:
    """Bytes a second of the server by itself, to readers that do nothing with them; at most 1 GiB is read."""
    count = min(load.files, max(READERS, (1 << 30) // load.size))

    def read(reader: int) -> None:
        connection, space = http.client.HTTPConnection(address), bytearray(1 << 20)
        for number in range(reader, count, READERS):
            connection.request("GET", f"/{load.name}/{number:05}.bin")
            answer = connection.getresponse()
            if answer.status != 200:
                raise RuntimeError(f"rclone answered with {answer.status}")
            while answer.readinto(space):
                pass
        connection.close()

    began = time.monotonic()
    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(read, range(READERS)))
    return count * load.size / (time.monotonic() - began)


def _figures(load: Load, what: str, costs: dict[str, Cost], alone: float) -> Iterator[Figure]:
    how = {"get": "brought", "put": "sent"}[what]
    name = f"{load.files:,} × {load.size >> 20:,} MiB {how}"
    speeds = {tool: load.bytes / 1e6 / cost.seconds for tool, cost in costs.items()}
    processor = {tool: cost.processor / (load.bytes / 1e9) for tool, cost in costs.items()}
    ours, theirs = _TOOLS[0], _TOOLS[1:]
    facts = {tool: cost._asdict() for tool, cost in costs.items()}
    server = f"; rclone itself gives {alone / 1e6:.0f}" if what == "get" else ""
    yield Figure(
        f"{name}: MB/s",
        "at least the best of the others",
        ", ".join(f"{tool} {speed:.0f}" for tool, speed in speeds.items()) + server,
        speeds[ours] >= max(speeds[tool] for tool in theirs),
        {**facts, "server": alone},
    )
    yield Figure(
        f"{name}: processor seconds per GB",
        "at most the best of the others",
        ", ".join(f"{tool} {seconds:.2f}" for tool, seconds in processor.items()),
        processor[ours] <= min(processor[tool] for tool in theirs),
        facts,
    )
    yield Figure(
        f"{name}: memory",
        "at most 200 MiB",
        ", ".join(f"{tool} {cost.memory / 2**20:.0f} MiB" for tool, cost in costs.items()),
        costs[ours].memory <= MEMORY,
        facts,
    )
