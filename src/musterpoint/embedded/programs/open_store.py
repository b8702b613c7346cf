"""The store of a URI. Runs in a Python that may not have musterpoint."""

from __future__ import annotations

from typing import Any

from musterpoint.embedded.programs.store_s3 import S3Store
from musterpoint.embedded.programs.stores import DirectoryStore, FsspecStore, Store


def open_store(uri: str, access: dict[str, Any]) -> Store:
    """The store at ``uri``. ``access``: ``region`` and ``endpoint`` of S3, both may be empty.

    Raises:
        Lacks: this Python has no library for it.
        StoreError: it can't be opened.
    """
    if uri.startswith("s3://"):
        return S3Store(uri, access)
    if "://" not in uri:
        return DirectoryStore(uri)
    return FsspecStore(uri)
