"""What an index page shows of the package, and that the package has all of its folders."""

from __future__ import annotations

import configparser
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

import musterpoint

pytestmark = pytest.mark.xdist_group("metadata")

ROOT = Path(__file__).resolve().parents[2]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")


def test_the_index_page_has_no_link_that_leads_nowhere() -> None:
    """Relative links work in a clone only, and there is no address to make them absolute with."""
    file = SETUP["metadata"]["long_description"].removeprefix("file:").strip()
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.findall(r"\]\([^)]*\)|<(?:a|img)\b|<!--", text) == []


def test_nobody_and_no_address_is_invented() -> None:
    assert SETUP["metadata"]["author"] == "musterpoint contributors"
    assert not {"url", "project_urls", "author_email", "maintainer_email"} & {*SETUP["metadata"]}


def test_every_folder_is_in_the_package(built: tuple[Path, str]) -> None:
    folder, said = built
    assert "absent from the `packages` configuration" not in said
    [wheel] = folder.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.is_file()}
    wanted = {name for name in files if "__pycache__" not in name and not name.startswith("musterpoint.egg-info")}
    assert {name.partition("/")[0] for name in wanted if "/" in name} == {*musterpoint.PACKAGES}
    assert inside == wanted


def test_the_source_distribution_has_the_documentation(built: tuple[Path, str]) -> None:
    [archive] = built[0].glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"README.md", "DESCRIPTION.md", "CHANGELOG.md", "docs/local.md", "examples/digits_ddp/train.py"} <= names
