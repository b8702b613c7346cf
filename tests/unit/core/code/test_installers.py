from __future__ import annotations

import sys
from pathlib import Path

import pytest

from musterpoint.base.errors import FetchError
from musterpoint.core.code import install
from musterpoint.core.code.project import Project

from .conftest import Bench

PIP = "PYTHON -m pip install"
UV = "UV pip install --python PYTHON"


@pytest.mark.parametrize(
    ("project", "pip", "uv"),
    [
        (Project(requirements="requirements.txt"), f"{PIP} -r requirements.txt", f"{UV} -r requirements.txt"),
        (Project(package="setup.py"), f"{PIP} BUILD", f"{UV} BUILD"),
        (Project("requirements.txt", "setup.py"), f"{PIP} BUILD -r requirements.txt",
         f"{UV} BUILD -r requirements.txt"),
        (Project(listed="pyproject.toml"), f"{PIP} -- a>=1 b[c]", f"{UV} -r pyproject.toml"),
        (
            Project(requirements="requirements.txt", wheelhouse="HOUSE"),
            f"{PIP} --no-index --find-links HOUSE -r requirements.txt",
            f"{UV} --no-index --find-links HOUSE -r requirements.txt",
        ),
        (
            Project(package="setup.py", wheelhouse="HOUSE"),
            f"{PIP} --no-index --find-links HOUSE BUILD --no-build-isolation",
            f"{UV} --no-index --find-links HOUSE BUILD --no-build-isolation",
        ),
        (Project(package="setup.py", wheelhouse="HOUSE", backend="tools"), f"{PIP} --no-index --find-links HOUSE BUILD",
         f"{UV} --no-index --find-links HOUSE BUILD"),
    ],
)  # fmt: skip
def test_the_exact_words(project: Project, pip: str, uv: str, bench: Bench, interpreter: str, tmp_path: Path) -> None:
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "tools-1-py3-none-any.whl").write_text("")
    (tmp_path / "uv").write_text("")
    (tmp_path / "uv").chmod(0o755)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["a>=1", "b[c]"]\n')
    environ = {"PATH": str(tmp_path)}
    place = (interpreter, environ, str(tmp_path), "BUILD")
    house = str(tmp_path / "house")
    project = project._replace(wheelhouse=project.wheelhouse and house)
    for make, expected in ((install.pip_command, pip), (install.uv_command, uv)):
        words, more = make(project, *place)
        names = {interpreter: "PYTHON", str(tmp_path / "uv"): "UV", house: "HOUSE"}
        assert " ".join(names.get(word, word) for word in words) == expected
        assert more == {}


def test_a_lock_is_synced(interpreter: str, tmp_path: Path) -> None:
    (tmp_path / "uv").write_text("")
    (tmp_path / "uv").chmod(0o755)
    project = Project("requirements.txt", "pyproject.toml", lock="uv.lock")
    words, more = install.uv_command(project, interpreter, {"PATH": str(tmp_path)}, "/code", "/copy")
    assert words[1:] == (
        "sync", "--frozen", "--inexact", "--no-editable", "--python", interpreter, "--project", "/copy",
    )  # fmt: skip
    assert more == {"UV_PROJECT_ENVIRONMENT": sys.prefix}
    assert install.without_isolation(words, project, interpreter, {}) == ()


def test_uv_as_a_module_or_nowhere(bench: Bench, tmp_path: Path) -> None:
    interpreter = str(tmp_path / "python")
    Path(interpreter).symlink_to(sys.executable)
    bench.environ["PATH"] = str(tmp_path)
    with pytest.raises(FetchError, match="uv is neither on PATH nor in the user's Python"):
        install.uv_command(Project("requirements.txt"), interpreter, bench.environ, "/", ".")
    bench.module("uv", "")
    words, _ = install.uv_command(Project("requirements.txt"), interpreter, bench.environ, "/", ".")
    assert words[:4] == (interpreter, "-m", "uv", "pip")


@pytest.mark.parametrize("text", ["[project", '[project]\ndependencies = "a"\n', "[project]\ndependencies = [1]\n"])
def test_dependencies_that_cannot_be_read(text: str, interpreter: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(FetchError, match=r"the dependencies in .*/pyproject.toml can't be read: is it valid TOML\?"):
        install.pip_command(Project(listed="pyproject.toml"), interpreter, {}, str(tmp_path), ".")


def test_without_isolation_only_where_it_is_a_way_out(bench: Bench, interpreter: str) -> None:
    words, package = ("pip",), Project(package="setup.py", backend="mp_backend")
    assert install.without_isolation(words, package, interpreter, bench.environ) == ()
    bench.module("mp_backend", "")
    assert install.without_isolation(words, package, interpreter, bench.environ) == ("pip", "--no-build-isolation")
    assert install.without_isolation(("--no-build-isolation",), package, interpreter, bench.environ) == ()
    assert install.without_isolation(words, Project("requirements.txt"), interpreter, bench.environ) == ()


def test_a_copy_to_build_from(tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "muster-jobs" / "old").mkdir(parents=True)
    (code / "setup.py").write_text("")
    (code / "link").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    copy = install.build_directory(str(code), str(tmp_path / "folder"))
    assert sorted(path.name for path in Path(copy).iterdir()) == ["link", "setup.py"]
    with pytest.raises(FetchError, match="the package in /none can't be copied to be built"):
        install.build_directory("/none", str(tmp_path / "folder"))
