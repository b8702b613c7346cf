"""The documentation: links lead somewhere, generated parts are fresh, tables name what the code has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from musterpoint.base import exit_codes
from musterpoint.core.job.exports import sagemaker_exports
from musterpoint.core.job.model import EntryPoint, Job
from musterpoint.core.launch.launchers import LAUNCHERS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(page for folder in ("", "docs/**/", "docker/", "deploy/**/", "container/", "examples/**/")
               for page in ROOT.glob(f"{folder}*.md"))  # fmt: skip
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_generated_parts_are_fresh(python: str) -> None:
    done = subprocess.run([python, ROOT / "scripts" / "docs", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run scripts/docs; out of date:\n{done.stdout}{done.stderr}"


def test_every_exit_code_is_explained() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    explained = {int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    codes = {value for name, value in vars(exit_codes).items() if name.isupper()}
    assert explained == codes


def test_every_exported_variable_is_explained() -> None:
    page = (ROOT / "docs" / "sagemaker.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"`((?:SM|SAGEMAKER|CURRENT)_[A-Z_]+)`", page))
    job = Job("sagemaker", "job", ("algo-1",), "algo-1", ("algo-1",), EntryPoint("train.py"))
    exported = {name for name, _ in sagemaker_exports(job, {})}
    assert exported - explained == set()


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_to_start_with_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    files = [name.removeprefix("src/musterpoint/") for name in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", text)]
    folders = (ROOT / "src" / "musterpoint", ROOT / "src", ROOT)
    assert [name for name in files if not any((folder / name).exists() for folder in folders)] == []


def test_files_of_smdistributed_exist() -> None:
    page = (ROOT / "docs" / "smdistributed.md").read_text(encoding="utf-8")
    table = page.partition("### Files\n")[2].partition("\n## ")[0]
    named = {name.removesuffix(".py").rstrip("/") for name in re.findall(r"`([\w./]+)`", table)} - {
        "torch.sagemaker",
        "src/musterpoint_smdistributed",
    }
    here = {str(path.with_suffix("")) for path in (ROOT / "src" / "musterpoint_smdistributed").rglob("*")}
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in here)] == []


def test_every_launcher_has_a_line_in_the_table_of_launchers() -> None:
    rows = (ROOT / "docs" / "launchers.md").read_text(encoding="utf-8").split("\n## ")[0]
    assert [name for name in LAUNCHERS if f"| `{name}` |" not in rows and f"`{name}` for " not in rows] == []
