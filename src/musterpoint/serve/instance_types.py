"""Counts of GPUs of SageMaker's instances, by their type.

Sources: SageMaker's price list and EC2's pages of accelerated instances, also of types that are no longer offered.
"""

from __future__ import annotations

from typing import Mapping

_USUAL = {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "16xlarge": 1, "12xlarge": 4, "24xlarge": 4}
_FAMILIES: Mapping[str, Mapping[str, int]] = {
    "p2": {"xlarge": 1, "8xlarge": 8, "16xlarge": 16},
    "p3": {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8},
    "p3dn": {"24xlarge": 8},
    "p4d": {"24xlarge": 8},
    "p4de": {"24xlarge": 8},
    "p5": {"4xlarge": 1, "48xlarge": 8},
    "p5e": {"48xlarge": 8},
    "p5en": {"48xlarge": 8},
    "p6-b200": {"48xlarge": 8},
    "p6-b300": {"48xlarge": 8},
    "p6e-gb200": {"36xlarge": 4},
    "g3": {"4xlarge": 1, "8xlarge": 2, "16xlarge": 4},
    "g3s": {"xlarge": 1},
    "g4ad": {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 2, "16xlarge": 4},
    "g4dn": {**_USUAL, "metal": 8},
    "g5": {**_USUAL, "48xlarge": 8},
    "g5g": {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "16xlarge": 2, "metal": 2},
    "g6": {**_USUAL, "48xlarge": 8},
    "g6e": {**_USUAL, "48xlarge": 8},
    "gr6": {"4xlarge": 1, "8xlarge": 1},
    "g7e": {"2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8},
}
_WITHOUT = ("a1", "c", "d", "h", "i", "inf", "local", "m", "r", "t", "trn", "u", "x", "z")
"""Begin the names of families without GPUs."""


def gpus_of(instance_type: str) -> int | None:
    """The GPUs of an instance of ``ml.FAMILY.SIZE``; None: nobody here knows the type."""
    family, _, size = instance_type.removeprefix("ml.").partition(".")
    if family in _FAMILIES:
        return _FAMILIES[family].get(size)
    return 0 if family.startswith(_WITHOUT) else None
