"""The files of a release: made twice and compared, checked by others' tools, and tried in empty environments."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from environments import ROOT, Missing, run, say

PYTHONS: tuple[str, ...] = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""Those of this machine are tried."""


def exported(folder: Path, commit: str) -> Path:
    """The tree of ``commit`` below ``folder``."""
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def build(tree: Path, output: Path, tools: Path, epoch: int) -> list[Path]:
    """The wheel and the source archive of ``tree``, in ``output``: the same bytes whenever they are made."""
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0", "TZ": "UTC"}
    words = [str(tools / "python"), "-m", "build", "--no-isolation", "--outdir", str(output), str(tree)]
    done = subprocess.run(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Missing(f"the wheel and the source archive can't be made:\n{done.stdout[-4000:]}")
    (source,) = output.glob("*.tar.gz")
    source.write_bytes(normalised(source.read_bytes(), epoch))
    return sorted(output.iterdir())


def normalised(archive: bytes, epoch: int) -> bytes:
    """A ``.tar.gz`` with its entries in order, of nobody, and all of one time: setuptools leaves the machine's."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for entry in sorted(old.getmembers(), key=lambda each: each.name):
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = epoch
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            entry.pax_headers = {}
            new.addfile(entry, old.extractfile(entry) if entry.isfile() else None)
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=epoch, filename="") as file:
        file.write(packed.getvalue())
    return out.getvalue()


def differing(one: Sequence[Path], other: Sequence[Path]) -> list[str]:
    """The names of files that aren't the same in both."""
    mine, its = ({path.name: sha256(path) for path in paths} for paths in (one, other))
    return sorted(name for name in mine.keys() | its.keys() if mine.get(name) != its.get(name))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pythons() -> dict[str, str]:
    """The interpreters of this machine by version, of those that are supported."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep) if "/shims" not in folder]
    found = {}
    for version in PYTHONS:
        name = f"python{version}"
        for place in (*versions.glob(f"{version}.*/bin/{name}"), *(folder / name for folder in folders)):
            if version not in found and os.access(place, os.X_OK):
                made = subprocess.run([place, "-c", "import ensurepip"], capture_output=True, check=False)
                found.update({version: str(place)} if made.returncode == 0 else {})
    return found


def tried(command: Sequence[str | Path], folder: Path, environ: Mapping[str, str] = {}) -> None:
    """The demo, by a ``muster`` that was just installed; raises Missing where it doesn't do what it should."""
    words = [str(word) for word in command]
    done = subprocess.run(
        [*words, "local", "--demo"], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, **environ}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode or "What you have seen" not in done.stdout:
        raise Missing(f"{' '.join(words)} local --demo ended with code {done.returncode}:\n{done.stdout}{done.stderr}")


def install(wheel: Path, folder: Path, tools: Path, most: int | None = None) -> list[str]:
    """Installs ``wheel`` in empty environments of every Python (``most``: of so many), and runs the demo in each."""
    done = []
    for version, python in list(pythons().items())[:most]:
        place = folder / version
        run(python, "-m", "venv", place)
        run(place / "bin" / "python", "-m", "pip", "install", "-qq", "--no-index", wheel)
        tried([place / "bin" / "muster"], folder)
        done.append(f"pip, Python {version}")
    own = {"UV_CACHE_DIR": str(folder / "uv"), "PIPX_HOME": str(folder / "pipx"), "PIPX_BIN_DIR": str(folder / "bin")}
    uv: list[str | Path] = [
        tools / "uv",
        "tool",
        "run",
        "--no-index",
        "--python",
        sys.executable,
        "--from",
        wheel,
        "muster",
    ]
    tried(uv, folder, own)
    run(tools / "pipx", "install", "--quiet", wheel, env={**os.environ, **own})
    tried([folder / "bin" / "muster"], folder)
    return [*done, "uv", "pipx"]


def bill_of_materials(wheel: Path, version: str, epoch_text: str) -> str:
    """The wheel's parts as CycloneDX: itself, since it requires nothing, and its optional packages by extra."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-index", "-qq",
         "--report", "-", str(wheel)], capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    parts = [
        {
            "type": "library",
            "name": each["metadata"]["name"],
            "version": each["metadata"]["version"],
            "purl": f"pkg:pypi/{each['metadata']['name']}@{each['metadata']['version']}",
            "licenses": [{"license": {"id": "Apache-2.0"}}],
            "hashes": [{"alg": "SHA-256", "content": sha256(wheel)}],
        }
        for each in json.loads(listed)["install"]
    ]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": epoch_text,
            "component": {"type": "application", "name": "musterpoint", "version": version},
        },
        "components": parts,
    }
    return json.dumps(bill, indent=1) + "\n"


def checksums(folder: Path) -> str:
    """``sha256sum``'s list of the files in ``folder``."""
    return "".join(f"{sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path.name != "SHA256SUMS")


def checked(files: Sequence[Path], tools: Path) -> None:
    """Others' checks of the metadata and of what is in the wheel."""
    run(tools / "twine", "check", "--strict", *files)
    wheels = [path for path in files if path.suffix == ".whl"]
    # empty files are alike, a folder is no package, and there are two packages
    run(tools / "check-wheel-contents", "--ignore", "W002,W004,W009", *wheels)
    say(f"{len(files)} files have good metadata and contents")
