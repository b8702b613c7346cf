"""What a reader has who did what a page says: an environment with the packages that it names, and no others."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from . import commands
from .blocks import ROOT, Block

CONSTRAINTS = ROOT / "scripts" / "constraints.txt"
PIP = re.compile(r"^pip install (.+)$", re.MULTILINE)
OURS = "musterpoint"
BROUGHT = ("musterpoint", "smdistributed")
"""The modules that come with musterpoint."""
DISTRIBUTIONS = {"sklearn": "scikit-learn"}
"""Modules, and the package of each that has another name."""


def packages(above: list[Block]) -> tuple[str, ...]:
    """What the ``pip install`` lines of these blocks name beside musterpoint itself."""
    words = [word for block in above for line in PIP.findall(block.text) for word in shlex.split(line, comments=True)]
    return tuple(sorted({word for word in words if word != "." and not word.startswith("-") and "/" not in word}))


def unnamed(block: Block, above: list[Block]) -> set[str]:
    """The packages that examples of ``block`` import, and that no ``pip install`` line ``above`` it brings."""
    brought = {Requirement(name).name for name in packages(above)}
    for name in packages(above):
        try:
            brought |= {*closure((name,))}
        except AssertionError:
            continue  # a stack of its own has it: its name counts, and not what it needs
    return {DISTRIBUTIONS.get(module, module) for module in imports(examples(block.text))} - brought


def examples(text: str) -> set[Path]:
    """The Python files of the checkout's examples that the commands of ``text`` run, not only plan."""
    found: set[Path] = set()
    for words in commands.commands(text):
        if words[0] != "plan":
            named = [ROOT / each for word in words for each in re.findall(r"[\w./-]+\.py\b", word)]
            folders = {file.parent for file in named if file.is_relative_to(ROOT / "examples")}
            found |= {folder / file.name for file in named for folder in folders if (folder / file.name).exists()}
    return found


def imports(programs: set[Path]) -> set[str]:
    """The modules that ``programs`` and the files beside them import, without Python's own and ours."""
    found, seen = set(), set(programs)
    waiting = sorted(programs)
    while waiting:
        program = waiting.pop()
        for node in ast.walk(ast.parse(program.read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in (name.partition(".")[0] for name in names):
                beside = program.with_name(f"{module}.py")
                if not beside.exists():
                    found.add(module)
                elif beside not in seen:
                    seen.add(beside)
                    waiting.append(beside)
    return found - sys.stdlib_module_names - {*BROUGHT}


def closure(names: tuple[str, ...]) -> dict[str, Distribution]:
    """The distributions of this Python that ``pip install NAMES`` would bring, by name; extras of theirs left out."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(name) for name in names]
    while waiting:
        wanted = waiting.pop()
        name = wanted.name.lower().replace("_", "-")
        if name in found and not wanted.extras:
            continue
        try:
            found[name] = distribution(wanted.name)
        except PackageNotFoundError:
            raise AssertionError(f"{wanted.name} is needed, and the environment of the tests lacks it") from None
        for text in found[name].requires or ():
            needs = Requirement(text)
            extras = [{"extra": extra} for extra in ("", *wanted.extras)]
            if needs.marker is None or any(needs.marker.evaluate(extra) for extra in extras):
                waiting.append(needs)
    return found


def installed(folder: Path, names: tuple[str, ...]) -> Path:
    """The bin directory of a real environment: pip installs musterpoint and ``names`` from an index."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "-q", "--constraint", CONSTRAINTS]
    subprocess.run([*pip, ROOT, *names], check=True)
    return folder / "bin"


def linked(folder: Path, names: tuple[str, ...]) -> Path:
    """The same in a moment: a virtual environment with links to what this Python has of them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / OURS).symlink_to(ROOT / "src" / OURS)
    ours = distribution(OURS)
    for each in (ours, *closure(names).values()):
        files = each.files or []
        for top in {file.parts[0] for file in files if not file.parts[0].startswith("..")}:
            if each is ours and not top.endswith(".dist-info"):
                continue
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(each.locate_file(top))).absolute())
        for entry in each.entry_points:
            if entry.group == "console_scripts":
                words = f"import sys; from {entry.module} import {entry.attr}; sys.exit({entry.attr}())"
                program = folder / "bin" / entry.name
                program.write_text(f"#!{folder / 'bin' / 'python'}\n{words}\n")
                program.chmod(0o755)
    return folder / "bin"


def variables(programs: Path, home: Path, environ: dict[str, str]) -> dict[str, str]:
    """The environment of a shell in which the virtual environment is active."""
    kept = {name: value for name, value in environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    path = f"{programs}{os.pathsep}{'/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin'}"
    return {**kept, "PATH": path, "HOME": str(home), "VIRTUAL_ENV": str(programs.parent), "OMP_NUM_THREADS": "1"}
