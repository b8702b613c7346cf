from __future__ import annotations

import sys
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.core.code.interpreter import CONDA_ENVIRONMENT, activated, has_module, modules_among, user_environment


@pytest.mark.parametrize(
    ("name", "found"),
    [("json", True), ("json.decoder", True), ("own", True), ("nowhere", False), ("nowhere.at", False), ("", False)],
)
def test_what_the_interpreter_finds(
    python: str, environ: dict[str, str], tmp_path: Path, name: str, found: bool
) -> None:
    (tmp_path / "own.py").write_text("raise SystemExit('must not be imported')")
    (tmp_path / "queue.py").write_text("raise SystemExit('must not be imported')")
    assert has_module(python, name, environ, str(tmp_path)) is found


def test_several_are_asked_for_at_once(python: str, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('has nowhere, says somebody else')")
    (tmp_path / "elsewhere.py").touch()
    names = ("nowhere", "json", "nowhere.at", "socket", "elsewhere")
    assert set(names) & modules_among(names, python, environ, "/") == {"json", "socket"}
    environ["PYTHONPATH"] = str(tmp_path)
    assert set(names) & modules_among(names, python, environ, "/") == {"json", "socket", "elsewhere"}


def test_an_interpreter_that_cannot_be_started(environ: dict[str, str], tmp_path: Path) -> None:
    assert not has_module(str(tmp_path / "python"), "json", environ, "/")


def environment(prefix: Path) -> Path:
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").write_text("")
    (prefix / "bin" / "python").chmod(0o755)
    return prefix


def test_without_one_nothing_changes() -> None:
    environ = {"PATH": "/bin"}
    assert activated(environ) is environ
    assert user_environment(environ) == (environ, sys.executable, "")
    assert activated({CONDA_ENVIRONMENT: ""}) == {CONDA_ENVIRONMENT: ""}


def test_where_conda_keeps_environments(tmp_path: Path) -> None:
    root = tmp_path / "conda"
    environment(root / "envs" / "training")
    (root / "bin").mkdir()
    (root / "bin" / "conda").write_text("")
    (root / "bin" / "conda").chmod(0o755)
    prefix = str(root / "envs" / "training")
    for told in (
        {"CONDA_EXE": str(root / "bin" / "conda")}, {"PATH": f"/usr/bin:{root}/bin"}, {"MAMBA_ROOT_PREFIX": str(root)},
        {"CONDA_PREFIX": str(root)}, {"CONDA_PREFIX": str(root / "envs" / "other")},
        {"CONDA_ENVS_DIRS": f"/none:{root}/envs"},
    ):  # fmt: skip
        environ = activated({CONDA_ENVIRONMENT: "training", "PATH": "/usr/bin", **told})
        assert environ["MUSTER_PYTHON"] == f"{prefix}/bin/python"
        assert environ["PATH"].startswith(f"{prefix}/bin:/usr/bin")
        assert (environ["CONDA_PREFIX"], environ["CONDA_DEFAULT_ENV"]) == (prefix, "training")
        assert activated(environ) == environ


def test_a_path_and_the_base_and_what_was_noted(tmp_path: Path) -> None:
    prefix = environment(tmp_path / "somewhere" / "own")
    assert activated({CONDA_ENVIRONMENT: str(prefix)})["CONDA_DEFAULT_ENV"] == "own"
    assert activated({CONDA_ENVIRONMENT: "~/somewhere/own", "HOME": str(tmp_path)})["CONDA_PREFIX"] == str(prefix)
    base = environment(tmp_path / "base-conda")
    assert activated({CONDA_ENVIRONMENT: "base", "CONDA_ROOT": str(base)})["CONDA_PREFIX"] == str(base)
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda" / "environments.txt").write_text(f"/none/of/it\n{prefix}\n")
    assert activated({CONDA_ENVIRONMENT: "own", "HOME": str(tmp_path)})["CONDA_PREFIX"] == str(prefix)


def test_one_that_is_not_there(tmp_path: Path) -> None:
    said = f"{CONDA_ENVIRONMENT}='x': there is no such conda environment .*looked at {tmp_path}"
    with pytest.raises(UsageError, match=said):
        activated({CONDA_ENVIRONMENT: "x", "MAMBA_ROOT_PREFIX": str(tmp_path), "PATH": "", "HOME": str(tmp_path)})
    with pytest.raises(UsageError, match="looked at nothing, since there is no conda on PATH"):
        activated({CONDA_ENVIRONMENT: "x", "PATH": "/none", "HOME": str(tmp_path)})


def test_the_option_names_the_python_unless_there_is_an_environment(tmp_path: Path) -> None:
    environ = {"PATH": "/bin", "MUSTER_PYTHON": "/usr/bin/python3"}
    assert activated(environ)["MUSTER_PYTHON"] == "/usr/bin/python3"
    assert activated(environ, "/opt/python")["MUSTER_PYTHON"] == "/opt/python"
    prefix = environment(tmp_path / "own")
    assert activated({CONDA_ENVIRONMENT: str(prefix)}, "/opt/python")["MUSTER_PYTHON"] == f"{prefix}/bin/python"


MARKS = {
    "system": (),
    "venv": ("pyvenv.cfg",),
    "other": ("pyvenv.cfg",),
    "uv": ("pyvenv.cfg", "uv.lock"),
    "conda": ("conda-meta",),
    "base": ("conda-meta", "condabin"),
    "unmarked": ("conda-meta",),  # a base of which only CONDA_DEFAULT_ENV tells
    "pipx": ("pyvenv.cfg", "pipx_metadata.json"),
    "uv-tool": ("pyvenv.cfg", "uv-receipt.toml"),
}
TAKEN = [
    # musterpoint's own, what is active, PATH's folders, whose Python runs the program
    ("system", {"VIRTUAL_ENV": "venv"}, "venv system", "venv"),
    ("pipx", {"VIRTUAL_ENV": "venv"}, "venv system", "venv"),
    ("uv-tool", {"VIRTUAL_ENV": "uv"}, "uv system", "uv"),
    ("pipx", {"CONDA_PREFIX": "conda", "CONDA_DEFAULT_ENV": "conda"}, "conda system", "conda"),
    ("system", {"CONDA_PREFIX": "conda"}, "conda system", "conda"),
    ("pipx", {"CONDA_PREFIX": "base", "VIRTUAL_ENV": "venv", "CONDA_DEFAULT_ENV": "base"}, "venv base", "venv"),
    ("pipx", {"CONDA_PREFIX": "conda", "VIRTUAL_ENV": "venv"}, "conda venv", "conda"),
    # conda's base, activated by the shell's start
    ("pipx", {"CONDA_PREFIX": "base"}, "base system", "pipx"),
    ("system", {"CONDA_PREFIX": "unmarked", "CONDA_DEFAULT_ENV": "base"}, "unmarked system", "system"),
    # a project's own musterpoint, called by its path
    ("venv", {"VIRTUAL_ENV": "other"}, "other system", "venv"),
    ("conda", {"CONDA_PREFIX": "base"}, "base system", "conda"),
    ("base", {"CONDA_PREFIX": "conda"}, "conda base", "base"),
    # variables of another shell (sbatch --export=ALL), whose environment isn't on PATH, or isn't there
    ("system", {"VIRTUAL_ENV": "venv"}, "system venv", "system"),
    ("pipx", {"CONDA_PREFIX": "conda"}, "system", "pipx"),
    ("conda", {"VIRTUAL_ENV": "venv", "CONDA_PREFIX": "base"}, "conda", "conda"),
]


@pytest.fixture
def environments(tmp_path: Path) -> Path:
    for name, marks in MARKS.items():
        prefix = environment(tmp_path / name)
        for mark in marks:
            (prefix / mark).touch()
    return tmp_path


@pytest.mark.parametrize(("own", "active", "path", "taken"), TAKEN)
def test_the_active_environments_python(
    environments: Path, own: str, active: dict[str, str], path: str, taken: str
) -> None:
    def python(name: str) -> str:
        return f"{environments / name}/bin/python"

    environ = {"PATH": ":".join(f"{environments / name}/bin" for name in path.split())}
    environ |= {name: value if name.endswith("ENV") and "CONDA" in name else str(environments / value)
                for name, value in active.items()}  # fmt: skip
    seen = user_environment(environ, "", python(own))
    assert seen.python == python(taken)
    assert seen.environ is environ  # ranks have the variables that they had
    others = {str(environments / name) for name in active.values() if (environments / name).exists()}
    assert python(own) in seen.note
    assert any(each in seen.note for each in others)
    # what somebody named goes before, and nothing changes below another musterpoint
    assert user_environment(environ, "/opt/python", python(own))[1:] == ("/opt/python", "")
    assert user_environment({**environ, "MUSTER_PYTHON": "/opt/python"}, "", python(own))[1:] == ("/opt/python", "")
    named = user_environment({**environ, CONDA_ENVIRONMENT: str(environments / "other")}, "", python(own))
    assert named[1:] == (python("other"), "")
    assert user_environment({**environ, "MUSTER_OUTER": "@socket"}, "", python(own))[1:] == (python(own), "")


@pytest.mark.parametrize(
    "active",
    [{}, {"VIRTUAL_ENV": ""}, {"VIRTUAL_ENV": "gone"}, {"VIRTUAL_ENV": "venv"},
     {"VIRTUAL_ENV": "venv", "CONDA_PREFIX": "base"}],
)  # fmt: skip
def test_where_only_one_python_is_at_hand_nothing_is_said(environments: Path, active: dict[str, str]) -> None:
    own = f"{environments}/venv/bin/python"
    environ = {name: value and str(environments / value) for name, value in active.items()}
    environ["PATH"] = f"{environments}/venv/bin:{environments}/base/bin"
    assert user_environment(environ, "", own) == (environ, own, "")
    (environments / "link").symlink_to(environments / "venv")
    environ.update(VIRTUAL_ENV=f"{environments}/link")
    assert user_environment(environ, "", own) == (environ, own, "")
