"""Requirements and packages, installed by the real pip from an index on loopback, into a Python made for the test."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import musterpoint

from .conftest import Local, MakeIndex, Train, eventually, survivors
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


def test_the_cache_of_a_warm_pool(index: MakeIndex, installing: Train, tmp_path: Path) -> None:
    del installing.environ["PIP_CACHE_DIR"]
    packages = index(wheel("mp-cached"))
    installing.program("import mp_cached")
    code(installing, requirements__txt="mp-cached\n")
    warm = tmp_path / "warmpoolcache"
    done = installing.run(
        PIP_INDEX_URL=packages.url, PIP_TRUSTED_HOST=packages.host, SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY=str(warm)
    )
    assert done.returncode == 0, done.stderr
    assert any((warm / "pip").rglob("*"))


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


def test_an_index_that_is_nowhere(installing: Train) -> None:
    installing.program("")
    code(installing, requirements__txt="mp-nowhere\n")
    done = installing.run(PIP_INDEX_URL="http://127.0.0.1:9/simple/", PIP_RETRIES="1")
    assert done.returncode == 71
    assert "No matching distribution found for mp-nowhere (the network: Failed to establish a new" in installing.reason
    assert "Connection refused)" in installing.reason
    assert "in a directory wheelhouse beside the code" in installing.reason


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


@pytest.mark.parametrize(
    "listed", [".", "./  # this project", ".[more]", "CODE", "mp-itself @ file://CODE", "-r more.txt", "mp-helper\n."]
)
def test_a_package_that_the_requirements_name_is_installed_once(
    listed: str, index: MakeIndex, installing: Train, user_python: str
) -> None:
    packages = index(backend(), wheel("mp-helper"))
    subprocess.run([user_python, "-m", "pip", "uninstall", "-q", "-y", "mp-itself"], check=True, timeout=500)
    installing.program("import mp_itself; print(mp_itself.BUILT)")
    files = {"pyproject__toml": PYPROJECT.replace("NAME", "mp-itself"), "more__txt": "\n.\n"}
    code(installing, requirements__txt=listed.replace("CODE", str(installing.base / "code")) + "\n", **files)
    before = sorted(os.listdir(installing.base / "code"))
    done = installing.run(PIP_INDEX_URL=packages.url)
    assert (done.returncode, done.stdout) == (0, b"True\n"), done.stderr
    assert sorted(os.listdir(installing.base / "code")) == before


@pytest.mark.parametrize("name", ["requirements.txt", "setup.py"])
def test_a_folder_in_the_place_of_an_installers_file(name: str, installing: Train) -> None:
    installing.program("")
    (installing.base / "code" / name).mkdir()
    assert installing.run().returncode == 71
    assert f"{name} is a folder" in installing.reason


def test_a_project_that_is_no_package_gets_what_it_lists(index: MakeIndex, installing: Train) -> None:
    packages = index(wheel("mp-listed"))
    installing.program("import mp_listed")
    code(
        installing, pyproject__toml='[project]\nname = "x"\nversion = "1"\ndependencies = ["mp-listed>=1"]\n[tool.x]\n'
    )
    assert installing.run(PIP_INDEX_URL=packages.url).returncode == 0


def test_a_pyproject_of_tools_installs_nothing(installing: Train) -> None:
    installing.program("print('ran')")
    code(installing, pyproject__toml="[tool.ruff]\nline-length = 100\n")
    done = installing.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ran\n", b"")


@pytest.mark.parametrize("installer", ["auto", "pip", "none"])
def test_a_shell_script_installs_for_itself(installer: str, index: MakeIndex, installing: Train) -> None:
    packages = index(wheel(f"mp-shell-{installer}"))
    installing.program(f'"$MUSTER_PYTHON" -c "import mp_shell_{installer}" 2>/dev/null && echo there', "run.sh")
    code(installing, requirements__txt=f"mp-shell-{installer}\n")
    done = installing.run(PIP_INDEX_URL=packages.url, MUSTER_INSTALLER=installer)
    assert done.stdout == (b"there\n" if installer == "pip" else b""), done.stderr
    assert (b"requirements.txt isn't installed" in done.stderr) == (installer != "pip")


def test_two_hosts_of_one_machine_take_turns(index: MakeIndex, installing: Train, tmp_path: Path) -> None:
    packages = index(wheel("mp-turns"), hang=True)
    installing.program("import mp_turns")
    code(installing, requirements__txt="mp-turns\n")
    other = tmp_path / "other"
    shutil.copytree(installing.base, other)
    first = installing.start(PIP_INDEX_URL=packages.url)
    assert packages.asked.wait(500)
    second = installing.start(SAGEMAKER_BASE_DIR=str(other), PIP_INDEX_URL=packages.url)
    assert second.stderr is not None
    assert b"another process is installing into" in second.stderr.readline()
    packages.hang = False
    packages.close()  # what hangs is answered with nothing; pip asks again, and finds nobody
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=500)
    assert b"installing requirements.txt with pip" in second.stderr.readline()
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=500)
    assert (first.returncode, second.returncode) == (143, 143)


@pytest.mark.parametrize("known", [True, False])
def test_an_index_without_the_build_tools(known: bool, index: MakeIndex, installing: Train, user_python: str) -> None:
    """A private index rarely has setuptools; the user's Python often does."""
    name = f"mp-unbuilt-{known}".lower()
    tools = "tiny_backend" if known else "tiny_unknown"
    packages = index(*[backend()] * known)
    if known:
        installing.program("")
        code(installing, requirements__txt="tiny-backend\n")
        assert installing.run(PIP_INDEX_URL=packages.url).returncode == 0
        (installing.base / "code" / "requirements.txt").unlink()
        packages.packages.clear()
    installing.program("print(__name__)")
    code(installing, pyproject__toml=PYPROJECT.replace("NAME", name).replace("tiny_backend", tools))
    done = installing.run(PIP_INDEX_URL=packages.url)
    assert done.returncode == (0 if known else 71), done.stderr
    if not known:
        assert "install build dependencies did not run successfully" in installing.reason


