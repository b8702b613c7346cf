"""Measures ``muster serve`` in a Python that has the extra, and prints the figures as JSON; see ``serve.py`` beside."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import trial
from benchmarks.figure import Figure, milliseconds
from musterpoint.serve import Server
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import State, listed

MOST_SECONDS, LEAST_THROUGHPUT, MOST_MIB, MOST_LIST, MOST_LATENCY = 1.0, 0.9, 300.0, 0.05, 0.5
RUNS, QUEUED, FINISHED, LINES = 10, 50, 10_000, 20
AT_ONCE = 2
NOTHING = ("true",)
BUCKET = "bench"
PROGRAM = "print('here')\n"


@contextlib.contextmanager
def serving(data: Path, jobs: int = AT_ONCE) -> Iterator[tuple[Server, Any]]:
    """A server with a bucket, and a client of it."""
    with Server(data, max_jobs=jobs, environ=trial.environment()) as server:
        server.client("s3").create_bucket(Bucket=BUCKET)
        yield server, server.client("sagemaker")


def request(name: str, hosts: int, *command: str) -> dict[str, Any]:
    algorithm = {"TrainingImage": "any", "TrainingInputMode": "File", "ContainerEntrypoint": list(command)}
    return {
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::123456789012:role/bench",
        "AlgorithmSpecification": algorithm,
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": hosts, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    }


def create_to_completed(folder: Path) -> Figure:
    """Two hosts whose command does nothing."""
    took = []
    with serving(folder / "one") as (server, sagemaker):
        for number in range(RUNS):
            began = time.perf_counter()
            sagemaker.create_training_job(**request(f"nothing-{number}", 2, *NOTHING))
            done = server.wait(f"nothing-{number}")
            took.append(time.perf_counter() - began)
            assert done["TrainingJobStatus"] == "Completed", done
    found = median(took)
    return Figure(
        "serve: create → Completed, two hosts that do nothing", f"≤ {MOST_SECONDS:g} s", milliseconds(found),
        found <= MOST_SECONDS, {"seconds": took},
    )  # fmt: skip


def throughput(folder: Path) -> Figure:
    """Jobs of one Python program, queued at once, and the same number through ``muster local``, as many at once."""
    program = folder / "code" / "program.py"
    program.parent.mkdir()
    program.write_text(PROGRAM)

    def alone(number: int) -> None:
        words = ["local", "--backend", "process", "--output", str(folder / f"local-{number}"), str(program)]
        command = [sys.executable, "-m", "musterpoint", *words]
        subprocess.run(command, env=trial.environment(), check=True, capture_output=True)

    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as lanes:
        list(lanes.map(alone, range(QUEUED)))
    local = time.perf_counter() - began
    with serving(folder / "queue") as (server, sagemaker):
        wanted = request("", 1, *NOTHING)
        del wanted["AlgorithmSpecification"]["ContainerEntrypoint"]
        code = {"sagemaker_program": program.name, "sagemaker_submit_directory": str(program.parent)}
        wanted["HyperParameters"] = {name: json.dumps(value) for name, value in code.items()}
        began = time.perf_counter()
        for number in range(QUEUED):
            sagemaker.create_training_job(**{**wanted, "TrainingJobName": f"queued-{number}"})
        done = [server.wait(f"queued-{number}") for number in range(QUEUED)]
        served = time.perf_counter() - began
    assert all(each["TrainingJobStatus"] == "Completed" for each in done)
    ratio = local / served
    return Figure(
        f"serve: {QUEUED} jobs, {AT_ONCE} at once, against muster local alone", f"≥ {LEAST_THROUGHPUT:g} × its rate",
        f"{ratio:.2f} × ({QUEUED / served:.1f} jobs a second)", ratio >= LEAST_THROUGHPUT,
        {"local": local, "serve": served},
    )  # fmt: skip


def many_jobs(folder: Path) -> list[Figure]:
    """Memory and lists with many jobs that are over."""
    settings, state = Settings(str(folder)), State(print)
    for number in range(FINISHED):
        name = f"over-{number}"
        facts = {"SecondaryStatus": "Completed", "SecondaryStatusTransitions": []}
        state.add(name, settings.arn(name), "Completed", request(name, 2, *NOTHING), facts)
    took = [seconds(lambda: listed(state.select(), {})) for _ in range(RUNS)]
    text = Path("/proc/self/status").read_text()
    memory = int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM"))) / 1024
    found = median(took)
    return [
        Figure(f"serve: memory with {FINISHED:,} jobs that are over", f"≤ {MOST_MIB:g} MiB", f"{memory:.0f} MiB",
               memory <= MOST_MIB, {"peak": memory}),
        Figure("serve: first page of a list of them", f"≤ {milliseconds(MOST_LIST)}", milliseconds(found),
               found <= MOST_LIST, {"seconds": took}),
    ]  # fmt: skip


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def log_latency(folder: Path) -> Figure:
    """From the moment that a line is printed, which stands in it, until GetLogEvents has it."""
    script = (
        f"import time\nfor number in range({LINES}):\n    print('at', time.time(), flush=True)\n    time.sleep(0.2)\n"
    )
    group, seen, late = "/aws/sagemaker/TrainingJobs", set[str](), list[float]()
    with serving(folder / "log") as (server, sagemaker):
        logs = server.client("logs")
        logs.describe_log_groups()
        sagemaker.create_training_job(**request("speaks", 1, sys.executable, "-c", script))
        server.wait_for_output("speaks", "at ")
        while len(seen) < LINES:
            with contextlib.suppress(logs.exceptions.ResourceNotFoundException):
                for each in logs.filter_log_events(logGroupName=group, logStreamNamePrefix="speaks")["events"]:
                    if each["message"] not in seen:
                        seen.add(each["message"])
                        late.append(time.time() - float(each["message"].split()[1]))
        server.wait("speaks")
    worst = max(late)
    return Figure(
        "serve: a line's way to CloudWatch, the slowest", f"≤ {MOST_LATENCY:g} s", milliseconds(worst),
        worst <= MOST_LATENCY, {"seconds": late},
    )  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = Path(name)
        figures = [create_to_completed(folder), throughput(folder), *many_jobs(folder), log_latency(folder)]
    print(json.dumps([figure._asdict() for figure in figures]))


if __name__ == "__main__":
    main()
