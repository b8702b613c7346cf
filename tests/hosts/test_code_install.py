"""Requirements and packages, installed by the real pip from an index on loopback, into a Python made for the test."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

import musterpoint

from .conftest import Local, MakeIndex, Train, survivors
from .packages import PYPROJECT, backend, sdist, wheel

pytestmark = pytest.mark.xdist_group("packages")


def code(train: Train, **files: str) -> None:
    """Files of the code directory; double underscores stand for a dot."""
    for name, text in files.items():
        (train.base / "code" / name.replace("__", ".")).write_text(text)


@pytest.mark.lane("suite")
def test_requirements_are_there_when_the_program_starts(index: MakeIndex, installing: Train, tmp_path: Path) -> None:
    packages = index(wheel("mp-greets", requires=["mp-words>=1"]), wheel("mp-words"))
    installing.program("import mp_greets, mp_words; print(mp_greets.VERSION, mp_words.VERSION)")
    code(installing, requirements__txt="mp-greets==1.0\n")
    done = installing.run(PIP_INDEX_URL=packages.url)
    assert (done.returncode, done.stdout) == (0, b"1.0 1.0\n"), done.stderr
    assert b"musterpoint: installing requirements.txt with pip for " in done.stderr
    assert b"\nSuccessfully installed mp-greets-1.0 mp-words-1.0\n" in done.stderr
    events = json.loads((installing.base / "output" / "timeline.json").read_text())
    assert [event["what"] for event in events if event["event"] == "installed"] == ["requirements.txt"]


REFUSED: dict[str, tuple[dict[str, str], list[str]]] = {
    "no such version": (
        {"requirements__txt": "mp-none==9\n"},
        ["pip can't install requirements.txt (exit code 1): ", "No matching distribution found for mp-none==9"],
    ),
    "a conflict": (
        {"requirements__txt": "mp-one\nmp-two\n"},
        ["Cannot install", "conflicting dependencies", "mp-one 1.0 depends on mp-base==1", "mp-two 1.0 depends on"],
    ),
    "no requirement at all": ({"requirements__txt": "mp base\n"}, ["Invalid requirement: 'mp base'"]),
    "a build that fails": (
        {"requirements__txt": "mp-builds\n"},
        ["mp-builds: ", "did not run successfully: RuntimeError: no compiler on this host"],
    ),
    "no pyproject that can be read": (
        {"pyproject__toml": "[project]\nname = \n"}, ["the dependencies in", "can't be read: is it valid TOML?"],
    ),
}  # fmt: skip


@pytest.mark.lane("suite")
@pytest.mark.parametrize("what", REFUSED)
def test_the_resolver_is_quoted(what: str, index: MakeIndex, installing: Train) -> None:
    packages = index(
        backend(), wheel("mp-none"), wheel("mp-base", "1"), wheel("mp-base", "2"),
        wheel("mp-one", requires=["mp-base==1"]), wheel("mp-two", requires=["mp-base==2"]),
        sdist("mp-builds", {
            "pyproject.toml": PYPROJECT.replace("NAME", "mp-builds"),
            "at_build.py": "raise RuntimeError('no compiler on this host')",
        }),
    )  # fmt: skip
    files, says = REFUSED[what]
    installing.program("raise SystemExit('must not start')")
    code(installing, **files)
    done = installing.run(PIP_INDEX_URL=packages.url)
    assert done.returncode == 71, done.stderr
    assert installing.reason.startswith("muster: ")
    assert installing.reason.endswith("\non algo-1")
    for part in says:
        assert part in installing.reason
    assert len(installing.reason.encode()) <= 900


def test_an_index_that_recovers(index: MakeIndex, installing: Train) -> None:
    """pip gives up on its own after as many tries as it is told to; then comes one of ours."""
    packages = index(wheel("mp-late"), failing=1)
    installing.program("import mp_late")
    code(installing, requirements__txt="mp-late\n")
    done = installing.run(PIP_INDEX_URL=packages.url, PIP_RETRIES="0", PIP_DEFAULT_TIMEOUT="300")
    assert done.returncode == 0, done.stderr.decode()
    assert b"pip couldn't reach what it needs; trying again in 5 s" in done.stderr


def test_a_stop_ends_pip_at_once(index: MakeIndex, installing: Train) -> None:
    packages = index(hang=True)
    installing.program("")
    code(installing, requirements__txt="mp-slow\n")
    process = installing.start(PIP_INDEX_URL=packages.url)
    assert packages.asked.wait(500)
    told = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=500)
    assert process.returncode == 143, stderr
    assert time.monotonic() - told < 60
    assert survivors(installing.token) == []
    assert not (installing.base / "output" / "failure").exists()


@pytest.mark.lane("suite")
def test_a_package_is_installed_and_its_module_runs(index: MakeIndex, installing: Train) -> None:
    """With a layout of its own, the module comes from the installed package only; its build stays out of the code."""
    packages = index(backend(), wheel("mp-helper"))
    files = {"pyproject__toml": PYPROJECT.replace("NAME", "mp-package"), "requirements__txt": "mp-helper\n"}
    code(installing, **files, at_build__py="open('made-by-the-build', 'w').close()")
    (installing.base / "input/config/hyperparameters.json").write_text('{"sagemaker_program": "mp_package", "lr": "1"}')
    done = installing.run(PIP_INDEX_URL=packages.url)
    assert done.returncode == 0, done.stderr
    assert b"installing pyproject.toml and requirements.txt with pip" in done.stderr
    assert sorted(path.name for path in (installing.base / "code").iterdir()) == [
        "at_build.py", "pyproject.toml", "requirements.txt",
    ]  # fmt: skip


def test_other_hosts_hear_why_one_took_too_long(index: MakeIndex, local: Local, user_python: str) -> None:
    packages = index(hang=True)
    local.program("", "train.py")
    (local.folder / "requirements.txt").write_text("mp-hangs\n")
    local.environ.update(PIP_INDEX_URL=packages.url, PIP_CONFIG_FILE=os.devnull, MUSTER_PYTHON=user_python)
    local.environ["TMPDIR"] = str(local.folder)
    ran = local.run("--hosts", "2", "--backend", "process", "--installer", "pip", "--rollcall-timeout", "5", "train.py")
    assert ran.code == 71, ran.stderr
    assert "installing requirements.txt with pip wasn't done within 4 s" in ran.reason


def test_a_requirement_that_makes_our_own_needs_older(index: MakeIndex, installing: Train) -> None:
    """The real pip says what it replaced; the job goes on."""
    packages = index(wheel("rich", "14.0"), wheel("rich", "12.6"))
    installing.environ.update(PIP_INDEX_URL=packages.url)
    installing.program("import rich; print(rich.VERSION)")
    for version in ("14.0", "12.6"):
        code(installing, requirements__txt=f"rich=={version}\n")
        done = installing.run()
        assert (done.returncode, done.stdout.decode()) == (0, f"{version}\n"), done.stderr
    said = b"rich 12.6 was installed in place of 14.0; the tables and pictures of muster needs 13 or newer"
    assert b"musterpoint: warning: " + said in done.stderr


def test_a_requirement_that_is_another_musterpoint(
    index: MakeIndex, installing: Train, user_python: str, tmp_path: Path
) -> None:
    """It takes the place of the one that runs, which goes on as it was; a second job would start with the other."""
    own = tmp_path / "own"
    shutil.copytree(Path(user_python).parent.parent, own, symlinks=True)
    package = Path(musterpoint.__file__).parent
    modules = {str(path.relative_to(package.parent)): path.read_text() for path in package.rglob("*.py")}
    with zipfile.ZipFile(io.BytesIO(wheel("musterpoint", modules=modules)[1])) as made:
        made.extractall(next(own.glob("lib/python3*/site-packages")))
    packages = index(wheel("musterpoint", "99"))
    installing.python = str(own / "bin" / "python")
    installing.program("raise SystemExit(7)")
    code(installing, requirements__txt="musterpoint==99\n")
    done = installing.run(PIP_INDEX_URL=packages.url, PYTHONPATH="", MUSTER_PYTHON=installing.python)
    assert b"\nSuccessfully installed musterpoint-99\n" in done.stderr
    assert done.returncode == 7, done.stderr
    assert installing.reason == "rank 0 (local rank 0) on algo-1, exit code 7"


def test_a_typed_program_has_its_requirements_installed_where_that_is_asked(
    index: MakeIndex, local: Local, user_python: str
) -> None:
    """Beside the program or named; else it is said that nobody installed them. In local jobs of a module, too."""
    packages = index(wheel("mp-typed"), wheel("mp-named"))
    (local.folder / "app").mkdir()
    local.program("import mp_typed", "app/train.py")
    (local.folder / "app" / "requirements.txt").write_text("mp-typed\n")
    local.program("import mp_named", "other.py")
    (local.folder / "named.txt").write_text("mp-named\n")
    local.environ.update(PIP_INDEX_URL=packages.url, PIP_CONFIG_FILE=os.devnull, MUSTER_PYTHON=user_python)

    def launched(*words: str) -> subprocess.CompletedProcess[str]:
        command = [local.python, "-m", "musterpoint", "launch", *words]
        return subprocess.run(command, env=local.environ, cwd=local.folder, capture_output=True, text=True, check=False)

    left = launched("app/train.py")
    assert left.returncode == 1
    said = (
        "musterpoint: app/requirements.txt is left as it is; --installer pip (MUSTER_INSTALLER) installs what it lists"
    )
    assert said in left.stderr
    assert "hint: requirements.txt" not in launched("other.py").stderr
    done = launched("--installer", "pip", "app/train.py")
    assert done.returncode == 0, done.stderr
    ran = local.run("--backend", "process", "--requirements", "named.txt", "-m", "other")
    assert ran.code == 0, ran.stderr


def test_pip_hears_nothing_of_our_own_options(index: MakeIndex, installing: Train) -> None:
    build = "import os; print([name for name in os.environ if name in ('MUSTER_SECRET', 'MUSTER_MASTER_PORT')]); 1 / 0"
    packages = index(
        backend(), sdist("mp-spy", {"pyproject.toml": PYPROJECT.replace("NAME", "mp-spy"), "at_build.py": build})
    )
    installing.program("")
    code(installing, requirements__txt="mp-spy\n")
    done = installing.run(PIP_INDEX_URL=packages.url, MUSTER_SECRET="sesame-open")
    assert done.returncode == 71
    assert b"[]" in done.stderr
    assert b"sesame-open" not in done.stderr
