"""Jobs on several hosts of this machine, and what tests look at afterwards."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

import pytest

from .packages import Index


class Ran:
    """A finished ``muster local``: its job description, the hosts' logs, and how long it took in seconds."""

    def __init__(self, output: Path, done: subprocess.CompletedProcess[str], seconds: float) -> None:
        self.output = output
        self.stderr = done.stderr
        self.stdout = done.stdout
        self.code = done.returncode
        self.seconds = seconds

    @property
    def job(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.output / "job.json").read_text())
        return found

    @property
    def reason(self) -> str:
        """The failure reason without what the platform puts around it."""
        text: str = self.job["FailureReason"]
        return text.removeprefix("AlgorithmError: ").removesuffix(f"\nexit code {self.job['ExitCode']}")

    def log(self, host: str) -> str:
        return (self.output / "hosts" / host / "log").read_text(errors="replace")

    def left(self, host: str, name: str) -> str:
        """A file below the host's ``/opt/ml/output``."""
        return (self.output / "hosts" / host / "opt" / "ml" / "output" / name).read_text()

    def outcome(self, host: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.left(host, "outcome.json"))
        return found

    def events(self, host: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.left(host, "timeline.json"))
        return found

    def soon(self, seconds: float) -> float:
        """``seconds``, or on a busy machine some times as long as the first host took to start its ranks."""
        events = self.events("algo-1")
        started = min(event["at"] for event in events if event["event"] == "rank-started")
        return max(seconds, 3 * float(started - events[0]["at"]))


