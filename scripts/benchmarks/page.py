"""docs/benchmarks.md and its pictures, from what scripts/bench measured."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from html import escape
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.parts import PARTS
from benchmarks.results import Taken

HEAD = """\
# Benchmarks

What `scripts/bench` measured, beside other tools where there are any. Everything that is compared ran alternately in
one run, in the same environment; other tools come from their package registry, each in an environment of its own. A
goal is what we aim at, and a figure that misses it stays here. Times depend on the machine and on what else it did, so
look at the ratios first, and at the load: above the number of processors, times are longer than they need be.

`scripts/bench --list` says what there is and how long it takes. `scripts/bench --only PART --json FILE` adds a part to
a file, and `scripts/bench --page FILE` writes its parts and their pictures into this page; nothing here is written by
hand.
A bar is the middle one of the values that were taken, the thin line goes from the least to the most, and a dashed line
is the goal.
"""
ROW, LEFT, WIDTH, TOP = 30, 250, 760, 34
COLOURS = ("#2f6fb7", "#8a94a3")


def write(parts: dict[str, Taken], docs: Path) -> None:
    """Writes the page and its pictures below ``docs``; pictures of figures that are gone are removed.

    A part that isn't among ``parts`` keeps its section and pictures: each says when it was taken, and on which machine.
    """
    pictures, page = docs / "pictures", docs / "benchmarks.md"
    pictures.mkdir(parents=True, exist_ok=True)
    kept = {
        name: section
        for name, section in (sections_of(page.read_text()) if page.exists() else {}).items()
        if name not in parts or parts[name].missing
    }
    drawn = {
        f"{picture_name(name, figure)}.svg": figure for name in parts for figure in parts[name].figures if figure.bars
    }
    for old in pictures.glob("benchmark-*.svg"):
        if old.name not in drawn and not any(f"(pictures/{old.name})" in section for section in kept.values()):
            old.unlink()
    for name, figure in drawn.items():
        (pictures / name).write_text(picture(figure))
    page.write_text(text(parts, kept))


def sections_of(page: str) -> dict[str, str]:
    """The sections of a page by the parts that they are of."""
    sections = re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]
    found = {section.partition("\n")[0].removeprefix("## "): section.rstrip() for section in sections}
    return {name: section for name, section in found.items() if name in PARTS}


def text(parts: dict[str, Taken], kept: Mapping[str, str] = {}) -> str:
    """The page; ``kept`` has the sections of parts that were taken before."""
    found = {**kept, **{name: _section(name, part) for name, part in parts.items() if not part.missing}}
    sections = [found[name] for name in PARTS if name in found]
    missing = [name for name in PARTS if name not in found]
    if missing:
        rows = [f"| `{name}` | {PARTS[name].about} | {_why(parts.get(name))} |" for name in missing]
        sections.append(
            "\n".join(["## Not taken yet", "", "| part | what it compares | why |", "|---|---|---|", *rows])
        )
    return "\n\n".join([HEAD.rstrip(), *sections]) + "\n"


def _why(part: Taken | None) -> str:
    return "it has not been run" if part is None else f"{_cell(part.missing)} ({part.date})"


def _section(name: str, part: Taken) -> str:
    versions = ", ".join(f"{package} {number}" for package, number in part.versions.items())
    short = " This was a short run (`--quick`)." if part.quick else ""
    lines = [
        f"## {name}", "", PARTS[name].about + short, "",
        f"Measured {part.date} on {part.machine}; "
        f"load {part.load[0]:.1f} before and {part.load[1]:.1f} after. {versions}. "
        f"To repeat it: `scripts/bench --only {name}{' --quick' if part.quick else ''}`", "",
        "| figure | goal | measured |", "|---|---|---|",
    ]  # fmt: skip
    lines += [f"| {_cell(each.name)} | {_cell(each.goal)} | {_cell(each.measured)} |" for each in part.figures]
    for figure in part.figures:
        if figure.bars:
            lines += ["", f"![{figure.name.replace('`', '')}](pictures/{picture_name(name, figure)}.svg)"]
    return "\n".join(lines)


def _cell(words: str) -> str:
    return " ".join(words.replace("|", "\\|").split())


def picture_name(part: str, figure: Figure) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", figure.name.lower()).strip("-")
    return f"benchmark-{part}-{words[:60].strip('-')}"


def picture(figure: Figure) -> str:
    """A row for each bar: its name, the middle value as a bar, a line from the least to the most."""
    middle = {name: statistics.median(values) for name, values in figure.bars.items()}
    most = max([each for values in figure.bars.values() for each in values] + [figure.limit or 0]) or 1
    scale = (WIDTH - LEFT - 110) / most
    height = TOP + ROW * len(middle) + 12
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">',
        f"<title>{escape(figure.name)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="20" font-weight="bold">{escape(figure.name.replace("`", ""))}</text>',
    ]
    for index, (name, values) in enumerate(figure.bars.items()):
        top = TOP + ROW * index
        low, high = (LEFT + each * scale for each in (min(values), max(values)))
        ours = COLOURS[0] if name.startswith(("musterpoint", "train")) else COLOURS[1]
        drawn += [
            f'<text x="{LEFT - 8}" y="{top + 17}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{LEFT}" y="{top + 4}" width="{middle[name] * scale:.1f}" height="18" fill="{ours}"/>',
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{top + 13}" y2="{top + 13}" stroke="#1b1f24" stroke-width="2"/>',
            f'<text x="{high + 8:.1f}" y="{top + 17}">{middle[name]:,.4g} {escape(figure.unit)}</text>',
        ]
    if figure.limit is not None:
        at = f"{LEFT + figure.limit * scale:.1f}"
        drawn.append(
            f'<line x1="{at}" x2="{at}" y1="{TOP}" y2="{height - 8}" stroke="#b3261e" stroke-dasharray="5 4"/>'
        )
    return "\n".join([*drawn, "</svg>"]) + "\n"
