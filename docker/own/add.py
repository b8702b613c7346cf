"""Run by a base image's own Python while an image is built on it: puts musterpoint among that Python's packages.

Arguments are what pip has to install beside it. pip is not needed for musterpoint itself, and neither is a network.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
COMMANDS = {"train": "musterpoint.cli.train", "muster": "musterpoint.cli.main"}
COMMAND = """#!{python}
import sys

from {module} import main

sys.exit(main())
"""


def install(requirements: list[str]) -> None:
    """pip, with this machine's certificates beside its own."""
    bundle = SOURCE / "certificates.pem"
    from pip._vendor import certifi

    added = sorted((SOURCE / "certs").glob("*.crt"))
    bundle.write_text("\n".join(Path(file).read_text() for file in (certifi.where(), *added)))
    settings = {
        "PIP_BREAK_SYSTEM_PACKAGES": "1",
        "PIP_CERT": str(bundle),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    command = [sys.executable, "-m", "pip", "install", "--quiet", *requirements]
    # What is set to nothing would still count.
    told = {name: value for name, value in os.environ.items() if value or not name.startswith("PIP_")}
    subprocess.run(command, env={**told, **settings}, check=True)


def add(version: str) -> None:
    """The packages, their commands, and a record by which pip knows them."""
    sys.path.insert(0, str(SOURCE / "src"))
    from musterpoint import PACKAGES

    packages, scripts = Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("scripts"))
    for folder in (packages, scripts):
        folder.mkdir(parents=True, exist_ok=True)
    for old in packages.glob("musterpoint-*.dist-info"):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copy(SOURCE / "sagemaker_drivers.pth", packages)
    written = [packages / "sagemaker_drivers.pth"]
    for name in PACKAGES:
        shutil.rmtree(packages / name, ignore_errors=True)
        shutil.copytree(SOURCE / "src" / name, packages / name)
        compileall.compile_dir(packages / name, quiet=1)
        written += (packages / name).rglob("*")
    for name, module in COMMANDS.items():
        command = scripts / name
        command.unlink(missing_ok=True)
        command.write_text(COMMAND.format(python=sys.executable, module=module))
        command.chmod(0o755)
        written.append(command)
    facts = packages / f"musterpoint-{version}.dist-info"
    facts.mkdir()
    points = "".join(f"{name} = {module}:main\n" for name, module in COMMANDS.items())
    for name, text in (
        ("METADATA", f"Metadata-Version: 2.1\nName: musterpoint\nVersion: {version}\nRequires-Python: >=3.10\n"),
        ("INSTALLER", "scripts/build-image\n"),
        ("entry_points.txt", f"[console_scripts]\n{points}"),
        ("RECORD", ""),
    ):
        (facts / name).write_text(text)
        written.append(facts / name)
    record = "".join(f"{os.path.relpath(path, packages)},,\n" for path in written if path.is_file())
    (facts / "RECORD").write_text(record)
    for name in COMMANDS:
        if (shutil.which(name) or "") != str(scripts / name):
            # its folder isn't on PATH, or another one's command comes before
            link = Path("/usr/local/bin") / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(scripts / name)


def main(version: str, requirements: list[str]) -> None:
    if requirements:
        if importlib.util.find_spec("pip"):
            install(requirements)
        else:
            print(f"WARNING: {sys.executable} has no pip: {' '.join(requirements)} can't be added", file=sys.stderr)
    add(version)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
