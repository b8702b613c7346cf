"""The modules :mod:`.gpt2` and so on, whose functions translate state dicts of the library's own transformers.

Those transformers aren't there yet: a model of the library transformers keeps its own keys, and nothing is translated.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ... import unsupported

FAMILIES = ("gpt2", "gptj", "gptneo", "gptneox", "bert", "roberta", "t5")


class _Family(ModuleType):
    """Has every function ``translate_…``; they refuse to be called."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("translate_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        instead = "without tensor parallelism the model's state dict has the keys of transformers already"
        return unsupported.function(f"smp.nn.huggingface.{self.__name__.rpartition('.')[2]}.{name}", instead)


for _name in FAMILIES:
    _module = _Family(f"{__name__}.{_name}")
    sys.modules[_module.__name__] = _module
    globals()[_name] = _module
