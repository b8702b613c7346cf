"""XGBoost's tracker, in which its ranks find each other: ``xgboost_tracker.py ADDRESS PORT RANKS``.

Run by the user's Python on the leader as a program of its own, never imported by musterpoint. The tracker is XGBoost's
(2.1 or later), by its C API as in ``python-package/xgboost/tracker.py``: importing the Python package takes as long as
it takes the ranks, which warn of a tracker that doesn't listen yet and wait for seconds. A tracker serves one
communicator, so another one follows; the supervisor ends this program when every rank has ended.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
import time
from typing import Any

AGAIN_SECONDS = 0.05
"""Between tries, while the port is still in use."""
MOST_TRIES = 200
BY_TASK = 1
"""``sortby="task"``: ranks in the order of their DMLC_TASK_ID."""


class Failed(Exception):
    """XGBoost's own words."""


def main() -> None:
    address, port, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    try:
        library = load()
    except (OSError, ImportError, AttributeError) as error:
        sys.exit(f"XGBoost's tracker can't start: {sys.executable} has no XGBoost 2.1 or later that works ({error})")
    tries = 0
    while tries < MOST_TRIES:
        try:
            serve(library, address, port, ranks)
            tries = 0
        except Failed as error:
            tries += 1
            said = str(error)
            time.sleep(AGAIN_SECONDS)
    sys.exit(f"XGBoost's tracker can't listen on {address}:{port}: {said}")


def load() -> Any:
    """XGBoost's library, found as the package itself finds it, with a tracker in it.

    Raises:
        OSError, ImportError, AttributeError: there is none.
    """
    package = importlib.util.find_spec("xgboost")
    if package is None or not package.submodule_search_locations:
        raise ImportError("no module xgboost")
    place = os.path.join(next(iter(package.submodule_search_locations)), "libpath.py")
    spec = importlib.util.spec_from_file_location("xgboost_libpath", place)
    if spec is None or spec.loader is None:
        raise ImportError(f"no {place}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    library = ctypes.CDLL(module.find_lib_path()[0])
    library.XGBGetLastError.restype = ctypes.c_char_p
    library.XGTrackerCreate, library.XGTrackerRun, library.XGTrackerWaitFor, library.XGTrackerFree  # noqa: B018
    return library


def serve(library: Any, address: str, port: int, ranks: int) -> None:
    """Runs one tracker to its end.

    Raises:
        Failed: it can't listen. How it ends says nothing: it also ends well when a rank has failed.
    """
    handle = ctypes.c_void_p()
    options = {
        "host": address,
        "n_workers": ranks,
        "port": port,
        "dmlc_communicator": "rabit",
        "sortby": BY_TASK,
        "timeout": 0,
    }
    check_status(library, library.XGTrackerCreate(json.dumps(options).encode(), ctypes.byref(handle)))
    try:
        check_status(library, library.XGTrackerRun(handle, b"{}"))
        library.XGTrackerWaitFor(handle, b'{"timeout": null}')
    finally:
        library.XGTrackerFree(handle)


def check_status(library: Any, status: int) -> None:
    if status:
        raise Failed(library.XGBGetLastError().decode(errors="replace").strip())


if __name__ == "__main__":
    main()
