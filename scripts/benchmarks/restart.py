"""One of two ranks is killed, and both are started anew: the time until the last one runs again."""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks import results, trial
from benchmarks.figure import Figure, in_milliseconds, milliseconds
from benchmarks.peers import kill

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 120.0
GOAL = 1 / 3
RANK = """\
import os, time

folder, rank = os.environ["BENCH_FOLDER"], os.environ["RANK"]
attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
with open(os.path.join(folder, "." + rank), "w") as file:
    file.write(f"{time.monotonic()!r} {os.getpid()}")
os.rename(os.path.join(folder, "." + rank), os.path.join(folder, f"{attempt}-{rank}"))
while attempt == "0":
    time.sleep(0.05)
"""


def measure(bench: trial.Bench) -> list[Figure]:
    resilient, why = _resiliency()
    took: dict[str, list[float]] = {name: [] for name in _commands(bench, resilient)}
    for index in range(-1, 2 if bench.quick else 5):
        for name, command in _commands(bench, resilient).items():
            seconds = _one(command)
            if index >= 0:
                took[name].append(seconds)
    return [_figure(took, launcher, why, resilient) for launcher in ("ranks", "torchrun")]


def _resiliency() -> tuple[Path | None, str]:
    """The Python that has ft_launcher, or why there is none."""
    done = subprocess.run([ROOT / "scripts" / "setup", "resiliency"], capture_output=True, text=True, check=False)
    if done.returncode:
        return None, f"nvidia-resiliency-ext can't be installed here: {done.stderr.strip()[-150:]}"
    return Path(done.stdout.splitlines()[-1]) / "python", ""


def _commands(bench: trial.Bench, resilient: Path | None) -> dict[str, list[str]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=1", "--max-restarts=1"]
    shape = ["--nnodes=1", "--nproc-per-node=2", *meeting]
    again = ["--max-restarts", "1", "--restart-on", "user"]
    found = {
        f"musterpoint ({launcher})": [
            str(bench.python), "-m", "musterpoint", "launch", "--slots", "2", "--launcher", launcher,
            "--master-port", str(port), *again, "rank.py",
        ]
        for launcher in ("ranks", "torchrun")
    }  # fmt: skip
    found["torchrun"] = [str(bench.python), "-m", "torch.distributed.run", *shape, "rank.py"]
    if resilient is not None:
        found["ft_launcher"] = [
            str(resilient),
            "-m",
            "nvidia_resiliency_ext.fault_tolerance.launcher",
            *shape,
            "rank.py",
        ]
    return found


def _one(command: list[str]) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        marks = folder / "marks"
        marks.mkdir()
        (folder / "rank.py").write_text(RANK)
        env = trial.environment(BENCH_FOLDER=str(marks), OMP_NUM_THREADS="1", TMPDIR=name)
        with (folder / "said").open("wb") as said:
            process = subprocess.Popen(command, cwd=folder, env=env, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        try:
            for attempt in ("0", "1"):
                end = time.monotonic() + LIMIT
                while len([*marks.glob(f"{attempt}-*")]) < 2:
                    if process.poll() is not None or time.monotonic() > end:
                        words = (folder / "said").read_text(errors="replace")[-400:]
                        raise SystemExit(f"{command[1:4]}: attempt {attempt} of two ranks didn't come up: {words}")
                    time.sleep(0.005)
                if attempt == "0":
                    time.sleep(0.5)
                    began = time.monotonic()
                    os.kill(int((marks / "0-1").read_text().split()[1]), signal.SIGKILL)
            return max(float(path.read_text().split()[0]) for path in marks.glob("1-*")) - began
        finally:
            kill(f"BENCH_FOLDER={marks}\0".encode())
            process.wait()


def _figure(took: dict[str, list[float]], launcher: str, why: str, resilient: Path | None) -> Figure:
    own = took[f"musterpoint ({launcher})"]
    peers = {name: values for name, values in took.items() if not name.startswith("musterpoint")}
    ratios = {name: [mine / plain for mine, plain in zip(own, values, strict=True)] for name, values in peers.items()}
    beside = "; ".join(
        f"{statistics.median(each):.2f} of {name}'s {milliseconds(statistics.median(peers[name]))} "
        f"({min(each):.2f} to {max(each):.2f})"
        for name, each in ratios.items()
    )
    versions = results.version(resilient, "nvidia-resiliency-ext") if resilient is not None else {}
    versions.pop("Python", None)
    return Figure(
        f"one of two ranks is killed → both run again, `--launcher {launcher}`",
        "≤ a third of the others'",
        "; ".join(filter(None, [milliseconds(statistics.median(own)), beside, why])),
        all(statistics.median(each) <= GOAL for each in ratios.values()),
        {"seconds": took, "ratios": ratios, "versions": versions},
        {f"musterpoint ({launcher})": in_milliseconds(own)}
        | {name: in_milliseconds(values) for name, values in peers.items()},
    )
