from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import musterpoint
from musterpoint.base.errors import FetchError, StoppedEarly
from musterpoint.core.code import install as module
from musterpoint.core.code.install import PARTS_OF_A_JOB, InstallLock, Target, install
from musterpoint.core.code.project import Project

from .conftest import Bench

REQUIREMENTS = Project(requirements="requirements.txt")
PACKAGE = Project(package="pyproject.toml", backend="mp_tools")
NETWORK = "print('WARNING: x after connection broken by \\'y: Connection refused\\': /z')\n"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.01)


def run(bench: Bench, interpreter: str, project: Project = REQUIREMENTS, installer: str = "pip", ours: bool = True,
        isolated: bool = False) -> None:  # fmt: skip
    (bench.folder / "code").mkdir(exist_ok=True)
    target = Target(str(bench.folder / "code"), interpreter, bench.environ, ours, isolated)
    install(project, installer, target, bench.tools)


def test_it_is_done_and_told(bench: Bench, interpreter: str) -> None:
    bench.pip("print('Successfully installed a-1')\n")
    run(bench, interpreter)
    assert bench.calls == ["install -r requirements.txt"]
    assert bench.shown == ["Successfully installed a-1"]
    assert bench.said == [f"installing requirements.txt with pip for {interpreter}"]
    assert [(name, facts["what"], facts["installer"]) for name, facts in bench.moments] == [
        ("installing", "requirements.txt", "pip"), ("installed", "requirements.txt", "pip"),
    ]  # fmt: skip


@pytest.mark.parametrize("ours", [True, False])
def test_a_project_that_the_requirements_name_is_given_once(ours: bool, bench: Bench, interpreter: str) -> None:
    bench.pip("print('IN', os.getcwd())\n")
    listed = Project("requirements.txt", "setup.py", listed_itself="as a path")
    for project in (listed, listed._replace(listed_itself="editable")):
        run(bench, interpreter, project, ours=ours)
    assert bench.calls == ["install -r requirements.txt"] * 2
    code = f"IN {bench.folder / 'code'}"
    assert bench.shown == [code, code]  # a copy of it is called by its name


def test_again_after_a_network_error(bench: Bench, interpreter: str) -> None:
    bench.pip(f"if CALLS == 1:\n    {NETWORK}    sys.exit(1)\n")
    run(bench, interpreter)
    assert bench.calls == ["install -r requirements.txt", "install -r requirements.txt --verbose"]
    assert "pip couldn't reach what it needs; trying again in 0 s" in bench.said


def test_not_again_where_the_network_is_not_to_blame(bench: Bench, interpreter: str) -> None:
    bench.pip("print('ERROR: Invalid requirement'); sys.exit(1)\n")
    with pytest.raises(FetchError, match=r"^pip can't install requirements.txt \(exit code 1\): Invalid requirement$"):
        run(bench, interpreter)
    assert len(bench.calls) == 1


def test_not_again_where_there_is_no_network(bench: Bench, interpreter: str) -> None:
    bench.pip(f"{NETWORK}print('RETRIES', os.environ['PIP_RETRIES']); sys.exit(1)\n")
    with pytest.raises(FetchError, match=r"\(the network: y: Connection refused\); without a network, put all wheels"):
        run(bench, interpreter, isolated=True)
    assert "RETRIES 1" in bench.shown
    assert len(bench.calls) == 1


@pytest.mark.parametrize("has", [True, False])
def test_a_package_whose_build_tools_cannot_be_had(has: bool, bench: Bench, interpreter: str) -> None:
    bench.pip(f"if '--no-build-isolation' not in sys.argv:\n    {NETWORK}    sys.exit(1)\n")
    if has:
        bench.module("mp_tools", "")
        run(bench, interpreter, PACKAGE)
        assert bench.calls[-1] == "install . --no-build-isolation"
    else:
        with pytest.raises(FetchError, match="Connection refused"):
            run(bench, interpreter, PACKAGE)
    assert len(bench.calls) == 2 + has


def test_what_the_last_way_out_said_is_said_too(bench: Bench, interpreter: str) -> None:
    bench.module("mp_tools", "")
    bench.pip(f"{NETWORK}print(*['ERROR: no compiler'] * ('--no-build-isolation' in sys.argv)); sys.exit(1)\n")
    with pytest.raises(FetchError, match=r"; with mp_tools of the user's Python: no compiler$"):
        run(bench, interpreter, PACKAGE)


def test_a_death_by_signal(bench: Bench, interpreter: str) -> None:
    bench.pip("os.kill(os.getpid(), 9)\n")
    with pytest.raises(FetchError, match=r"pip can't install requirements.txt \(signal 9\): it said nothing"):
        run(bench, interpreter)


def test_a_python_that_is_not_there(bench: Bench) -> None:
    with pytest.raises(FetchError, match=r"/none/python can't be run to install requirements.txt: No such file"):
        run(bench, "/none/python")


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("/p: No module named pip", "has no pip: add it to the image, or set MUSTER_INSTALLER=uv"),
        ("error: externally-managed-environment", "set PIP_BREAK_SYSTEM_PACKAGES=1 in the image"),
    ],
)
def test_advice(words: str, advice: str, bench: Bench, interpreter: str) -> None:
    bench.pip(f"print({words!r}); sys.exit(1)\n")
    with pytest.raises(FetchError, match=advice):
        run(bench, interpreter)


