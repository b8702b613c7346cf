"""The pages of the site: those of docs/, and beside them whatever of the repository they link to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from environments import Missing

MARK = ".site-of-musterpoint"
"""A file that says that a folder is a site of ours, which may be made anew."""
LINK = re.compile(r"(`(?:[^`\n]|\n(?!\n))*`)|(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(|\bsrc(?:set)?=\")([^)\s\"]+)(\)|\")")
"""Code, in which there is no link; or a link or picture, of Markdown or HTML."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FENCE = re.compile(r"^(\s*)(`{3,})", re.MULTILINE)
PICTURES = (".png", ".svg", ".webp")
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".yaml": "yaml", ".sh": "sh"}
LEAVES_OUT = ("__pycache__", ".egg-info")


def staged_name(root: Path, file: Path) -> Path:
    """Where a file of the repository is below the site's pages; its own text is a page, too."""
    place = file.relative_to(root)
    if place.parts[0] == "docs" and (file.suffix == ".md" or file.suffix in PICTURES):
        return place.relative_to("docs")
    return Path("project") / (place if file.suffix == ".md" else place.with_name(place.name + ".md"))


def stage(root: Path, folder: Path) -> int:
    """Writes the pages and their configuration to ``folder``; how many pages there are."""
    pages = folder / "docs"
    waiting = sorted((root / "docs").rglob("*.md"))
    waiting += [root / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
    waiting += [root / "CODE_OF_CONDUCT.md"]
    done: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file in done:
            continue
        done.add(file)
        target = pages / staged_name(root, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix in PICTURES:
            shutil.copyfile(file, target)
        elif file.suffix == ".md":
            text, linked = rewritten(root, file)
            target.write_text(text, encoding="utf-8")
            waiting += linked
        else:
            target.write_text(as_page(root, file), encoding="utf-8")
    settings = (root / "docs" / "site.toml").read_text(encoding="utf-8")
    (folder / "zensical.toml").write_text(settings, encoding="utf-8")
    return sum(file.suffix not in PICTURES for file in done)


def rewritten(root: Path, file: Path) -> tuple[str, list[Path]]:
    """A page's text with its links as they are on the site, and the files that it links to."""
    linked: list[Path] = []
    here = staged_name(root, file).parent

    def link(found: re.Match[str]) -> str:
        code, before, target, after = found.groups()
        if code:
            return found[0]
        name, mark, anchor = target.partition("#")
        if not name or ":" in name:
            return found[0]
        other = (file.parent / name).resolve()
        if not other.exists():
            raise Missing(f"{file.relative_to(root)}: {target} leads nowhere")
        linked.append(other)
        return before + Path(os.path.relpath(staged_name(root, other), here)).as_posix() + mark + anchor + after

    return outside_of_code(file.read_text(encoding="utf-8"), lambda text: LINK.sub(link, text)), linked


def outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """``text`` with everything but its fenced blocks changed."""
    parts: list[str] = []
    plain: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        found = FENCE.match(line)
        if found and (not fence or line.strip() == fence):
            if not fence:
                parts.append(change("".join(plain)))
                plain = []
            fence = "" if fence else found[2]
            parts.append(line)
        elif fence:
            parts.append(line)
        else:
            plain.append(line)
    return "".join([*parts, change("".join(plain))])


def as_page(root: Path, file: Path) -> str:
    """A page that shows a file of the repository, or all of a folder."""
    files = sorted(path for path in file.rglob("*") if path.is_file()) if file.is_dir() else [file]
    shown = [path for path in files if not any(word in str(path) for word in LEAVES_OUT)]
    parts = [f"# `{file.relative_to(root)}`\n"]
    for path in shown:
        if path != file:
            parts.append(f"## `{path.relative_to(file)}`\n")
        parts.append(f"````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text(encoding='utf-8')}\n````\n")
    return "\n".join(parts)


def build(zensical: Path, folder: Path, output: Path) -> None:
    """The staged pages as a site; whatever Zensical warns of fails."""
    command = [zensical, "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = COLOUR.sub("", done.stdout + done.stderr)
        raise Missing(f"Zensical failed with code {done.returncode}:\n{said}")
    if output.exists():
        shutil.rmtree(output)
    shutil.copytree(folder / "site", output)
    (output / MARK).touch()
