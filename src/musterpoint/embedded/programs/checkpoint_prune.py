"""The rules by which older checkpoints at a place are deleted. Nothing is read or deleted here."""

from __future__ import annotations

from typing import Mapping, NamedTuple

from musterpoint.embedded.programs.checkpoint_manifest import Manifest


class Superseded(NamedTuple):
    """Checkpoints that newer ones have made needless.

    ``manifests``: by their numbers; they go first. ``keys``: of the files that only these manifests name.
    """

    manifests: tuple[int, ...]
    keys: tuple[str, ...]


def superseded(manifests: Mapping[int, Manifest | None], keep: int, job: str) -> Superseded:
    """Chooses the checkpoints of ``job`` beyond the ``keep`` newest; at least one stays.

    ``manifests``: of the place by their numbers, the newest first; None: it can't be read, and stays. One that differs
    from a newer one by links alone counts as the same checkpoint.
    """
    kept, newer = set[int](), frozenset[str]()
    for number, manifest in manifests.items():
        keys = newer if manifest is None else frozenset(entry.key for entry in manifest.files if not entry.link)
        if keys != newer and len(kept) < max(1, keep):
            kept.add(number)
        newer = keys
    gone = {
        number: manifest
        for number, manifest in manifests.items()
        if manifest is not None and number not in kept and manifest.job == job
    }
    stay = (manifest for number, manifest in manifests.items() if manifest is not None and number not in gone)
    named = {entry.key for manifest in stay for entry in manifest.files}
    only = {entry.key for manifest in gone.values() for entry in manifest.files if not entry.link} - named
    return Superseded(tuple(gone), tuple(sorted(only)))
