"""Hyperparameters: decodes the platform's strings and makes the user's arguments of them.

Senders encode them in different ways (SDK v2: JSON; SDK v3: strings raw, the rest JSON; tuners: Python's ``str``). So
a value is its text decoded as JSON, or the text itself where that fails. Both forms are kept.
"""

from __future__ import annotations

import json
from typing import Any, Iterable, Literal, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.executables import LONGEST_WORD, size_of
from musterpoint.base.untrusted import checked
from musterpoint.core.job.fields import mapping, shown
from musterpoint.core.job.model import Hyperparameter

HIDDEN_PREFIX = "sagemaker_"
TUNING_METRIC = "_tuning_objective_metric"
MODEL_DIR = "model_dir"
Style = Literal["sagemaker", "json"]
"""How values are spelled as arguments: see :func:`to_arguments`."""


def hidden(name: str) -> bool:
    """Whether a hyperparameter is the platform's and not an argument of the user's program."""
    return name.startswith(HIDDEN_PREFIX) or name == TUNING_METRIC


def decode(config: Any, where: str) -> tuple[Hyperparameter, ...]:
    """The content of ``hyperparameters.json`` in file order. Values that aren't strings are taken as they are.

    Raises:
        UsageError: ``config`` isn't an object.
    """
    return tuple(_decode_one(name, value) for name, value in mapping(config, where).items())


def _decode_one(name: str, value: Any) -> Hyperparameter:
    return Hyperparameter(name, value, _decoded(value)) if isinstance(value, str) else from_value(name, value)


def _decoded(text: str) -> Any:
    try:
        return checked(json.loads(text), numbers=False)
    except (ValueError, RecursionError):
        return text


def from_value(name: str, value: Any) -> Hyperparameter:
    """A hyperparameter whose value is already decoded (from ``SM_HPS``)."""
    return Hyperparameter(name, value if isinstance(value, str) else json.dumps(value), value)


def values(hyperparameters: Iterable[Hyperparameter]) -> dict[str, Any]:
    """Decoded values by name, in file order."""
    return {entry.name: entry.value for entry in hyperparameters}


def text_value(hyperparameters: Iterable[Hyperparameter], name: str) -> str:
    """The text of a hyperparameter that is a name or a path, sent in quotes (SDK v2) or raw (SDK v3). Empty if missing.

    Raises:
        UsageError: it is longer than any name or path can be.
    """
    for entry in hyperparameters:
        if entry.name == name and entry.value is not None:
            found = entry.value if isinstance(entry.value, str) else entry.raw
            if size_of(found) > LONGEST_WORD:
                raise UsageError(_too_long(f"the hyperparameter {name}", found))
            return found
    return ""


def _too_long(what: str, word: str) -> str:
    length = f"{size_of(word):,} bytes long"
    return f"{what} is {length}, expected at most {LONGEST_WORD:,}, the longest argument there can be"


def to_arguments(
    hyperparameters: Iterable[Hyperparameter], style: Style = "sagemaker", everything: bool = False
) -> tuple[str, ...]:
    """The user's arguments, in file order. Hidden names are left out unless ``everything`` is true.

    ``style`` ``sagemaker`` spells values as sagemaker-training does: ``True``, an empty word for null, ``k=v,k=v``
    for an object, Python's ``str`` for all else; a one-letter name gets one dash. ``json`` is the spelling of SDK v3's
    drivers: two dashes before every name, strings as they are, everything else as JSON text
    (``container_drivers/common/utils.py``, read at 1.27.0).

    Raises:
        UsageError: a name or value can't be an argument (a NUL, half of a surrogate pair, too long).
    """
    option, spell = (_long_option, _json_text) if style == "json" else (_option, _sagemaker_text)
    words: list[str] = []
    for entry in hyperparameters:
        if hidden(entry.name) and not everything:
            continue
        try:
            pair = (option(entry.name), spell(entry.value))
        except RecursionError:
            raise _not_an_argument(entry, "it is nested too deeply") from None
        if not (passable(pair[0]) and passable(pair[1])):
            raise _not_an_argument(entry, "a NUL or half of a surrogate pair is in it")
        for word in pair:
            if size_of(word) > LONGEST_WORD:
                text = _too_long(f"the hyperparameter {shown(entry.name)}", word)
                raise UsageError(f"{text}: send it as a file of an input channel")
        words += pair
    return tuple(words)


def _not_an_argument(entry: Hyperparameter, why: str) -> UsageError:
    return UsageError(
        f"the hyperparameter {shown(entry.name)} = {shown(entry.value)} can't be an argument: {why}; "
        "send it encoded, or as a file of an input channel"
    )


def passable(word: str) -> bool:
    """Whether ``word`` can be an argument or a variable's value."""
    if "\0" in word:
        return False
    try:
        word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _option(name: str) -> str:
    return f"--{name}" if len(name) > 1 else f"-{name}" if name else ""


def _long_option(name: str) -> str:
    return f"--{name}"


def _sagemaker_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={inner}" for key, inner in sorted(value.items()))
    return "" if value is None else str(value)


def _json_text(value: Any) -> str:
    """The drivers decode twice (into ``SM_HPS``, and out of it), so a number in quotes becomes a number."""
    if isinstance(value, str):
        value = _decoded(value)
    return value if isinstance(value, str) else json.dumps(value)


def with_own_model_dir(
    hyperparameters: tuple[Hyperparameter, ...], job: str, environ: Mapping[str, str]
) -> tuple[Hyperparameter, ...]:
    """``hyperparameters`` with a ``model_dir`` of this job's own, as the TensorFlow toolkit sets it.

    All jobs of a tuning job are sent the same ``model_dir``; each uses a directory in it named after the job, ``job``.
    """
    place = text_value(hyperparameters, MODEL_DIR)
    tuned = any(entry.name == TUNING_METRIC for entry in hyperparameters)
    if not (tuned and place) or place.startswith("/opt/ml") or not _is_tensorflow(hyperparameters, place, environ):
        return hyperparameters
    own = from_value(MODEL_DIR, f"{place}/{job}/model")
    return tuple(own if entry.name == MODEL_DIR else entry for entry in hyperparameters)


def _is_tensorflow(hyperparameters: tuple[Hyperparameter, ...], place: str, environ: Mapping[str, str]) -> bool:
    """Whether a TensorFlow estimator sent ``model_dir``. With any other, the user set it, and it stays as it is."""
    sent_for = text_value(hyperparameters, "sagemaker_job_name")
    return (
        "tensorflow" in environ.get("SAGEMAKER_TRAINING_MODULE", "")
        or text_value(hyperparameters, "sagemaker_estimator_class_name") == "TensorFlow"
        or bool(sent_for and place.endswith(f"/{sent_for}/model"))
    )
