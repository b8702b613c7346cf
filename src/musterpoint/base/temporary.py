"""Where temporary files go, on hosts whose root file system may be read-only."""

import os
from typing import Mapping

PLACES = ("/tmp", "/var/tmp")
WHAT_TO_DO = "mount an emptyDir (Kubernetes) or `--tmpfs /tmp` (Docker) there, or set TMPDIR to a directory that can"


def place_of(environ: Mapping[str, str]) -> str:
    """The directory for temporary files: TMPDIR, /tmp or /var/tmp, the first that takes files; empty: none does."""
    asked = environ.get("TMPDIR", "")
    places = (asked, *PLACES) if os.path.isabs(asked) else PLACES
    return next((place for place in places if os.path.isdir(place) and _can_be_written(place)), "")


def _can_be_written(place: str) -> bool:
    """``os.access`` knows of read-only file systems, and of all that this user may not."""
    return os.access(place, os.W_OK | os.X_OK)


def missing(wanted_by: str, environ: Mapping[str, str]) -> str:
    """Why there is no temporary directory, which ``wanted_by`` needs, and what to do."""
    asked = environ.get("TMPDIR", "")
    places = " and ".join(dict.fromkeys(filter(None, (asked, "/tmp"))))
    return f"{wanted_by} needs a temporary directory, and {places} can't be written: {WHAT_TO_DO} be written"
