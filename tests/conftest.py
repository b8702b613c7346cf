"""What every test may use: the interpreter, the checkout, an environment without this machine's own settings."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import uuid
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import lanes

from . import report
from .hosts.s3 import S3, Faulty
from .left_behind import State, children, left_behind, state
from .own_network import own_network

ROOT = Path(__file__).resolve().parent.parent

AT_FIRST = pytest.StashKey[State]()
FAILED = pytest.StashKey[bool]()
MISPLACED = pytest.StashKey[str]()
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

# Variables of the machine that runs the tests which would change what a job is taken for.
PLATFORM_PREFIXES = (
    "AZUREML_",
    "AZ_BATCH",
    "CLUSTER_SPEC",
    "CURRENT_HOST",
    "DMLC_",
    "JAX_COORDINATOR_",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
    "JOB_COMPLETION_INDEX",
    "KUBEFLOW_",
    "KUBERNETES_",
    "K_MPI_JOB_ROLE",
    "MUSTER_",
    "OMPI_",
    "PET_",
    "PMI",
    "SAGEMAKER_",
    "SLURMD_",
    "SLURM_",
    "SM_",
    "TF_CONFIG",
    "TRAINING_JOB_",
)
RANK_NAMES = (
    "GROUP_RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NODE_RANK",
    "NNODES",
    "NPROC_PER_NODE",
    "OMP_NUM_THREADS",
    "RANK",
    "WORLD_SIZE",
)

# How long an example takes says how busy the machine is. Every run draws the same examples, so that what was tried is
# what lands; --hypothesis-profile=new draws others, and more of them (scripts/fuzz --properties). "fewest" is for
# scripts/test --quick.
settings.register_profile(
    "all", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=20
)
settings.register_profile("fewest", settings.get_profile("all"), max_examples=10)
settings.register_profile("new", settings.get_profile("all"), derandomize=False, max_examples=200, print_blob=True)
settings.load_profile("all")


OF_THE_MACHINE = ("images", "faults/test_containers.py", "hosts/test_code_install.py")
"""Tests that need the network of this machine, by where they stand: containers are reached through it, and pip looks
for the index that this machine is configured with, too."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spread", action="store_true", help="mix tests that wait for a timer with those that compute")
    parser.addoption("--lane", choices=tuple(lanes.LANES), help="the tests of a lane of scripts/lanes.py only")
    parser.addoption("--only-quick", action="store_true", help="the tests of scripts/test --quick only")
    report.add_options(parser)
    group = parser.getgroup("contract", "tests/contract/control_plane")
    group.addoption("--endpoint-url", default="", help="the control plane to test [ours, and moto's server]")
    group.addoption("--backend-name", default="given", help="what that is called [given]")
    group.addoption("--training-image", default="python:3.12", help="an image with python3 that it has [python:3.12]")


def pytest_configure(config: pytest.Config) -> None:
    as_started_by_a_shell()
    config.stash[AT_FIRST] = state()
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    if without := [path for path in files if lanes.row(path) is None]:
        raise pytest.UsageError(f"{without[0]} has no row in scripts/lanes.py: add one, which says where it runs")
    report.register(config)


def as_started_by_a_shell() -> None:
    """Sets what processes inherit, which nohup, a shell's ``&`` and the user's own settings change."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, *IGNORED_BY_PYTHON}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.umask(0o022)
    os.chdir(ROOT)
    for name in [name for name in os.environ if name.startswith("LC_") or name == "LANGUAGE"]:
        del os.environ[name]
    os.environ["LANG"] = "C.UTF-8"


LONGEST_GROUPS = ("sagemaker-sdk", "smdistributed", "tensorflow", "packages")
"""Groups of tests for one worker that take longer than all others, the longest first."""


gc.disable()  # while tests are collected nothing is garbage, and looking for it takes a third of that time


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves files of other lanes unread."""
    if not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    row = lanes.row(collection_path.relative_to(ROOT).as_posix())
    lane, quick = config.getoption("--lane"), config.getoption("--only-quick")
    elsewhere = row and lane and lane not in (row.lane, *row.also)
    return True if elsewhere or (row and quick and not row.quick) else None


