"""What torch's flight recorder wrote about a rank's collectives, read with care and with secrets hidden.

A record is a pickled dictionary of plain values: lists, texts and numbers. Source: torch 2.13,
``torch/csrc/distributed/c10d/FlightRecorderDetail.hpp`` (``dump``). torch's own program ``torchfrtrace`` reads a folder
of such files, whose names end with the rank.
"""

from __future__ import annotations

import io
import json
import pickle
from typing import Any, Callable

MOST_BYTES = 32 << 20
"""Of a record: 2,000 collectives with their stacks take 1 to 8 MiB."""
DEFAULT_GROUP = "default_pg"
"""How torch calls the group of all ranks."""
MOST_KEPT = 4 << 20
"""Of what is made of it: the oldest collectives are left out."""


class _PlainValues(pickle.Unpickler):
    """Refuses everything but plain values: a pickle can otherwise run any program."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a flight record has no {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("a flight record refers to nothing")


def last_collective(record: bytes) -> str:
    """The last collective of a rank, for people: ``gloo:all_reduce, number 3 of default_pg, of [[4]]: not completed``.

    Empty where the record has none, or is none.
    """
    try:
        last = _read(record)["entries"][-1]
        name, group = last["profiling_name"], last["process_group"][1] or last["process_group"][0]
        number = last["p2p_seq_id"] if last.get("is_p2p") else last["collective_seq_id"]
        sizes = f", of {last['input_sizes']}" if last.get("input_sizes") else ""
        done = "completed" if last.get("retired") or last.get("state") == "completed" else "not completed"
        return f"{name}, number {number} of {group}{sizes}: {done}"
    except (ValueError, LookupError, TypeError):
        return ""


def waits_in(record: bytes) -> int:
    """The number of the collective of all ranks that a rank waits in; 0: none, or not known."""
    try:
        last = _read(record)["entries"][-1]
        of_all = last["process_group"][1] == DEFAULT_GROUP and not last["is_p2p"]
        waits = of_all and not last["retired"] and last["state"] != "completed"
        return int(last["collective_seq_id"]) if waits else 0
    except (ValueError, LookupError, TypeError):
        return 0


def _read(record: bytes) -> dict[str, Any]:
    """The record's values; ValueError: it is none."""
    if len(record) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    try:
        found = _PlainValues(io.BytesIO(record)).load()
    except Exception as error:  # pickle raises nearly anything
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("entries"), list):
        raise ValueError("it has no entries")
    return found


def masked(record: bytes, mask: Callable[[str], str]) -> bytes:
    """The record with secrets hidden, as torch's programs read it.

    Raises:
        ValueError: it is none.
    """
    found = _read(record)
    try:
        found = json.loads(mask(json.dumps(found, ensure_ascii=False)))
        while len(kept := pickle.dumps(found, protocol=2)) > MOST_KEPT and found["entries"]:
            found["entries"] = found["entries"][(len(found["entries"]) + 1) // 2 :]
        return kept
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
