"""Runs of the suite and of lanes: their stages, their tests, and once more, alone, what failed.

A test that fails in a run of several workers and passes alone is *unsteady*: both outputs are kept, and more than
:data:`MOST_UNSTEADY` of them fail the run, as does one of a room that differs from origin/main.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TextIO

import lanes
from environments import CACHE, ROOT
from images import TARGETS
from lanes import SUITE
from reaper import RUN
from stacks import STACKS

SETUP, HOUSE = ROOT / "scripts" / "setup", ROOT / "scripts" / "house"
REAPER = ROOT / "scripts" / "reaper.py"
UNSTEADY = ROOT / ".cache" / "unsteady"
NO_NAMESPACES = "--no-namespaces"
"""The word with which tests that need root, or namespaces that this machine won't make, may be left out."""
MOST_UNSTEADY = 3
MOST_RETRIED = 20
"""Tests that are tried again; where more have failed, it isn't for their unsteadiness."""
LONGEST = ("images", "horovod", "horovod-gloo", "horovod-tf", "deepspeed", "huggingface", "tensorflow")
"""The stages that take minutes, the longest first."""
WORKERS = 2 * (os.cpu_count() or 1)
"""Jobs of several hosts wait more than they compute."""
NO_TESTS = 5
PARALLEL = (
    *("--numprocesses", str(WORKERS), "--dist", "loadgroup", "--tb=short"),
    "--no-loadscope-reorder",  # but in the order of tests/conftest.py, which has long tests begin early
    "--max-worker-restart=1",  # the second test that kills its worker would have xdist wait for ever
)
WHOLE = (*PARALLEL, "--durations=40", "--durations-min=15")
QUICK = (
    *("tests/unit", "--only-quick", "-m", "not torch"),
    *(*PARALLEL, "--spread", "--hypothesis-profile=fewest"),
    *("-o", "tmp_path_retention_count=1000"),  # what a run of all tests has left takes a minute to remove
)
OF_ANY_PYTHON = (
    "core/code/test_archive_bounds.py",
    "core/launch/test_no_names.py",
    "embedded/programs/test_stack_sampler.py::test_one_call_of_an_mpi_is_told_from_many_and_from_other_libraries",
    "embedded/programs/test_stack_sampler.py::test_threads_that_only_look_for_work_are_no_work",
    "test_docs.py",
    "test_metadata.py",
)
"""Of tests/unit, what another interpreter needn't run again: what reads this package's text, fills memory, or counts
calls of C code."""
NEWER = ("tests/unit/test_portability.py", "tests/unit/test_start_path.py", "tests/unit/cli")
"""What interpreters newer than the oldest run: every module imported, the commands, the one-file launcher."""
NOT_NEWER = ("cli/test_bundle.py", "cli/test_completion.py")
"""Less what itself runs what it makes on all interpreters, and what asks shells."""

running: set[subprocess.Popen[bytes]] = set()
"""The commands that run now, each below a reaper of its own."""
settings_up: set[subprocess.Popen[bytes]] = set()
"""The stages that are being set up now, each in a session of its own."""
stopped: list[int] = []
"""The signals that have interrupted this run."""


class Missing(Exception):
    """A stage that can't be set up; the text says which."""


class Result(NamedTuple):
    """What a run, or a part of it, came to. ``failed`` has the tests' ids, or the names of other parts."""

    passed: int = 0
    failed: tuple[str, ...] = ()
    unsteady: tuple[str, ...] = ()
    setup: float = 0.0
    seconds: float = 0.0
    not_run: tuple[str, ...] = ()

    def plus(self, other: Result) -> Result:
        return Result(*(mine + its for mine, its in zip(self, other, strict=True)))  # type: ignore[operator]


def interrupted(number: int, _frame: object) -> None:
    """Has everything that runs end; nothing is started any more. Pytest says what had failed by then.

    Told again, it has pytest go on with that: a second signal would cut its report off.
    """
    if not stopped:
        stopped.append(number)
        for child in tuple(running):
            child.send_signal(signal.SIGINT)
        for child in tuple(settings_up):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)


def setup(stage: str) -> list[Path]:
    """The lines that a stage of scripts/setup prints: bin directories or tags."""
    if stopped:
        raise Missing(f"scripts/setup {stage} wasn't begun")
    words = [sys.executable, str(SETUP), stage]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True) as child:
        settings_up.add(child)
        said = child.communicate()[0].decode()
        settings_up.discard(child)
    if child.returncode:
        raise Missing(f"scripts/setup {stage} failed with code {child.returncode}")
    return [Path(line) for line in said.split("\n") if line]


