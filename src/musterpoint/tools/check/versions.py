"""The versions on this host that should be the same on all: of the user's Python and its packages, of libraries and
drivers."""

import json
import os
from typing import TYPE_CHECKING, Mapping, NamedTuple

from musterpoint import __version__
from musterpoint.core.fabric.devices import read
from musterpoint.core.fabric.libraries import SHOWN, survey_libraries

if TYPE_CHECKING:
    from musterpoint.base.probe import Ask

_DISTRIBUTIONS = ("torch", "tensorflow", "jax", "deepspeed", "mpi4py")
_ASK = (
    "import importlib.metadata as m,json,platform,sys\n"
    "found={'python':platform.python_version()}\n"
    "for d in m.distributions():\n"
    " n=(d.metadata['Name'] or '').lower()\n"
    " for w in sys.argv[1:]:\n"
    "  if n==w: found[w]=d.version\n"
    "print(json.dumps(found))"
)
"""Reads the metadata of packages: importing torch would take seconds."""


class Version(NamedTuple):
    """``name``: what it is the version of."""

    name: str
    version: str


def survey_versions(interpreter: str, environ: Mapping[str, str], ask: "Ask", root: str = "/") -> tuple[Version, ...]:
    """Every version that is found. ``interpreter``: the user's Python, which is asked through ``ask``; empty:
    it isn't asked, which takes as long as it takes to start.
    """
    found = {"musterpoint": __version__, **(_of_python(interpreter, environ, ask) if interpreter else {})}
    libraries = survey_libraries(environ, interpreter, root)
    found.update((what, getattr(libraries, name)) for name, what in SHOWN.items())
    found["the NVIDIA driver"] = read(os.path.join(root, "sys/module/nvidia/version")).strip()
    found["Linux"] = libraries.kernel
    return tuple(Version(name, version) for name, version in found.items() if version)


def _of_python(interpreter: str, environ: Mapping[str, str], ask: "Ask") -> dict[str, str]:
    try:
        answer = ask((interpreter, "-c", _ASK, *_DISTRIBUTIONS), environ, "/", False)
        found = json.loads(answer.text)
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(name): str(version) for name, version in found.items()}
