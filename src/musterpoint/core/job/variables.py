"""Which of a platform's variables a job is read from, for ``muster plan``."""

from __future__ import annotations

from typing import ItemsView, Iterator, Mapping

from musterpoint.core.job.platform import Platform

_ANY = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "NNODES",
    "NUM_NODES",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TF_CONFIG",
    "RAY_ADDRESS",
)
"""Any platform's."""


class Watched(Mapping[str, str]):
    """Variables, and the names of those that are looked up (:attr:`seen`); going through all of them looks up none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> str:
        if name in self._environ:
            self.seen.add(name)
        return self._environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)

    def __contains__(self, name: object) -> bool:
        return name in self._environ

    def items(self) -> ItemsView[str, str]:
        return self._environ.items()


def of_platform(platform: Platform, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the platform's variables in ``environ``."""
    starts = platform.variables
    return tuple(name for name, text in sorted(environ.items()) if text and (name in _ANY or name.startswith(starts)))