def test_a_python_without_pip(installing: Train, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True, timeout=500)
    installing.program("")
    code(installing, requirements__txt="mp-any\n")
    done = installing.run(MUSTER_PYTHON=str(tmp_path / "bare/bin/python"))
    assert done.returncode == 71
    assert "has no pip: add it to the image, or set MUSTER_INSTALLER=uv" in installing.reason


def test_a_conda_environment(index: MakeIndex, installing: Train, user_python: str, tmp_path: Path) -> None:
    (tmp_path / "conda/envs").mkdir(parents=True)
    (tmp_path / "conda/envs/training").symlink_to(Path(user_python).parent.parent)
    packages = index(wheel("mp-conda"))
    installing.program("import mp_conda, sys; print(sys.executable)")
    code(installing, requirements__txt="mp-conda\n")
    root = str(tmp_path / "conda")
    done = installing.run(PIP_INDEX_URL=packages.url, SAGEMAKER_JOB_CONDA_ENV="training", MAMBA_ROOT_PREFIX=root)
    assert done.stdout.decode() == f"{root}/envs/training/bin/python\n", done.stderr
    done = installing.run(SAGEMAKER_JOB_CONDA_ENV="nowhere", MAMBA_ROOT_PREFIX=root)
    assert done.returncode == 64
    assert b"there is no such conda environment with a Python in it; looked at " in done.stderr


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


def test_a_local_job_leaves_my_python_alone(local: Local, user_python: str) -> None:
    local.program("print('ran')", "train.py")
    (local.folder / "requirements.txt").write_text("mp-nothing-of-that-name\n")
    local.environ.update(MUSTER_PYTHON=user_python)
    ran = local.run("--backend", "process", "train.py")
    assert ran.code == 0, ran.stderr
    assert "requirements.txt isn't installed (--installer none); --installer pip does that" in ran.log("algo-1")


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


def test_a_flood_of_output_is_heard_and_survived(installing: Train, tmp_path: Path) -> None:
    """An installer that writes a lot without an end of line, and goes on in the background."""
    pip = tmp_path / "fake" / "pip.py"
    pip.parent.mkdir()
    pip.write_text(
        "import os, sys\nsys.stdout.write('x' * 300_000)\nsys.stdout.flush()\n"
        "if os.fork() == 0:\n    os.setsid()\n    import time\n    time.sleep(3)\n    os._exit(0)\n"
    )
    installing.program("print('ran')")
    code(installing, requirements__txt="mp-any\n")
    began = time.monotonic()
    done = installing.run(PYTHONPATH=os.pathsep.join((installing.environ["PYTHONPATH"], str(pip.parent))))
    assert (done.returncode, done.stdout) == (0, b"ran\n"), done.stderr[-500:]
    assert done.stderr.count(b"x") >= 300_000
    assert time.monotonic() - began < 100
    eventually(lambda: survivors(installing.token) == [])
