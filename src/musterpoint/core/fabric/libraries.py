"""Versions of the libraries and drivers that RDMA and NCCL depend on, from names and texts of files: nothing is loaded.

Where versions are: the EFA installer's list of packages and libfabric's pkg-config file (below ``/opt/amazon``), the
list of Debian's packages, the names of NCCL's library and of its wheel (``nvidia-nccl-cu12``), the kernel's
``/sys/module/*/version``, Mellanox's ``ofed_info``, which is a script with the version in it.
"""

import os
import re
from typing import Iterator, Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.devices import entries, read_text

Version = tuple[int, ...]

SHOWN = {
    "nccl": "NCCL",
    "libfabric": "libfabric",
    "ofi_nccl": "aws-ofi-nccl",
    "efa": "the EFA driver",
    "ofed": "MLNX_OFED",
    "mlx5": "the mlx5 driver",
    "gdrcopy": "GDRCopy",
}
"""What people call those of :class:`Libraries` that are shown, in this order."""

COMPARED = ("nccl", "libfabric", "ofi_nccl", "efa", "ofed", "mlx5")
"""Those that should be the same on all hosts of a job."""


class Libraries(NamedTuple):
    """The versions on this host, as texts; empty: not here, or not known.

    nccl: that the user's Python would load, else the system's.
    libfabric: of ``/opt/amazon/efa``, else the system's.
    ofi_nccl: NCCL's plugin for libfabric.
    efa: the kernel's driver of EFA devices.
    efa_installer: what installed the three before.
    ofed: Mellanox's drivers, where they aren't the kernel's own.
    mlx5: the kernel's driver of ConnectX devices.
    gdrcopy: its kernel module.
    peermem: the name of the kernel module by which RDMA devices reach GPUs' memory (no version).
    kernel: of Linux.
    """

    nccl: str = ""
    libfabric: str = ""
    ofi_nccl: str = ""
    efa: str = ""
    efa_installer: str = ""
    ofed: str = ""
    mlx5: str = ""
    gdrcopy: str = ""
    peermem: str = ""
    kernel: str = ""

    def number(self, name: str) -> Version:
        """The version of ``name`` as numbers, such as (1, 18, 0); empty where it isn't known."""
        return version_of(getattr(self, name))

    @property
    def shown(self) -> str:
        """For people: ``NCCL 2.27.3, libfabric 1.22.0``; empty where none is known."""
        return ", ".join(f"{what} {getattr(self, name)}" for name, what in SHOWN.items() if getattr(self, name))

    @property
    def compared(self) -> tuple[str, ...]:
        """What the hosts tell each other: ``NCCL=2.27.3`` and so on."""
        return tuple(f"{SHOWN[name]}={getattr(self, name)}"[:128] for name in COMPARED if getattr(self, name))


def version_of(text: str) -> Version:
    """The numbers at the beginning of ``text``: (1, 18, 0) of ``1.18.0amzn1.0``, (5, 4, 1) of ``5.4-1.0.3``."""
    found = re.match(r"v?(\d+(?:[.-]\d+)*)", text)
    return tuple(int(number) for number in re.split("[.-]", found[1]))[:3] if found else ()


def survey_libraries(environ: Mapping[str, str], interpreter: str = "", root: str = "/") -> Libraries:
    """The versions on this host, for a program of ``interpreter`` with these variables."""
    packages = {**_debian(root), **_efa_packages(root)}
    modules = os.path.join(root, "sys/module")
    loaded = set(entries(modules))

    def module(name: str) -> str:
        return read_text(os.path.join(modules, name, "version")).strip()

    return Libraries(
        nccl=_nccl(environ, interpreter, root) or packages.get("libnccl2", ""),
        libfabric=_libfabric(root) or packages.get("libfabric1-aws", "") or packages.get("libfabric1", ""),
        ofi_nccl=_ofi_nccl(environ, packages, root),
        efa=module("efa"),
        efa_installer=_efa_installer(root),
        ofed=_ofed(root),
        mlx5=module("mlx5_core"),
        gdrcopy=module("gdrdrv"),
        peermem=next((name for name in ("nvidia_peermem", "nv_peer_mem") if name in loaded), ""),
        kernel=read_text(os.path.join(root, "proc/sys/kernel/osrelease")).strip(),
    )


_EFA = "opt/amazon"


def _efa_installer(root: str) -> str:
    text = read_text(os.path.join(root, _EFA, "efa_installed_packages"))
    found = re.search(r"EFA installer version:\s*(\S+)", text)
    return found[1] if found else ""


def _efa_packages(root: str) -> dict[str, str]:
    """Packages by name, of words such as ``libfabric1-aws_1.9.0amzn1.1_amd64`` or ``libnccl-ofi-1.14.2-1.x86_64``."""
    text = read_text(os.path.join(root, _EFA, "efa_installed_packages"))
    found = re.findall(r"^(\S+?)[_-](\d[A-Za-z0-9.]*)", "\n".join(text.split()), re.MULTILINE)
    return {_SAME.get(name, name): version for name, version in found}


