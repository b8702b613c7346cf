"""What scripts/bench measured, as the JSON file that keeps it: parts may be measured on different days."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figure import Figure

FORMAT = 1


class BrokenResults(Exception):
    """The file can't be used; the text says what is wrong with it, and what to do."""


class Taken(NamedTuple):
    """One part: ``machine``, ``date`` and ``load`` (before and after) of its run; ``quick``: it was a short one.

    ``versions`` of what was compared. ``missing``: why there are no figures.
    """

    machine: str
    date: str
    load: list[float]
    quick: bool
    versions: dict[str, str]
    figures: list[Figure]
    missing: str = ""


def machine() -> str:
    """This machine as one line."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = names[0].partition(":")[2].strip() if names else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{os.cpu_count()} × {model}, {memory:.0f} GiB, Linux {platform.release()}"


def today() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


def version(python: Path, *packages: str) -> dict[str, str]:
    """The versions of ``packages`` in the environment of ``python``; without those that it hasn't."""
    code = (
        "import importlib.metadata as m, json, platform, sys\n"
        "named = {(d.name or '').lower().replace('_', '-'): d.version for d in m.distributions()}\n"
        "found = {name: named[name] for name in sys.argv[1:] if name in named}\n"
        "print(json.dumps({'Python': platform.python_version(), **found}))"
    )
    done = subprocess.run([python, "-c", code, *packages], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def save(path: Path, parts: dict[str, Taken]) -> None:
    told = {
        name: {**part._asdict(), "figures": [each._asdict() for each in part.figures]} for name, part in parts.items()
    }
    path.write_text(json.dumps({"format": FORMAT, "parts": told}, indent=1, ensure_ascii=False) + "\n")


def load(path: Path) -> dict[str, Taken]:
    """The parts of the file; none if there is no such file.

    Raises:
        BrokenResults: it isn't what :func:`save` writes.
    """
    try:
        told = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BrokenResults(f"{path}: no JSON of scripts/bench ({error}); measure again with --json {path}") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        found = told.get("format", "none") if isinstance(told, dict) else "none"
        raise BrokenResults(f"{path}: format {found}, expected {FORMAT}; move it away and measure again")
    try:
        return {name: _part(part) for name, part in told["parts"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise BrokenResults(f"{path}: a part isn't as scripts/bench writes it ({error}); measure it again") from None


def _part(told: dict[str, Any]) -> Taken:
    return Taken(**{**told, "figures": [Figure(**each) for each in told["figures"]]})
