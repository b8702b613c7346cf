"""Where parameters of model parallelism come from: what the platform says about the job, its command line, the script.

Both versions of the library use this module, with PyTorch and with TensorFlow; it imports neither.

Facts: sagemaker-training's ``environment.py`` and ``mapping.py``, which write the variables and the command line.
"""

from __future__ import annotations

import ast
import json
import os
import re
from typing import Any, Mapping, NamedTuple, Sequence

from .parameters import OLDER, ParameterError, Table, checked, current_names

KEY = "mp_parameters"
"""The hyperparameter in which the SDK sends them."""
DEFAULT_BASE = "/opt/ml"


class Source(NamedTuple):
    """One place that has parameters, as messages name it."""

    name: str
    values: dict[str, Any]


class Given(NamedTuple):
    """A parameter's value, in its type, and the name of the source that it is from."""

    value: Any
    where: str


def read(
    environ: Mapping[str, str],
    argv: Sequence[str],
    given: Mapping[str, Any] | None,
    table: Table,
    init: str = "smp.init",
) -> dict[str, Given]:
    """The parameters that a source has, by today's names, also those that ``table`` doesn't know.

    The job's own sources count more than ``given``, the script's dict, which messages call ``init``. Raises
    ParameterError: a source can't be read, or a value is wrong.
    """
    found: dict[str, Given] = {}
    for source in _sources(environ, argv, given, init):
        new = {name: value for name, value in source.values.items() if OLDER.get(name, name) not in found}
        typed = {name: checked(name, value, source.name, table) for name, value in new.items()}
        for name, value in current_names(typed, table).items():
            if value is not None or name not in table:  # null: as if it weren't there
                found[name] = Given(value, source.name)
    return found


def _sources(
    environ: Mapping[str, str], argv: Sequence[str], given: Mapping[str, Any] | None, init: str
) -> tuple[Source, ...]:
    """Every source that has parameters; where two have the same one, the first counts."""
    found = [Source("SM_HP_MP_PARAMETERS", _parameters(environ.get("SM_HP_MP_PARAMETERS"), "SM_HP_MP_PARAMETERS"))]
    job = _object(environ.get("SM_HPS"), "SM_HPS")
    found.append(Source(f"{KEY} in SM_HPS", _parameters(job.get(KEY), f"{KEY} in SM_HPS")))
    environment = _object(environ.get("SM_TRAINING_ENV"), "SM_TRAINING_ENV")
    job = _object(environment.get("hyperparameters"), "hyperparameters in SM_TRAINING_ENV")
    found.append(Source(f"{KEY} in SM_TRAINING_ENV", _parameters(job.get(KEY), f"{KEY} in SM_TRAINING_ENV")))
    path = os.path.join(environ.get("SAGEMAKER_BASE_DIR") or DEFAULT_BASE, "input", "config", "hyperparameters.json")
    job = _object(_text_of(path), path)
    found.append(Source(f"{KEY} in {path}", _parameters(job.get(KEY), f"{KEY} in {path}")))
    # the command line's spelling loses nested values: where the job's own is there, nobody needs it whole
    lenient = any(source.values for source in found)
    found.append(Source(f"--{KEY}", _from_command_line(argv, lenient)))
    found.append(Source(init, dict(given or {})))
    return tuple(source for source in found if source.values)


def _text_of(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path} can't be read: {error}") from None


def _object(value: Any, where: str) -> dict[str, Any]:
    """A JSON object, or the text of one; empty where there is none."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ParameterError(f"{where}={value!r:.200}: expected a JSON object") from None
    if not isinstance(value, dict):
        raise ParameterError(f"{where}={value!r:.200}: expected a JSON object")
    return value


def _parameters(value: Any, where: str) -> dict[str, Any]:
    """The parameters of a JSON object, its text, its text within a text, or ``name=value,name=value``."""
    if isinstance(value, str) and value.lstrip().startswith('"'):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            pass
    if isinstance(value, str) and value.strip() == "null":
        return {}
    if isinstance(value, str) and value.strip() and not value.lstrip().startswith(("{", "[")):
        return _pairs(value, where, lenient=False)
    try:
        return _object(value, where)
    except ParameterError:
        raise ParameterError(
            f'{where}={value!r:.200}: expected a JSON object such as {{"partitions": 2, "microbatches": 4}}'
        ) from None


def _pairs(text: str, where: str, lenient: bool) -> dict[str, Any]:
    """``a=1,b=True``, as sagemaker-training spells an object on a command line: the values are Python's."""
    found: dict[str, Any] = {}
    for piece in re.split(r",\s*(?=\w+=)", text.strip().strip(",")):
        name, equals, value = piece.strip().partition("=")
        if name.isidentifier() and equals:
            try:
                found[name] = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                found[name] = value
        elif not lenient:
            raise ParameterError(f"{where} {text!r:.200}: {piece!r:.80} isn't name=value, such as microbatches=4")
    return found


def _from_command_line(argv: Sequence[str], lenient: bool) -> dict[str, Any]:
    flag = f"--{KEY}"
    found: dict[str, Any] = {}
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name != flag:
            continue
        if not equals:
            value = argv[place + 1] if place + 1 < len(argv) else ""
        if value.lstrip().startswith("{"):
            found.update(_parameters(value, flag))
        elif value.strip():
            found.update(_pairs(value, flag, lenient))
    return found