def stacks(stages: set[str]) -> dict[str, str]:
    """Sets up these stages; the variables that tell tests where each stack is, and the tags of images.

    Two at a time: while one compiles, another is downloaded.
    """
    place = {stage: number for number, stage in enumerate(LONGEST)}
    in_order = sorted(stages - {"aws-image"}, key=lambda stage: (place.get(stage, len(place)), stage))
    with ThreadPoolExecutor(2) as threads:
        made = dict(zip(in_order, threads.map(setup, in_order), strict=True))
    if "aws-image" in stages:
        made["aws-image"] = setup("aws-image")  # it stands on the other images' layers
    found: dict[str, str] = {}
    for stage, names in STACKS.items():
        for name, folder in zip(names, made.get(stage, ()), strict=False):
            found["MUSTER_TEST_ENV_" + name.upper().replace("-", "_")] = str(folder)
    for target, tag in zip(TARGETS, made.get("images", ()), strict=False):
        found["MUSTER_TEST_IMAGE_" + target.upper()] = str(tag)
    if "aws-image" in stages:
        found["MUSTER_TEST_IMAGE_AWS"] = str(made["aws-image"][0])
    if "peer" in stages:
        found["MUSTER_TEST_SAGEMAKER_TRAINING"] = str(made["peer"][0] / "python")
    return found


def environ(python: Path, run: str, stages: set[str]) -> dict[str, str]:
    """The variables of tests that need these stages; ``run`` names the run."""
    found = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}", RUN: run}
    found.pop("PYTHONDONTWRITEBYTECODE", None)  # or a thousand processes compile the package anew
    return {**found, **stacks(stages)}


def part(title: str, out: TextIO) -> float:
    print(f"\n== {title}", file=out, flush=True)
    return time.monotonic()


def call(command: list[str | Path], env: dict[str, str], out: TextIO | int) -> int:
    if stopped:
        return 128 + stopped[0]
    words = [sys.executable, str(REAPER), *(str(word) for word in command)]
    with subprocess.Popen(words, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT) as child:
        running.add(child)
        code = child.wait()
        running.discard(child)
        return code


def check(title: str, command: list[str | Path], env: dict[str, str], out: TextIO = sys.stdout) -> Result:
    """One command that passes or fails as a whole."""
    began = part(title, out)
    code = call(command, env, out)
    if stopped:
        return Result()
    seconds = time.monotonic() - began
    print(f"-- {title}: {'failed' if code else 'passed'} in {seconds:.1f} s", file=out, flush=True)
    return Result(failed=(title,)) if code else Result(passed=1)


def checks(python: Path, env: dict[str, str], out: TextIO, house: tuple[str, ...] = ()) -> Result:
    """Style, types, the import contract, and the budget with more words for ``scripts/house``."""
    contract = "from importlinter.cli import lint_imports_command as run; run()"
    kept = {**env, "MYPY_CACHE_DIR": str(CACHE / "mypy")}  # it goes by the hash of each file, so all clones may use it
    return (
        check("style", [python, "-m", "ruff", "check", "."], env, out)
        .plus(check("format", [python, "-m", "ruff", "format", "--check", "."], env, out))
        .plus(check("types", [python, "-m", "mypy"], kept, out))
        .plus(check("rooms", [python, "-c", contract, "--config", "setup.cfg"], env, out))
        .plus(check("house", [python, HOUSE, *house], env, out))
    )


class Said(NamedTuple):
    """A run of pytest, as tests/report.py tells it.

    passed: the ids of tests. failed, skipped: why, by their ids, and of parts of the run by its title.
    said: what they printed, where one process ran them.
    missed: how many were to run and didn't.
    """

    passed: list[str]
    failed: dict[str, str]
    skipped: dict[str, str]
    said: dict[str, str]
    missed: int