def sorted_by_lanes(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests of other lanes, and gives each test the limit of its row."""
    asked = config.getoption("--lane")
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        row = lanes.row(path) or lanes.Row(path)
        own = [mark for mark in item.own_markers if mark.name == "lane"]  # a parameter's stands behind its function's
        marked = own[-1] if own else item.get_closest_marker("lane")
        lane = marked.args[0] if marked else row.lane
        if lane not in (row.lane, *row.also):
            item.stash[MISPLACED] = f"marked for {lane}, which the row of its file in scripts/lanes.py lacks"
            lane = row.lane
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(row.limit))
        (kept if asked in (None, lane) else left).append(item)
    if left:
        items[:] = kept
        config.hook.pytest_deselected(items=left)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Tests for one worker (``xdist_group``: they share what takes long to set up) run first, unit tests last."""
    sorted_by_lanes(config, items)
    yield
    if any(hasattr(item.config, "workerinput") for item in items[:1]):
        items.sort(key=turn)


def _spread(item: pytest.Item) -> int:
    """A place that has nothing to do with the file."""
    return zlib.crc32(item.nodeid.encode()) if item.config.getoption("--spread") else 0


def turn(item: pytest.Item) -> tuple[int, int]:
    """When a test runs: the longest groups first, then the others, then tests that any worker may run."""
    group = next((mark.args[0] for mark in item.iter_markers("xdist_group")), None)
    if group in LONGEST_GROUPS:
        return LONGEST_GROUPS.index(group), 0
    return (len(LONGEST_GROUPS), 0) if group else (len(LONGEST_GROUPS) + 1, _spread(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Every other test, with its fixtures, is in a network that is its process's own.

    Several workers, and several runs, are on one machine, and some ports and names have to be fixed.
    """
    of_the_machine = item.path.relative_to(ROOT / "tests").as_posix().startswith(OF_THE_MACHINE)
    of_the_machine = of_the_machine or bool(item.config.getoption("--endpoint-url"))
    with nullcontext() if of_the_machine else own_network():
        result = yield
        return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes that a test has failed."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture
def has_failed(request: pytest.FixtureRequest) -> Callable[[], bool]:
    """Whether the test has failed, for fixtures that look at what it left."""
    return lambda: request.node.stash.get(FAILED, False)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The marker ``torch`` skips where there is none. Importing it to find out would cost every worker seconds."""
    if MISPLACED in item.stash:
        pytest.fail(item.stash[MISPLACED])
    if item.get_closest_marker("torch") and importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")


@pytest.fixture(autouse=True)
def _as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that leaves a child, a signal handler or another directory would make any later one fail."""
    before = request.config.stash[AT_FIRST]._replace(children=children())
    yield
    left = left_behind(before)
    assert not left, "; ".join(left)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout: the folder that holds pyproject.toml."""
    return ROOT


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter that runs the tests, for programs that tests start."""
    return sys.executable


@pytest.fixture(scope="session")
def stack() -> Callable[[str], Path]:
    """The bin directory of a stack of scripts/stacks.py, by its name there: its python, and any mpirun of its own."""
    return lambda name: Path(set_up("MUSTER_TEST_ENV_", name, "sets up the stacks"))


def set_up(prefix: str, name: str, how: str) -> str:
    """What scripts/test, which ``how`` a test needs, says of one of them."""
    variable = prefix + name.upper().replace("-", "_")
    if variable not in os.environ:
        pytest.fail(f"{variable} is not set: run this test with scripts/test, which {how} it needs")
    return os.environ[variable]


@pytest.fixture(scope="session")
def s3(stack: Callable[[str], Path]) -> Iterator[S3]:
    """A real S3 API of the worker's, with a bucket ``jobs``."""
    server = S3(stack("s3"))
    server.bucket("jobs")
    yield server
    server.close()


@pytest.fixture
def bucket(s3: S3, request: pytest.FixtureRequest) -> str:
    """A bucket of the test's own."""
    name = f"{request.node.name.partition('[')[0].replace('_', '-')[:50].strip('-')}-{uuid.uuid4().hex[:8]}"
    s3.bucket(name)
    return name


@pytest.fixture
def faulty(s3: S3) -> Iterator[Faulty]:
    """The same, through a proxy that fails as it is told to."""
    proxy = Faulty(s3.port)
    yield proxy
    proxy.close()


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder with a wheel and a source distribution, made as an index gets them, and what setuptools said."""
    folder = tmp_path_factory.mktemp("built")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in map(os.fsdecode, filter(None, listed.split(b"\0"))):
        if (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / "source" / name)
    made = "import setuptools.build_meta as b; b.build_sdist('..'); b.build_wheel('..')"
    words = [sys.executable, "-c", made]
    ran = subprocess.run(words, cwd=folder / "source", check=True, capture_output=True, text=True, timeout=500)
    return folder, ran.stdout + ran.stderr


@pytest.fixture(scope="session")
def wheel(built: tuple[Path, str]) -> Path:
    (found,) = built[0].glob("*.whl")
    return found


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """A browser of the test's own."""
    from .browser import chromium  # selenium is slow to import, and two modules need it

    driver = chromium(tmp_path / "profile")
    yield driver
    driver.quit()


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without any platform's or launcher's variables, with this checkout importable.

    Without a terminal's size, too: Python's readline, which pytest imports, sets it for what is started later.
    """
    found = {
        name: value
        for name, value in environ.items()
        if not name.startswith(PLATFORM_PREFIXES) and name not in {*RANK_NAMES, "COLUMNS", "LINES"}
    }
    return {**found, "PYTHONPATH": str(ROOT / "src")}


@pytest.fixture
def environ() -> dict[str, str]:
    """The variables of this process as :func:`clean` leaves them."""
    return clean(os.environ)
