"""Fields of a request that have no effect here: each is said, also one that a newer botocore brings."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

Texts = Mapping[str, str]
NOT_ENCRYPTED = "nothing is encrypted"
NOTHING_LEAVES = "nothing leaves this machine, and nothing is encrypted"
OWN_NETWORK = "the job has this machine's network"
NO_EXPERIMENT = "no experiment or trial is kept"


def without_effect(request: Mapping[str, Any], followed: Texts, texts: Texts) -> list[str]:
    """A sentence for each such field.

    ``followed``: the names of fields that are followed, or passed on, with all that is in them, by the path of what
    they are in. ``texts``: why others have no effect, by their paths, such as ``ResourceConfig.TrainingPlanArn``.
    """
    silent = {f"{above}.{name}".lstrip(".") for above, names in followed.items() for name in names.split()}
    return list(dict.fromkeys(_said(request, {**texts, **dict.fromkeys(silent, "")}, "")))


def _said(value: Any, texts: Texts, path: str) -> Iterator[str]:
    if value in (None, False, "", "Off", {}, []):
        return
    if path in texts:
        if texts[path]:
            yield f"{path}: {texts[path]}"
    elif isinstance(value, list):
        for each in value:
            yield from _said(each, texts, path)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _said(each, texts, f"{path}.{name}".lstrip("."))
    else:
        yield f"{path}: muster serve doesn't know it, so it has no effect"
