"""Entry points of other packages: found by group and name, and what is said where one is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.base import plugins
from musterpoint.base.errors import UsageError
from musterpoint.base.kinds import PLATFORMS
from musterpoint.base.settings import Option

GROUP = "musterpoint.tests"


def package(folder: Path, name: str, points: str, code: str = "") -> None:
    """An installed distribution ``name`` in ``folder``, with one module of ``code`` and entry points."""
    (folder / f"{name.replace('-', '_')}.py").write_text(code)
    info = folder / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages on Python's path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_an_object_is_found_by_its_name(site: Path) -> None:
    package(site, "first-plugin", "one = first_plugin:ONE\ntwo = first_plugin:TWO", "ONE, TWO = 1, 'two'\n")
    assert plugins.names(GROUP) == ("one", "two")
    assert (plugins.load(GROUP, "one", int), plugins.load(GROUP, "two", str)) == (1, "two")


def test_what_is_wrong_is_said_with_the_package(site: Path) -> None:
    package(site, "second-plugin", "a = second_plugin:NAMED\nb = second_plugin:NONE\nc = third_plugin:ANY",
            "from types import SimpleNamespace\nNAMED = SimpleNamespace(name='x')\n")  # fmt: skip
    for name, kind, words in (
        ("other", int, r"other: no installed package has an entry point of that name in musterpoint.tests"),
        ("a", object, r"a: second_plugin:NAMED of the package second-plugin is SimpleNamespace, expected a builtins"),
        ("a", int, "expected a builtins.int whose name is a"),
        ("b", int, r"b: the package second-plugin can't be imported for it \(second_plugin:NONE\): AttributeError"),
        ("c", int, r"c: the package second-plugin can't be imported .* ModuleNotFoundError: No module named 'third_pl"),
    ):
        with pytest.raises(UsageError, match=words):
            plugins.load(GROUP, name, kind)


def test_two_packages_of_one_name_are_refused(site: Path) -> None:
    for name in ("fourth-plugin", "fifth-plugin"):
        package(site, name, f"same = {name.replace('-', '_')}:ONE", "ONE = 1\n")
    with pytest.raises(UsageError, match=r"2 installed packages have one: .*fifth-plugin.*; uninstall all but one"):
        plugins.load(GROUP, "same", int)


def test_an_option_takes_their_names(site: Path) -> None:
    package(site, "sixth-plugin", "foreign = sixth_plugin:ONE")
    option = Option("platform", "", "NAME", names=("auto", *PLATFORMS), plugins=GROUP)
    assert option.read("foreign", "--platform") == "foreign"
    with pytest.raises(UsageError, match=r"expected one of auto, sagemaker.*plain, foreign .did you mean foreign"):
        option.read("foreing", "--platform")
