from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.core.code.interpreter import CONDA_ENVIRONMENT, activated, has_module, modules_among


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