_SAME = {"libfabric-aws": "libfabric1-aws", "libnccl-ofi-ngc": "libnccl-ofi", "libnccl-ofi-ngc-v3": "libnccl-ofi"}
"""Names of one package in other distributions."""


def _debian(root: str) -> dict[str, str]:
    """The versions of some of Debian's packages."""
    wanted = ("libnccl2", "libfabric1", "libfabric1-aws", "libnccl-ofi")
    text = "\n" + read_text(os.path.join(root, "var/lib/dpkg/status"))
    found = {}
    for name in wanted:
        at = text.find(f"\nPackage: {name}\n")
        paragraph = text[at : text.find("\n\n", at)] if at >= 0 else ""
        row = re.search(r"^Version: (?:\d+:)?(\S+)", paragraph, re.MULTILINE)
        if row:
            found[name] = row[1]
    return found


def _libfabric(root: str) -> str:
    for folder in ("lib64", "lib"):
        text = read_text(os.path.join(root, _EFA, "efa", folder, "pkgconfig/libfabric.pc"))
        found = re.search(r"^Version:\s*(\S+)", text, re.MULTILINE)
        if found:
            return found[1]
    return ""


def _ofi_nccl(environ: Mapping[str, str], packages: Mapping[str, str], root: str) -> str:
    """The version that the plugin itself would print, from its text; else that of its package."""
    folders = [
        *_library_path(environ, root),
        *_configured_path(root),
        os.path.join(root, _EFA, "ofi-nccl/lib"),
        os.path.join(root, _EFA, "ofi-nccl/lib/x86_64-linux-gnu"),
        os.path.join(root, "opt/aws-ofi-nccl/lib"),
        os.path.join(root, "opt/aws-ofi-nccl/install/lib"),
    ]
    for folder in folders:
        for name in ("libnccl-net-ofi.so", "libnccl-net-aws-ofi.so", "libnccl-net.so"):
            found = re.search(rb"aws-ofi-nccl[ /]v?(\d+\.\d+[\w.]*)", _start(os.path.join(folder, name)))
            if found:
                return found[1].decode()
    return packages.get("libnccl-ofi", "")


def _nccl(environ: Mapping[str, str], interpreter: str, root: str) -> str:
    """torch loads the wheel's library, which lies beside it; programs of other kinds the first on the search path."""
    for folder in _site_packages(interpreter, root):
        for name in sorted(entries(folder), reverse=True):
            found = re.match(r"nvidia_nccl_cu\d+-(\d[\w.]*)\.dist-info$", name)
            if found:
                return found[1]
    system = (
        "usr/lib/x86_64-linux-gnu",
        "usr/lib/aarch64-linux-gnu",
        "usr/lib64",
        "usr/local/lib",
        "usr/local/nccl/lib",
        "opt/nccl/build/lib",
        "usr/local/cuda/lib64",
    )
    loaders = (*_library_path(environ, root), *_configured_path(root))
    for folder in (*loaders, *(os.path.join(root, name) for name in system)):
        found_names = [name for name in entries(folder) if re.match(r"libnccl\.so\.\d+\.\d", name)]
        if found_names:
            return max(found_names, key=lambda name: version_of(name[11:]))[11:]
    return ""


def _site_packages(interpreter: str, root: str) -> Iterator[str]:
    if not interpreter:
        return
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(interpreter)))
    for base in (prefix, "/usr/local") if prefix == "/usr" else (prefix,):
        library = os.path.join(root, base.lstrip("/"), "lib")
        for name in entries(library):
            if name.startswith("python3"):
                yield os.path.join(library, name, "site-packages")
                yield os.path.join(library, name, "dist-packages")


def _library_path(environ: Mapping[str, str], root: str) -> list[str]:
    folders = environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return [os.path.join(root, folder.lstrip("/")) for folder in folders if folder.startswith("/")]


def _configured_path(root: str) -> list[str]:
    """The loader's folders, as ``/etc/ld.so.conf.d`` names them; the EFA installer in images adds the plugin's."""
    base = os.path.join(root, "etc/ld.so.conf.d")
    texts = (read_text(os.path.join(base, name)) for name in sorted(entries(base)))
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return [os.path.join(root, line.lstrip("/")) for line in lines if line.startswith("/")]


def _ofed(root: str) -> str:
    for where in ("usr/bin/ofed_info", "etc/ofed_info"):
        found = re.search(rb"MLNX_OFED_LINUX-(\d[\d.-]*\d)", _start(os.path.join(root, where), 65536))
        if found:
            return found[1].decode()
    return ""


_LONGEST = 16 << 20
"""Bytes of a library that are searched: the plugin has under 3 MiB."""


def _start(path: str, most: int = _LONGEST) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError:
        return b""
