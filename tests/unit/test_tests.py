"""The lanes: every test has one, and what their table names is there. And docs/versions.md names the versions that the
tests use.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import lane_runs
import lanes

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))


def test_every_file_has_a_row() -> None:
    assert [path for path in FILES if lanes.row(path) is None] == []


def test_every_row_has_a_file_and_a_lane_and_stages_that_exist() -> None:
    used = [lanes.row(path) for path in FILES]
    assert [each.prefix for each in lanes.ROWS if each not in used] == []
    assert {lane for each in lanes.ROWS for lane in (each.lane, *each.also)} == set(lanes.LANES)
    text = (ROOT / "scripts" / "setup").read_text()
    stages = {stage for lane in lanes.LANES for stage in lanes.stages_of(lane)}
    assert [stage for stage in stages if f'    "{stage}": ' not in text] == []
    assert set(lane_runs.LONGEST) <= stages


def test_sources_of_lanes_exist() -> None:
    sources = [source for lane in lanes.LANES.values() for source in lane.sources if source]
    assert [source for source in sources if not list(ROOT.glob(f"{source}*"))] == []


def test_what_other_interpreters_run_or_leave_out_exists() -> None:
    for name in (*lane_runs.OF_ANY_PYTHON, *lane_runs.NOT_NEWER):
        path, _, test = name.partition("::")
        assert (ROOT / "tests/unit" / path).exists(), name
        assert not test or f"def {test}(" in (ROOT / "tests/unit" / path).read_text(), name
    assert [path for path in lane_runs.NEWER if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/hosts/mpi/test_world.py", ["suite", "mpi"]),
        ("tests/hosts/test_check.py", ["suite", "faults"]),
        ("docker/Dockerfile", ["suite", "images"]),
        ("src/musterpoint_smdistributed/modelparallel/torch/model.py", ["suite", "huggingface", "smdistributed"]),
        ("LICENSE", ["suite"]),
        ("tests/hosts/tensorflow/", ["tensorflow", "horovod"]),
        ("src/musterpoint/core/launch/mpi/", ["suite", "mpi"]),
    ],
)
def test_the_lanes_of_a_change(path: str, expected: list[str]) -> None:
    assert lanes.touched([path]) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("src/musterpoint/core/supervise/ranks.py", True),
        ("src/musterpoint/core/supervise/watchers/starts.py", True),
        ("tests/unit/core/supervise/history.py", True),
        ("src/musterpoint/core/channel/link.py", False),
    ],
)
def test_an_unsteady_test_of_a_room_that_differs(changed: str, expected: bool) -> None:
    name = "tests/unit/core/supervise/test_ranks.py::test_it[::]"
    assert lane_runs.in_changed_room(name, [changed]) == expected
    result = lane_runs.judged(lane_runs.Result(7, unsteady=(name,)), [changed])
    assert result.failed == ((name,) if expected else ())


def test_more_than_three_unsteady_tests_fail_the_run() -> None:
    names = tuple(f"tests/hosts/test_{number}.py::test" for number in range(4))
    assert lane_runs.judged(lane_runs.Result(7, unsteady=names[:3]), []).failed == ()
    assert lane_runs.judged(lane_runs.Result(7, unsteady=names), []).failed == names
    assert lane_runs.judged(lane_runs.Result(7, unsteady=names[:1]), [], before=3).failed == names[:1]


HEAD = "import os, signal, pytest\nAMONG_OTHERS = 'PYTEST_XDIST_WORKER' in os.environ\n\n"
PASSES = "def test_passes(): pass\n\n"
FAILS = "def test_fails(): assert 1 == 2\n\n"
FLAKY = """
@pytest.mark.parametrize("word", ["'\\"\\0{}"])
def test_flaky(word):
    print("said by the one that passed")
    assert not AMONG_OTHERS, "fails among others"
"""
WHERE = """
@pytest.mark.parametrize("where", [os.environ.get("PYTEST_XDIST_WORKER")])
def test_where(where): pass
"""
SKIPS_ALONE = """
def test_skips():
    AMONG_OTHERS or pytest.skip("no")
    assert 0
"""
SKIPS_AT_ITS_END = """
@pytest.fixture
def end():
    yield
    pytest.skip("no")

def test_fails(end): assert 0
"""
RUNS = {
    "unsteady": (PASSES + FAILS + FLAKY, (2, ["test_fails"], ["test_flaky['\"\\x00{}]"])),
    "half a surrogate pair": (PASSES + "def test_fails(): assert 0, 'odd \\udc80 name'", (1, ["test_fails"], [])),
    "a worker dies": (PASSES + "def test_dies(): AMONG_OTHERS and os.kill(os.getpid(), 9)", (2, [], ["test_dies"])),
    "a worker leaves": (FAILS + "def test_leaves(): AMONG_OTHERS and pytest.exit('gone')\n" + FLAKY, None),
    "other tests in each worker": (WHERE, None),
    "skipped": (PASSES + "def test_skips(): pytest.skip('no')", (1, ["test_skips"], [])),
    "skipped alone": (PASSES + SKIPS_ALONE, (1, ["test_skips"], [])),
    "skipped at its end": (PASSES + SKIPS_AT_ITS_END, (1, ["test_fails"], [])),
    "skipped as a whole": ("pytest.importorskip('no_such_module')", None),
    "no test": ("", None),
    "an error in a file": (PASSES + "import no_such_module", None),
}
"""The text of a file of tests; how many passed, which failed, and which are unsteady; None: the run has failed."""


@pytest.fixture
def run_of_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], python: str
) -> Callable[[str], lane_runs.Result]:
    """Runs a file of tests below ``tmp_path``, with this suite's plugin of reports, but not its conftest."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (tmp_path / "pytest.ini").touch()
    (folder / "report.py").write_text((ROOT / "tests" / "report.py").read_text())
    (folder / "conftest.py").write_text(
        "import report\n\n"
        "def pytest_addoption(parser):\n    report.add_options(parser)\n\n"
        "def pytest_configure(config):\n    report.register(config)\n"
    )
    monkeypatch.setattr(lane_runs, "ROOT", tmp_path)
    monkeypatch.setattr(lane_runs, "UNSTEADY", tmp_path / "unsteady")
    outside = {name: value for name, value in environ.items() if not name.startswith("PYTEST_")}

    def run(text: str) -> lane_runs.Result:
        (folder / "test_it.py").write_text(HEAD + text)
        words = ["--numprocesses=2", "--dist=loadgroup", "--max-worker-restart=1", "--tb=short", "tests"]
        tests = lane_runs.Tests("tests", Path(python), words, outside)
        with (tmp_path / "out").open("w") as out:
            tests.run(out)
            return tests.result(skips=False, out=out)

    return run


@pytest.mark.parametrize("name", RUNS)
def test_what_comes_of_a_run(run_of_tests: Callable[[str], lane_runs.Result], tmp_path: Path, name: str) -> None:
    text, expected = RUNS[name]
    result = run_of_tests(text)
    said = (tmp_path / "out").read_text()
    if expected is None:
        assert result.failed, said
        return
    passed, failed, unsteady = expected
    assert result.passed == passed, said
    assert [each.partition("::")[2] for each in result.failed] == failed, said
    assert [each.partition("::")[2] for each in result.unsteady] == unsteady, said
    if failed == ["test_fails"]:
        assert "FAILED tests/test_it.py::test_fails in call: " in said
    if name == "unsteady":
        [kept] = (tmp_path / "unsteady").iterdir()
        assert "fails among others" in kept.read_text() and "said by the one that passed" in kept.read_text()


def row(name: str) -> list[str]:
    """The cells of a row of the table of versions."""
    lines = (ROOT / "docs" / "versions.md").read_text().split("\n")
    (line,) = (line for line in lines if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def version(distribution: str) -> str:
    """What the environments of the tests pin it to, without a last ``.*``."""
    texts = [(ROOT / "scripts" / name).read_text() for name in ("constraints.txt", "stacks.py", "bases.py")]
    found = re.search(rf"\b{distribution}==([\d.]+[\d])", "\n".join(texts))
    assert found is not None, distribution
    return found[1]


def test_the_table_of_versions_has_those_of_the_tests() -> None:
    assert row("torch")[1] == version("torch")
    assert row("TensorFlow")[1].startswith(f"{version('tensorflow')},")
    assert f"; {version('tensorflow-cpu').rpartition('.')[0]} for Horovod" in row("TensorFlow")[1]
    flavours = re.findall(r'flavour\("[\w-]+", "([\w ]+?)\.?"', (ROOT / "scripts" / "stacks.py").read_text())
    assert len(flavours) == 5
    for flavour in flavours:
        name, _, number = flavour.rpartition(" ")
        assert re.search(rf"{name} (?:\d+ and )?{number}\b", row("MPI")[1]), flavour


def test_what_tries_a_version_is_there() -> None:
    text = (ROOT / "docs" / "versions.md").read_text()
    named = re.findall(r"\]\(\.\./((?:tests|scripts)/[\w/.]+)\)", text)
    assert len(named) >= 6
    assert [path for path in named if not (ROOT / path).exists()] == []
