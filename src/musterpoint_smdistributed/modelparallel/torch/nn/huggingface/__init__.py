"""The modules :mod:`.gpt2` and so on, whose functions translate state dicts of the library's own transformers.

``translate_hf_state_dict_to_smdistributed_gpt2(state_dict)`` and
``translate_state_dict_to_hf_gpt2(state_dict, max_seq_len=None)``; the same for the other families that
:mod:`.translation` has tables for. The state dict of a wrapped model has transformers' own keys already, and leaves
these functions as it came; so it does where no module of smp.nn takes the place of transformers' own.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from ....backend.exceptions import SMPUnsupportedError
from . import translation

FAMILIES = ("gpt2", "gptj", "gptneo", "gptneox", "bert", "roberta", "t5")


class _Family(ModuleType):
    """Has every function ``translate_…``; those of families without a table refuse to be called."""

    def __getattr__(self, name: str) -> Any:
        family = self.__name__.rpartition(".")[2]
        if family in translation.TABLES and name == f"translate_hf_state_dict_to_smdistributed_{family}":
            return functools.partial(translation.to_ours, family)
        if family in translation.TABLES and name == f"translate_state_dict_to_hf_{family}":
            return functools.partial(translation.to_theirs, family)
        if not name.startswith("translate_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return functools.partial(_refuse, f"smp.nn.huggingface.{family}.{name}")


def _refuse(name: str, *args: Any, **kwargs: Any) -> Any:
    raise SMPUnsupportedError(
        f"{name}: musterpoint's smdistributed.modelparallel doesn't have it yet; smp.nn has transformers for "
        f"{', '.join(translation.TABLES)}. Under smp.tensor_parallelism the linear layers of other models are "
        "distributed one by one, and their state dicts have transformers' keys already"
    )


for _name in FAMILIES:
    _module = _Family(f"{__name__}.{_name}")
    sys.modules[_module.__name__] = _module
    globals()[_name] = _module
