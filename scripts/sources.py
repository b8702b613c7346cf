"""Where this machine takes packages from, so that what is built here takes them from the same places."""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from environments import Missing, distribution


def mirror(wanted: str, apt: Path = Path("/etc/apt")) -> list[str]:
    """Sources of Debian's release ``wanted``, as mmdebstrap takes them: this machine's mirrors, if it is a Debian."""
    system = distribution()
    release = system.get("VERSION_CODENAME")
    if system.get("ID") != "debian" or not release:
        return []
    found: list[tuple[str, str]] = []
    for file in sorted(apt.glob("sources.list.d/*.sources")):
        for block in re.split(r"\n\s*\n", file.read_text()):
            field = dict(re.findall(r"^([\w-]+):[ \t]*(\S.*)$", block, re.MULTILINE))
            types, parts, keys = (field.get(name, "").split() for name in ("Types", "Components", "Signed-By"))
            if "deb" in types and "main" in parts and field.get("Enabled") != "no" and _of_debian(keys):
                places = field.get("URIs", "").split()
                found += [(address, suite) for address in places for suite in field.get("Suites", "").split()]
    for file in [apt / "sources.list", *sorted(apt.glob("sources.list.d/*.list"))]:
        text = file.read_text() if file.is_file() else ""
        for options, address, suite in re.findall(
            r"^deb[ \t]+(?:\[([^]]*)\][ \t]*)?(\S+)[ \t]+(\S+)[ \t]+main\b", text, re.MULTILINE
        ):
            keys = [word.partition("=")[2] for word in options.split() if word.startswith("signed-by=")]
            if _of_debian(keys):
                found.append((address, suite))
    suites = {f"{release}{part}": f"{wanted}{part}" for part in ("", "-updates", "-security")}
    return [f"deb {address} {suites[suite]} main" for address, suite in dict.fromkeys(found) if suite in suites]


def _of_debian(keys: Sequence[str]) -> bool:
    """Whether a source with these ``Signed-By`` is Debian's and not a vendor's, whose suites have the same names."""
    return all("debian-archive" in key for key in keys)


def pip_files() -> list[Path]:
    """Where pip looks for its settings; a later file counts more. Many a Debian's Python has no pip to ask."""
    own = os.environ.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return []
    home = Path.home()
    shared = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    mine = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return [
        *(Path(folder, "pip", "pip.conf") for folder in shared.split(os.pathsep)),
        Path("/etc/pip.conf"),
        *(() if own else (home / ".pip" / "pip.conf", mine / "pip" / "pip.conf")),
        Path(sys.prefix, "pip.conf"),
        *((Path(own),) if own else ()),
    ]


def pip_settings() -> dict[str, str]:
    """What ``pip install`` is told on this machine, from files and variables, by option name (``index-url``)."""
    told = configparser.RawConfigParser()
    try:
        told.read(pip_files())
    except (configparser.Error, UnicodeDecodeError) as error:
        raise Missing(f"pip's settings can't be read: {error}") from None
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if told.has_section(section):
            found.update({name.replace("_", "-"): value for name, value in told.items(section)})
    for name, value in os.environ.items():
        if name.startswith("PIP_"):
            found[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    return found


def build_arguments() -> dict[str, str]:
    """Where packages come from, as pip's and proxies' settings here say; folders of this machine are no use inside."""
    settings = pip_settings()
    found = {}
    for name in ("index-url", "extra-index-url", "trusted-host"):
        words = [word for word in settings.get(name, "").split() if not word.startswith(("file:", "/"))]
        if words:
            found["PIP_" + name.upper().replace("-", "_")] = " ".join(words)
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        if os.environ.get(name):
            found[name] = os.environ[name]
    return found


def local_wheels() -> list[Path]:
    """torch's wheels in folders that pip is told to look in: of the size where it matters, and often for CPUs."""
    folders = [Path(word.removeprefix("file://")) for word in pip_settings().get("find-links", "").split()]
    return sorted(wheel for folder in folders if folder.is_dir() for wheel in folder.glob("torch-*.whl"))


def local_certificates() -> list[Path]:
    """The authorities that were added to this machine's, as Debian and Ubuntu keep them."""
    return sorted(Path("/usr/local/share/ca-certificates").rglob("*.crt"))
