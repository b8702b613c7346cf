"""The site of the documentation: built from this checkout as scripts/site builds it, with every link followed."""

from __future__ import annotations

import importlib
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.xdist_group("site")


@pytest.fixture
def pages(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(root / "scripts"))
    return importlib.import_module("site_pages")


@pytest.fixture(scope="module")
def site(stack: Callable[[str], Path], root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    stack("site")
    output = tmp_path_factory.mktemp("site") / "site"
    command = [root / "scripts" / "site", "--output", output]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "all links lead somewhere" in done.stderr
    return output


def test_it_asks_no_other_host_for_anything(site: Path) -> None:
    """Links may lead to others, as the reader follows them; pictures, styles and scripts are the site's own."""
    fetched = re.compile(r"<(?:script|img|link)[^>]+(?:src|href)=\"?(https?://[^\"> ]+)")
    found = {address for page in site.rglob("*.html") for address in fetched.findall(page.read_text())}
    assert {address for address in found if not address.startswith("https://musterpoint.invalid/")} == set()


@pytest.mark.parametrize(("link", "said"), [("nowhere.md", "nowhere"), ("mpi.md#no-such-heading", "no-such-heading")])
def test_a_broken_link_fails(
    pages: ModuleType, stack: Callable[[str], Path], tmp_path: Path, link: str, said: str
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# First\n\n[there]({link})\n")
    (tmp_path / "docs" / "mpi.md").write_text("# MPI\n")
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "site"\nuse_directory_urls = false\n')
    with pytest.raises(Exception, match=said):
        pages.build(stack("site") / "zensical", tmp_path, tmp_path / "out")


def test_a_link_in_the_repository_that_leads_nowhere_fails(pages: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "index.md"
    page.write_text("`[code](is.no.link)`\n\n```text\n[nor](is.this)\n```\n\n[gone](../src/gone.py)\n")
    with pytest.raises(pages.Missing, match=r"docs/index\.md: \.\./src/gone\.py leads nowhere"):
        pages.rewritten(tmp_path, page)
