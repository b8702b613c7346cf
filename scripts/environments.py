"""Cached environments: each is made once per machine, in a folder named after all that defines it; clones share it."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("MUSTER_CACHE") or Path.home() / ".cache" / "musterpoint").absolute()
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"

# Words of a step may hold {env} (the environment's folder) and {constraints}.
Steps = Sequence[Sequence[str]]
PIP = ("{env}/bin/python", "-m", "pip", "install", "-qq", "--constraint", "{constraints}")


class Missing(Exception):
    """Something this machine lacks and we could not get; the text says what to do."""


def say(text: str) -> None:
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)


def run(*command: str | Path, **options: Any) -> None:
    """Runs a command with its output on stderr; raises Missing with the command's words when it fails."""
    done = subprocess.run([str(word) for word in command], stdout=sys.stderr, check=False, **options)
    if done.returncode:
        raise Missing(f"this command failed with code {done.returncode}: {' '.join(map(str, command))}")


def distribution() -> dict[str, str]:
    """What /etc/os-release says; nothing where there is none."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """One builder per environment, across processes and clones."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Missing(
            f"{error.filename} can't be written ({why}): run this as its owner, or in a clone of yours"
        ) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@functools.cache
def identity(python: str) -> str:
    """What makes two interpreters the same to a virtual environment: the real file and the full version."""
    code = "import os, sys; print(os.path.realpath(sys.executable), sys.version.replace(chr(10), ' '))"
    return subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def packages_of(folder: Path) -> Path:
    """Where the environment with this bin directory has its packages."""
    return next((folder.parent / "lib").glob("python3*")) / "site-packages"


def environment(
    path: Path, stamp: str, python: str, title: str, steps: Steps, over: Sequence[Path] = (), pip: bool = True
) -> Path:
    """The bin directory of a virtual environment at ``path``, made anew unless it was finished with this ``stamp``.

    Its interpreter sees the packages of the environments with the bin directories ``over`` too. A virtual environment
    can't be moved, so it is built in place; a half-built one lacks its mark and is removed.
    """
    mark = path / ".complete"
    with lock(path.with_name(path.name + ".lock")):
        if not mark.exists() or mark.read_text() != stamp:
            say(f"{path.name}: {title}")
            began = time.monotonic()
            if path.exists():
                shutil.rmtree(path)
            run(python, "-m", "venv", *([] if pip else ["--without-pip"]), path)
            if over:
                lines = "".join(f"{packages_of(folder)}\n" for folder in over)
                (packages_of(path / "bin") / "layers.pth").write_text(lines)
            search = {**os.environ, "PATH": f"{path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
            for step in steps:
                words = (word.replace("{env}", str(path)).replace("{constraints}", str(CONSTRAINTS)) for word in step)
                run(*words, env=search)
            mark.write_text(stamp)
            say(f"{path.name}: ready after {time.monotonic() - began:.0f} s")
    return path / "bin"


def cached(
    name: str, wanted: Sequence[str], python: str = sys.executable, over: Sequence[Path] = (), steps: Steps = ()
) -> Path:
    """The bin directory of the cached environment with the packages ``wanted``, on which ``steps`` were then run.

    With environments ``over`` it has only what they lack, and uses their pip.
    """
    words = [word for step in steps for word in step]
    stamp = digest(identity(python), CONSTRAINTS.read_text(), *wanted, *(folder.parent.name for folder in over), *words)
    install = [(*PIP, *wanted)] if wanted else []
    title = "installing " + ", ".join(wanted) if wanted else "over " + ", ".join(folder.parent.name for folder in over)
    return environment(CACHE / f"{name}-{stamp}", stamp, python, title, [*install, *steps], over, pip=not over)


def wheel(name: str, requirement: str, python: Path, variables: Mapping[str, str], compiler: str) -> Path:
    """The wheel of ``requirement``, built from source in the environment of ``python`` and kept in the cache.

    ``compiler`` is the text of a program that stands in for g++.
    """
    settings = [f"{key}={value}" for key, value in sorted(variables.items())]
    stamp = digest(python.parent.parent.name, requirement, compiler, *settings)
    folder = CACHE / "wheels" / f"{name}-{stamp}"
    with lock(folder.with_name(folder.name + ".lock")):
        if not folder.exists():
            say(f"{name}: building {requirement}, which takes minutes")
            began = time.monotonic()
            building = folder.with_name(folder.name + ".part")
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir()
            program = building / "g++"
            program.write_text(compiler)
            program.chmod(0o755)
            jobs = str(os.cpu_count() or 1)
            search = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
            tools = {"CXX": str(program), "MAKEFLAGS": f"-j{jobs}", "MAX_JOBS": jobs, "PATH": search}
            # pip's own cache of wheels doesn't ask what they were built with.
            pip = (python, "-m", "pip", "wheel", "-qq", "--no-cache-dir", "--no-build-isolation", "--no-deps")
            run(*pip, "--wheel-dir", building, requirement, env={**os.environ, **tools, **variables})
            building.rename(folder)
            say(f"{name}: built in {time.monotonic() - began:.0f} s")
    return next(folder.glob("*.whl"))