class Tests:
    """A run of pytest, and a second one of what failed in it."""

    def __init__(self, title: str, python: Path, words: list[str], env: dict[str, str]) -> None:
        self.title, self.python, self.words, self.env = title, python, words, env
        self._folder = tempfile.TemporaryDirectory(prefix="muster-test-")
        self._first = Said([], {}, {}, {}, 0)

    def run(self, out: TextIO = sys.stdout) -> None:
        began = part(self.title, out)
        self._first = self._pytest(self.words, out)
        told = f"{len(self._first.passed)} passed, {len(self._first.failed)} failed in {time.monotonic() - began:.1f} s"
        print(f"-- {self.title}: {told}", file=out, flush=True)

    def result(self, skips: bool = True, out: TextIO = sys.stdout) -> Result:
        """The outcomes, once failed tests have been tried again, alone and in one process.

        Without ``skips`` a test that was skipped has failed; with it, why so many were is told as not run.
        """
        first, then = self._first, Said([], {}, {}, {}, 0)
        if 0 < len(first.failed) <= MOST_RETRIED and self.title not in first.failed and not stopped:
            title = f"{self.title}: {len(first.failed)} failed, and now alone"
            began = part(title, out)
            ids = Path(self._folder.name) / "again.json"
            ids.write_text(json.dumps([*first.failed]))
            then = self._pytest([*self.words, "-n0", "--dist=no", f"--again={ids}"], out)
            told = f"{len(then.failed)} failed in {time.monotonic() - began:.1f} s"
            print(f"-- {title}: {told}", file=out, flush=True)
        unsteady = tuple(name for name in first.failed if name in then.passed)
        for number, name in enumerate(unsteady, 1):
            keep(f"{number}-{self.title}", name, first.failed[name], then.said.get(name, ""))
        failed = {name for name in first.failed if name not in unsteady}
        if first.skipped:
            rule = "not run" if skips else f"no test may be skipped (without root: {NO_NAMESPACES}), and these were"
            print(f"\n{self.title}: {rule}:", file=out)
            print(*(f"  {name}: {why}" for name, why in first.skipped.items()), sep="\n", file=out, flush=True)
        if not skips:
            failed |= first.skipped.keys()
        why_not = Counter(first.skipped.values()) if skips else Counter[str]()
        self._folder.cleanup()
        unsteady = tuple(name for name in unsteady if name not in failed)
        not_run = tuple(f"{count} of {self.title}: {why}" for why, count in why_not.most_common())
        return Result(len(first.passed) + len(unsteady), tuple(sorted(failed)), unsteady, not_run=not_run)

    def _pytest(self, words: list[str], out: TextIO) -> Said:
        report = Path(self._folder.name) / "report.json"
        report.unlink(missing_ok=True)
        code = call(
            [self.python, "-m", "pytest", f"--report={report}", "-p", "no:cacheprovider", *words], self.env, out
        )
        try:
            said = Said(**json.loads(report.read_text()))
            why = f"pytest ended with code {code}, and {said.missed} tests hadn't run"
            broken = code not in (0, 1) or (code and not said.failed) or said.missed
        except (OSError, ValueError):  # it was cut off
            said, broken = Said([], {}, {}, {}, 0), True
            why = f"pytest ended with code {code} and left no report: a test may have ended its process"
        if stopped:
            return said
        if code == NO_TESTS:
            print(f"{self.title}: no test was found", file=out)
        if broken:
            print(f"{self.title}: {why}", file=out, flush=True)
            said.failed[self.title] = why
        return said


def keep(place: str, name: str, first: str, second: str) -> None:
    """Keeps both outputs of an unsteady test."""
    UNSTEADY.mkdir(parents=True, exist_ok=True)
    safe = re.sub(r"[^\w.-]+", "-", f"{place}-{name}")[:150]
    text = f"{name}\n\n== among others it failed\n{first}\n\n== alone it passed\n{second}\n"
    (UNSTEADY / f"{safe}.txt").write_text(text, errors="replace")


def interpreters(python: Path, env: dict[str, str], out: TextIO) -> Result:
    """The unit tests on the oldest other interpreter of this machine, and a part of them on each newer one."""
    total = Result()
    try:
        others = setup("pythons")
    except Missing as error:
        print(f"test: {error}", file=out)
        others = []
    for folder in others:
        oldest = folder == others[0]
        title = f"{'unit tests' if oldest else 'part of the unit tests'} on {folder.parent.name.split('-')[0]}"
        some, less = (["tests/unit"], OF_ANY_PYTHON) if oldest else (NEWER, NOT_NEWER)
        left_out = (f"--{'deselect' if '::' in name else 'ignore'}=tests/unit/{name}" for name in less)
        tests = Tests(title, folder / "python", [*some, *left_out, *WHOLE], env)
        tests.run(out)
        total = total.plus(tests.result(out=out))
    if not others:
        print("no other interpreter is here", file=out)
        return Result(failed=("unit tests on other interpreters",))
    return total


BESIDE: dict[str, Callable[[Path, dict[str, str], TextIO], Result]] = {
    SUITE: partial(checks, house=("--loaded",)),
    "pythons": interpreters,
}
"""What goes on while a lane's tests run, and is shown when they are over."""


def nothing(_python: Path, _env: dict[str, str], _out: TextIO) -> Result:
    return Result()


