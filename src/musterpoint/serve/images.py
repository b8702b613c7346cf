"""Which image of this machine stands for a TrainingImage."""

from __future__ import annotations

from musterpoint.serve.settings import Settings


def local_image(settings: Settings, uri: str) -> str:
    """The image that ``--image`` names for ``uri``: as it is, without its tag, or by the name of its repository."""
    repository = uri.rpartition("/")[2]
    for name in (uri, uri.partition("@")[0], _untagged(uri), repository, _untagged(repository)):
        if name in settings.images:
            return settings.images[name]
    return uri


def _untagged(uri: str) -> str:
    head, colon, tag = uri.rpartition(":")
    return head if colon and "/" not in tag else uri
