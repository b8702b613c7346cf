from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.core.code.project import MARK_PART, PART, Project, holds_something, may_want_packages, project_in

BUILT = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n[project]\nname = "x"\n'
LISTED = '[project]\nname = "x"\ndependencies = ["a"]\n'
TOOLS = "[tool.ruff]\nline-length = 100\n# [build-system]\n"


@pytest.mark.parametrize(
    ("files", "project"),
    [
        ({}, Project()),
        ({"train.py": ""}, Project()),
        ({"requirements.txt": ""}, Project(requirements="requirements.txt")),
        ({"setup.py": ""}, Project(package="setup.py")),
        ({"setup.py": "", "requirements.txt": ""}, Project("requirements.txt", "setup.py")),
        ({"pyproject.toml": BUILT}, Project(package="pyproject.toml", backend="hatchling")),
        ({"pyproject.toml": BUILT, "setup.py": ""}, Project(package="setup.py", backend="hatchling")),
        ({"pyproject.toml": "[ build-system ]  # x\n"}, Project(package="pyproject.toml")),
        ({"pyproject.toml": LISTED}, Project(listed="pyproject.toml")),
        ({"pyproject.toml": LISTED, "requirements.txt": ""}, Project("requirements.txt")),
        ({"pyproject.toml": LISTED, "uv.lock": ""}, Project(listed="pyproject.toml", lock="uv.lock")),
        ({"pyproject.toml": TOOLS}, Project()),
        ({"pyproject.toml": TOOLS, "uv.lock": ""}, Project()),
    ],
)
def test_what_lies_there(files: dict[str, str], project: Project, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert project_in(str(tmp_path)) == project
    assert project.wants_something == bool(
        {"setup.py", "requirements.txt"} & files.keys() or project.listed or project.package
    )


@pytest.mark.parametrize(
    ("lines", "itself"),
    [
        ("", ""), ("numpy\n# .\n\n", ""), ("./other\n-c .\n--find-links .\n", ""), ("x @ https://h/.", ""),
        (".", "as a path"), ("numpy\n ./  # this one", "as a path"), (".[a, b]", "as a path"), ("CODE/", "as a path"),
        ("other/..", "as a path"), ("x[a] @ file://CODE", "as a path"), ("file:CODE[a] ; os_name > 'a'", "as a path"),
        ("\\\n.", "as a path"), ("-r deep/list.txt", "as a path"), ("--requirement=deep/list.txt", "as a path"),
        ("-r none.txt\n-r https://h/list.txt", ""), ("-e .", "editable"), ("--editable=.[a]", "editable"),
        (".\n-e CODE", "editable"), ("-e ./other", ""),
    ],
)  # fmt: skip
def test_how_requirements_name_the_project_itself(lines: str, itself: str, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "deep" / "list.txt").write_text("-r ../requirements.txt\n.\n")
    (tmp_path / "requirements.txt").write_text(lines.replace("CODE", str(tmp_path)))
    assert project_in(str(tmp_path)).listed_itself == itself


def test_wheels_beside_the_code_or_by_a_channel(tmp_path: Path) -> None:
    code, data = tmp_path / "code", tmp_path / "data"
    for folder in (code / "wheelhouse", data / "wheelhouse"):
        folder.mkdir(parents=True)
    (code / "requirements.txt").write_text("")
    assert project_in(str(code), str(data)).wheelhouse == ""
    (data / "wheelhouse" / "a-1-py3-none-any.whl").write_text("")
    assert project_in(str(code), str(data)).wheelhouse == str(data / "wheelhouse")
    (code / "wheelhouse" / "a-1.tar.gz").write_text("")
    assert project_in(str(code), str(data)).wheelhouse == str(code / "wheelhouse")
    (code / "requirements.txt").unlink()
    assert project_in(str(code), str(data)) == Project()


def test_what_an_interrupted_fetch_left_is_no_code(tmp_path: Path) -> None:
    assert not holds_something(str(tmp_path))
    assert not holds_something(str(tmp_path / "none"))
    (tmp_path / PART).mkdir()
    (tmp_path / MARK_PART).touch()
    assert not holds_something(str(tmp_path))
    (tmp_path / ".hidden").touch()
    assert holds_something(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "wants"),
    [("requirements.txt", True), ("setup.py", True), ("pyproject.toml", True), ("uv.lock", False), ("train.py", False)],
)
def test_files_that_an_installer_reads(name: str, wants: bool, tmp_path: Path) -> None:
    assert not may_want_packages(str(tmp_path))
    (tmp_path / name).touch()
    assert may_want_packages(str(tmp_path)) == wants
