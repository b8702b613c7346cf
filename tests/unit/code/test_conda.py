from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.code.interpreter import VARIABLE, activated
from musterpoint.errors import UsageError


def environment(prefix: Path) -> Path:
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").write_text("")
    (prefix / "bin" / "python").chmod(0o755)
    return prefix


def test_without_one_nothing_changes() -> None:
    environ = {"PATH": "/bin"}
    assert activated(environ) is environ
    assert activated({VARIABLE: ""}) == {VARIABLE: ""}


def test_where_conda_keeps_environments(tmp_path: Path) -> None:
    root = tmp_path / "conda"
    environment(root / "envs" / "training")
    (root / "bin").mkdir()
    (root / "bin" / "conda").write_text("")
    (root / "bin" / "conda").chmod(0o755)
    prefix = str(root / "envs" / "training")
    for told in (
        {"CONDA_EXE": str(root / "bin" / "conda")},
        {"PATH": f"/usr/bin:{root}/bin"},
        {"MAMBA_ROOT_PREFIX": str(root)},
        {"CONDA_PREFIX": str(root)},
        {"CONDA_PREFIX": str(root / "envs" / "other")},
        {"CONDA_ENVS_DIRS": f"/none:{root}/envs"},
    ):
        environ = activated({VARIABLE: "training", "PATH": "/usr/bin", **told})
        assert environ["MUSTER_PYTHON"] == f"{prefix}/bin/python"
        assert environ["PATH"].startswith(f"{prefix}/bin:/usr/bin")
        assert (environ["CONDA_PREFIX"], environ["CONDA_DEFAULT_ENV"]) == (prefix, "training")
        assert activated(environ) == environ


def test_a_path_and_the_base_and_what_was_noted(tmp_path: Path) -> None:
    prefix = environment(tmp_path / "somewhere" / "own")
    assert activated({VARIABLE: str(prefix)})["CONDA_DEFAULT_ENV"] == "own"
    assert activated({VARIABLE: "~/somewhere/own", "HOME": str(tmp_path)})["CONDA_PREFIX"] == str(prefix)
    base = environment(tmp_path / "base-conda")
    assert activated({VARIABLE: "base", "CONDA_ROOT": str(base)})["CONDA_PREFIX"] == str(base)
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda" / "environments.txt").write_text(f"/none/of/it\n{prefix}\n")
    assert activated({VARIABLE: "own", "HOME": str(tmp_path)})["CONDA_PREFIX"] == str(prefix)


def test_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{VARIABLE}='x': there is no such conda environment .*looked at {tmp_path}"):
        activated({VARIABLE: "x", "MAMBA_ROOT_PREFIX": str(tmp_path), "PATH": "", "HOME": str(tmp_path)})
    with pytest.raises(UsageError, match="looked at nothing, since there is no conda on PATH"):
        activated({VARIABLE: "x", "PATH": "/none", "HOME": str(tmp_path)})
