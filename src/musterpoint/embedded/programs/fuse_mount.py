"""Mounts a place of a store, by fsspec's FUSE: a file is read when the job reads it. The mount ends with our stdin.

Runs in a Python that may not have musterpoint.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from musterpoint.embedded.programs.crowd import emit
from musterpoint.embedded.programs.stores import Lacks, StoreError, brief

_MNT_DETACH = 2


def main(request: dict[str, Any]) -> int:
    """``request``: uri, path (of the mount, a directory), access: region and endpoint of S3."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        mount(request["uri"], request["path"], request["access"])
    except Lacks as error:
        emit(lacks=str(error))
    except (StoreError, OSError, RuntimeError) as error:
        emit(error=brief(error))
    unmount(request["path"])
    os._exit(1)


def mount(uri: str, path: str, access: dict[str, Any]) -> None:
    """Returns when the mount has ended.

    Raises:
        Lacks: this Python has no fsspec for ``uri``, or no FUSE.
        StoreError: there is nothing at ``uri``.
    """
    try:
        core = importlib.import_module("fsspec.core")
        files, root = core.url_to_fs(uri, **_options(uri, access))
        fuse, operations = importlib.import_module("fuse"), importlib.import_module("fsspec.fuse").FUSEr
    except ImportError as error:
        raise Lacks({"fuse": "fusepy"}.get(error.name or "", error.name or brief(error))) from None
    except OSError as error:  # fusepy finds no library
        raise Lacks(f"libfuse: {brief(error)}") from None
    except ValueError as error:
        raise StoreError(f"{uri}: {brief(error)}") from None
    try:
        found = files.info(root)
    except FileNotFoundError:
        raise StoreError(f"there is nothing at {uri}: expected files below it", missing=True) from None
    if found["type"] == "file":
        raise StoreError(f"{uri} is one file: expected a place with files below it")

    class Mounted(operations):  # type: ignore[misc, valid-type]
        def init(self, path: str) -> None:
            emit(done={"mounted": True})

    unmount(path)  # that of a host that was killed
    os.makedirs(path, exist_ok=True)
    if os.listdir(path):
        raise StoreError(f"{path} isn't empty: the mount would hide what is in it")
    threading.Thread(target=_end_with_stdin, args=(path,), daemon=True).start()
    fuse.FUSE(Mounted(files, root), path, nothreads=True, foreground=True, ro=True)


def _options(uri: str, access: dict[str, Any]) -> dict[str, Any]:
    if not uri.startswith("s3://"):
        return {}
    named = {"endpoint_url": access["endpoint"], "client_kwargs": {"region_name": access["region"]}}
    return {key: value for key, value in named.items() if value and value != {"region_name": ""}}


def _end_with_stdin(path: str) -> None:
    while sys.stdin.readline():
        pass
    unmount(path)
    os._exit(0)


def unmount(path: str) -> None:
    """Ends a mount at ``path``, where there is one; whoever still reads it has errors then."""
    if not _is_mount(path):
        return
    if ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(path), _MNT_DETACH):
        for name in ("fusermount3", "fusermount"):  # for users other than root
            with contextlib.suppress(OSError):
                subprocess.run([name, "-uz", path], check=False, stdin=subprocess.DEVNULL)
                return


def _is_mount(path: str) -> bool:
    try:
        return os.path.ismount(path)
    except OSError as error:
        return error.errno == errno.ENOTCONN