def lane(name: str, python: Path, run: str, namespaces: bool = True) -> Result:
    """One lane, or the suite: its stages, its tests, and its commands one after the other.

    namespaces: whether a test that this machine can't run has failed.
    """
    began = time.monotonic()
    if name != SUITE:
        part(f"set-up of {name}", sys.stdout)
    try:
        env = environ(python, run, lanes.stages_of(name))
    except Missing as error:
        print(f"test: {error}", flush=True)
        return Result(failed=(f"set-up of {name}",), setup=time.monotonic() - began)
    ready = time.monotonic()
    words = [f"--lane={name}", *WHOLE]
    tests = Tests("tests" if name == SUITE else f"lane {name}", python, words, env)
    beside = BESIDE.get(name, nothing)
    with tempfile.TemporaryFile("w+", errors="replace") as out, ThreadPoolExecutor(1) as thread:
        others = thread.submit(beside, python, env, out)
        if lanes.has_tests(name):
            compile_tests(python, env, f"--lane={name}")
            tests.run()
        if not others.done():
            print("\nwaiting for what runs beside the tests", flush=True)
        total = others.result()
        out.seek(0)
        shutil.copyfileobj(out, sys.stdout)
    total = total.plus(tests.result(skips=not namespaces))
    for command in lanes.LANES[name].commands:
        if why := command.why_not():
            total = total._replace(not_run=(*total.not_run, f"{command.words[0]}: {why}"))
        else:
            total = total.plus(check(" ".join(command.words), [*command.words], env))
    return total._replace(setup=ready - began, seconds=time.monotonic() - ready)


def compile_tests(python: Path, env: dict[str, str], *words: str) -> None:
    """Compiles the tests of a fresh checkout, or all workers would at the same time."""
    if not (ROOT / "tests" / "__pycache__").exists():
        call([python, "-m", "pytest", "--collect-only", "-qq", *words], env, subprocess.DEVNULL)


def quick(python: Path, run: str, namespaces: bool) -> Result:
    """Style, types, rooms, and the unit tests that start next to nothing."""
    env = environ(python, run, set())
    tests = Tests("unit tests", python, [*QUICK], env)
    with tempfile.TemporaryFile("w+", errors="replace") as out, ThreadPoolExecutor(1) as thread:
        checked = thread.submit(checks, python, env, out)
        compile_tests(python, env, "tests/unit", "--only-quick")
        tests.run()
        total = checked.result()
        out.seek(0)
        shutil.copyfileobj(out, sys.stdout)
    return total.plus(tests.result(skips=not namespaces))


def paths(words: list[str], python: Path, run: str, namespaces: bool) -> Result:
    """Pytest on some paths, from wherever they are named, with the stacks that they need; other words are pytest's."""
    given = [found for word in words if (found := below_root(word))]
    env = environ(python, run, lanes.stages_below(given))
    tests = Tests("tests", python, [below_root(word) or word for word in words], env)
    tests.run()
    return tests.result(skips=not namespaces)


def below_root(word: str) -> str:
    """A path of tests, or an id, as it is from the root of the checkout; empty: it is none."""
    place, colons, rest = word.partition("::")
    path = Path(place).absolute()
    if not place or place.startswith("-") or not path.exists():
        return ""
    return os.path.relpath(path, ROOT) + colons + rest


def in_changed_room(name: str, changed: list[str]) -> bool:
    """Whether what an unsteady test is about differs from origin/main: its file, for a unit test its folder, and the
    folder of the sources that this mirrors.
    """
    path = Path(name.partition("::")[0])
    places = [path.as_posix()]
    if path.is_relative_to("tests/unit") and path.parent != Path("tests/unit"):
        room = path.parent.relative_to("tests/unit")
        smp = room.parts[0] == "smdistributed"
        sources = "src/musterpoint_smdistributed" if smp else f"src/musterpoint/{room.as_posix()}"
        places += [f"{path.parent.as_posix()}/", f"{sources}/"]
    return any(each.startswith(tuple(places)) for each in changed)


def judged(result: Result, changed: list[str], before: int = 0) -> Result:
    """Names unsteady tests, and counts those as failed that aren't tolerated.

    changed: files, from the root. before: how many unsteady tests this run has had already.
    """
    if not result.unsteady:
        return result
    bad = tuple(name for name in result.unsteady if in_changed_room(name, changed))
    print(f"\nunsteady, failed among others and passed alone ({os.path.relpath(UNSTEADY, ROOT)} has both outputs):")
    for name in result.unsteady:
        print(f"  {name}{': its room has changed, so it counts as failed' if name in bad else ''}")
    if before + len(result.unsteady) > MOST_UNSTEADY:
        print(f"more than {MOST_UNSTEADY} are unsteady: they count as failed")
        bad = result.unsteady
    return result._replace(passed=result.passed - len(bad), failed=result.failed + bad)