def finished(process: subprocess.Popen[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """``process`` when it has ended, which it must within ``timeout`` seconds."""
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        raise AssertionError(
            f"no end after {timeout} s: {process.args!r}; stderr:\n{stderr}\nstdout:\n{stdout}"
        ) from None
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


class Local:
    """Runs ``muster local``; every process of a job carries :attr:`token` in its environment."""

    def __init__(self, python: str, environ: dict[str, str], folder: Path) -> None:
        self.python, self.environ, self.folder = python, environ, folder
        self.token = f"muster-test-{uuid.uuid4().hex}"
        self.environ["MUSTER_TEST_TOKEN"] = self.token
        self.environ.setdefault("MUSTER_LOG_PREFIX", "none")  # most tests look for the programs' own lines
        self.output = folder / "job"
        self.started: list[subprocess.Popen[str]] = []

    def program(self, text: str, name: str = "program.py") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def command(self, *words: str | Path, output: Path | None = None) -> list[str]:
        place = ["--output", str(output or self.output)]
        return [self.python, "-m", "musterpoint", "local", *place, *map(str, words)]

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.command(*words), env=self.environ, cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def finish(self, process: subprocess.Popen[str], timeout: float = 500.0) -> Ran:
        started = time.monotonic()
        return Ran(self.output, finished(process, timeout), time.monotonic() - started)

    def run(self, *words: str | Path, timeout: float = 500.0) -> Ran:
        return self.finish(self.start(*words), timeout)

    def stop(self, *words: str | Path, when: str, lines: int, timeout: float = 500.0) -> Ran:
        """Runs a job, and stops it as StopTrainingJob does once ``when`` has stood in so many lines of its output."""
        process = self.start(*words)
        assert process.stdout is not None
        for _ in range(lines):
            while when not in (line := process.stdout.readline()):
                assert line, process.communicate()
        process.send_signal(signal.SIGTERM)
        return self.finish(process, timeout)


def pids(*marks: str) -> list[int]:
    """Processes that have all ``marks`` in their environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if all(mark.encode() in environ for mark in marks):
            found.append(int(name))
    return found


def survivors(token: str) -> list[str]:
    """Processes that still exist and have ``token`` in their environment, by command line; not those that only have
    yet to notice that they were killed.
    """
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                environ = Path(f"/proc/{name}/environ").read_bytes()
                words = Path(f"/proc/{name}/cmdline").read_bytes()
                pending = re.findall(r"^S\w+Pnd:\s*(\w+)$", Path(f"/proc/{name}/status").read_text(), re.MULTILINE)
            except OSError:
                continue
            dying = any(int(signals, 16) >> (signal.SIGKILL - 1) & 1 for signals in pending)
            if token.encode() in environ and words and not dying:
                found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


def none_left(runner: Any, has_failed: Callable[[], bool] = lambda: False) -> Iterator[Any]:
    """What a fixture yields that is ``runner``: no process with its token may outlive the test."""
    yield runner
    left = survivors(runner.token)
    end(runner.started)
    assert not left or has_failed(), "processes of the job were left behind:\n" + "\n".join(left)


@pytest.fixture
def local(python: str, environ: dict[str, str], tmp_path: Path, has_failed: Callable[[], bool]) -> Iterator[Local]:
    yield from none_left(Local(python, environ, tmp_path), has_failed)


def with_py_spy(path: str) -> str:
    """A search path, and behind it the folder of py-spy, wherever the test environment has it."""
    files = importlib.metadata.distribution("py-spy").files or []
    folder = Path(str(next(file for file in files if file.name == "py-spy").locate())).parent
    return f"{path}{os.pathsep}{folder}"


@pytest.fixture
def py_spy(environ: dict[str, str]) -> None:
    """The package's program is on the hosts' PATH."""
    environ["PATH"] = with_py_spy(environ["PATH"])


def end(started: Iterable[subprocess.Popen[Any]]) -> None:
    """Kills what a test that failed left running, and with it what it started, or it would slow down all others."""
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def together(started: list[subprocess.Popen[str]]) -> tuple[list[int], list[str]]:
    """The codes of processes that run at once, and what each wrote to stdout; none outlives this."""
    try:
        said = [process.communicate(timeout=500)[0] for process in started]
    finally:
        end(started)
    return [process.returncode for process in started], said


def eventually(check: Callable[[], bool], timeout: float = 500.0) -> None:
    """Returns when ``check`` holds."""
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, f"not within {timeout} s"
        time.sleep(0.05)


class Train:
    """One host's ``train`` without a control plane around it; every process of the job carries :attr:`token`."""

    def __init__(self, python: str, environ: dict[str, str], base: Path) -> None:
        self.python, self.base = python, base
        self.token = f"muster-test-{uuid.uuid4().hex}"
        self.environ = {**environ, "SAGEMAKER_BASE_DIR": str(base), "MUSTER_TEST_TOKEN": self.token}
        self.environ["MUSTER_MASTER_PORT"] = "0"  # other tests' jobs run beside this one
        self.started: list[subprocess.Popen[bytes]] = []
        for name in ("input/config", "model", "code"):
            (base / name).mkdir(parents=True)
        (base / "input/config/resourceconfig.json").write_text('{"current_host": "algo-1", "hosts": ["algo-1"]}')
        (base / "input/config/inputdataconfig.json").write_text("{}")

    def program(self, text: str, name: str = "program.py") -> None:
        """The entry point, or with another ``name`` called later, the entry point instead of the one before."""
        (self.base / "code" / name).write_text(text)
        words = {"sagemaker_program": json.dumps(name)}
        (self.base / "input/config/hyperparameters.json").write_text(json.dumps(words))

    def start(self, *before: str, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE,
              **environ: str) -> subprocess.Popen[bytes]:  # fmt: skip
        """``before`` are words in front of the command; ``environ`` are options and whatever the program wants."""
        process = subprocess.Popen(
            [*before, self.python, "-m", "musterpoint.cli.train"], env={**self.environ, **environ}, cwd="/",
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, *before: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
        process = self.start(*before, **environ)  # type: ignore[arg-type]  # no option is called stdout
        try:
            stdout, stderr = process.communicate(timeout=500)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def ready(self, process: subprocess.Popen[bytes], *names: str) -> None:
        """Returns when the program has made all these files in its model directory."""

        def made() -> bool:
            assert process.poll() is None, (process.returncode, process.stderr and process.stderr.read())
            return all(self.left(name) for name in names)

        eventually(made)

    def left(self, name: str) -> bool:
        """Whether the program left a file of this name in its model directory."""
        return (self.base / "model" / name).exists()

    @property
    def reason(self) -> str:
        return (self.base / "output" / "failure").read_text()


@pytest.fixture
def train(python: str, environ: dict[str, str], tmp_path: Path) -> Iterator[Train]:
    yield from none_left(Train(python, environ, tmp_path / "ml"))


MakeIndex = Callable[..., Index]


@pytest.fixture(scope="session")
def user_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The user's Python: a virtual environment with nothing but pip in it, for what tests install."""
    folder = tmp_path_factory.mktemp("user") / "python"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=500)
    return str(folder / "bin" / "python")


@pytest.fixture
def index() -> Iterator[MakeIndex]:
    """Makes package indexes on loopback."""
    made: list[Index] = []

    def make(*packages: tuple[str, bytes], **more: Any) -> Index:
        made.append(Index(*packages, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def installing(train: Train, user_python: str, tmp_path: Path) -> Train:
    """A host that installs into the user's Python; this machine's own settings of pip and uv don't count."""
    for variable in [name for name in train.environ if name.startswith(("PIP_", "UV_", "AWS_"))]:
        del train.environ[variable]
    train.environ.update(
        MUSTER_PYTHON=user_python, PIP_CONFIG_FILE=os.devnull, PIP_CACHE_DIR=str(tmp_path / "cache"),
        UV_CACHE_DIR=str(tmp_path / "cache"), HOME=str(tmp_path), TMPDIR=str(tmp_path),
    )  # fmt: skip
    return train
