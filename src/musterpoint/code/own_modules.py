"""Our own modules, kept in memory while an installer works on the Python we run in.

A requirement may replace or remove musterpoint itself, and much of it is imported only when it is needed.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from typing import Any

import musterpoint


class OwnModules(SourceLoader):
    """Finds and loads the modules of the package as they were when this was made."""

    def __init__(self) -> None:
        self._folder = os.path.dirname(os.path.abspath(musterpoint.__file__))
        self._texts: dict[str, bytes] = {}
        for folder, _, names in os.walk(self._folder):
            for name in names:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    try:
                        with open(path, "rb") as file:
                            self._texts[path] = file.read()
                    except OSError:
                        pass  # an editor's lock, or gone since

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        """What ``sys.meta_path`` asks."""
        file = self._file(name)
        inside = [os.path.dirname(file)] if file.endswith("__init__.py") else None
        return spec_from_file_location(name, file, loader=self, submodule_search_locations=inside) if file else None

    def get_filename(self, fullname: str) -> str:
        file = self._file(fullname)
        if not file:
            raise ImportError(f"{fullname} was no module of musterpoint", name=fullname)
        return file

    def _file(self, name: str) -> str:
        path = os.path.join(os.path.dirname(self._folder), *name.split("."))
        files = (os.path.join(path, "__init__.py"), path + ".py")
        return next((file for file in files if file in self._texts), "")

    def get_data(self, path: str) -> bytes:
        if path not in self._texts:
            raise OSError(f"{path} was no module of musterpoint")
        return self._texts[path]


def keep() -> None:
    """From now on the package is what it is now, whatever becomes of its files; once is enough for a process."""
    in_files = os.path.isfile(musterpoint.__file__)  # the one-file launcher is an archive, which no installer knows
    if not in_files or any(isinstance(finder, OwnModules) for finder in sys.meta_path):
        return
    kept = OwnModules()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "musterpoint" and module.__spec__ is not None:
            module.__spec__.loader = kept  # the text of a module is asked of it
    sys.meta_path.insert(0, kept)