def test_the_message_leaves_room_for_the_host(bench: Bench, interpreter: str) -> None:
    bench.pip(f"print('ERROR: ' + 'x' * 5000)\n{NETWORK}sys.exit(1)\n")
    with pytest.raises(FetchError) as error:
        run(bench, interpreter)
    assert len(str(error.value).encode()) <= 800
    assert str(error.value).endswith("beside the code")


def test_the_variables_of_the_installer(bench: Bench, interpreter: str) -> None:
    bench.pip("print(*sorted(f'{n}={v}' for n, v in os.environ.items() if n.startswith(('PIP', 'UV', 'MUSTER'))))\n")
    bench.environ.update(
        MUSTER_SECRET="hidden", SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY="/warm", PIP_PROGRESS_BAR="on"
    )
    run(bench, interpreter)
    assert bench.shown == [
        "PIP_CACHE_DIR=/warm/pip PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_PROGRESS_BAR=on "
        "PIP_ROOT_USER_ACTION=ignore UV_CACHE_DIR=/warm/uv UV_NO_PROGRESS=1"
    ]


def test_a_mounted_directory_is_built_from_a_copy(bench: Bench, interpreter: str) -> None:
    (bench.folder / "code").mkdir()
    (bench.folder / "code" / "pyproject.toml").write_text("")
    bench.pip("print('in', sys.argv[2]); open(os.path.join(sys.argv[2], 'built'), 'w').close()\n")
    run(bench, interpreter, PACKAGE, ours=False)
    assert [path.name for path in (bench.folder / "code").iterdir()] == ["pyproject.toml"]
    assert bench.shown == [f"in {bench.folder}/code"], "the copy's own name is nobody's business"
    run(bench, interpreter, PACKAGE, ours=True)
    assert (bench.folder / "code" / "built").exists()


def test_a_lock_that_is_not_used_is_told(bench: Bench, interpreter: str) -> None:
    bench.pip("")
    run(bench, interpreter, Project(requirements="requirements.txt", lock="uv.lock"))
    assert bench.said[0] == "uv.lock isn't used: pip installs; MUSTER_INSTALLER=uv would use it"


REMOVED = """
import ast, shutil, sys
from pathlib import Path
from musterpoint.core.code.install import load_package
load_package(lambda: None)
folder = Path(sys.argv[1])
rooms = [path for path in folder.iterdir() if path.stem in sys.argv[2:]]
modules = [path for room in rooms for path in ([room] if room.suffix == ".py" else room.rglob("*.py"))]
names = [".".join(path.relative_to(folder.parent).with_suffix("").parts) for path in modules]
shutil.rmtree(folder)
print([name for name in names if name.removesuffix(".__init__") not in sys.modules])
from musterpoint.embedded.programs.registry import PROGRAMS, text_of
print([name for name in PROGRAMS if not ast.parse(text_of(name)).body])
import musterpoint.nothing
"""


def test_a_job_goes_on_without_the_files_of_the_package(tmp_path: Path) -> None:
    shutil.copytree(Path(musterpoint.__file__).parent, tmp_path / "musterpoint")
    words = [sys.executable, "-S", "-c", REMOVED, tmp_path / "musterpoint", *PARTS_OF_A_JOB]
    done = subprocess.run(words, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n[]\n", done.stderr
    assert "No module named 'musterpoint.nothing'" in done.stderr


HOLD = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def lock(bench: Bench) -> InstallLock:
    return InstallLock(sys.executable, bench.environ, bench.tools)


def held(bench: Bench) -> bool:
    with open(lock(bench).path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_it_is_held_inside_and_one_python_has_one(bench: Bench) -> None:
    with lock(bench):
        assert held(bench)
    assert (held(bench), bench.said) == (False, [])
    assert Path(lock(bench).path).stat().st_mode & 0o777 == 0o600
    assert Path(lock(bench).path).parent == Path(bench.environ["TMPDIR"])
    assert InstallLock("/usr/bin/python3", bench.environ, bench.tools).path != lock(bench).path


def test_another_holder_is_waited_for_and_a_stop_ends_the_wait(bench: Bench) -> None:
    Path(lock(bench).path).touch()
    holder = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLD, lock(bench).path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdin is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        bench.loop.call_later(0, holder.stdin.close)  # when the wait has begun
        with lock(bench):
            assert held(bench)
            assert bench.said == [f"another process is installing into {sys.executable}: waiting for it"]
            other = Bench(bench.folder)
            other.loop.call_later(0, lambda: other.tools.stop(15))
            with pytest.raises(StoppedEarly), lock(other):
                pytest.fail("it was given away twice")
            other.loop.close()
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_where_no_file_can_be_made_there_is_none(bench: Bench, tmp_path: Path) -> None:
    bench.environ["TMPDIR"] = str(tmp_path / "none")
    with lock(bench):
        pass
    bench.environ["TMPDIR"] = str(tmp_path)
    target = tmp_path / "target"
    Path(lock(bench).path).symlink_to(target)
    with lock(bench):
        assert not target.exists(), "a link of somebody else's was followed"
