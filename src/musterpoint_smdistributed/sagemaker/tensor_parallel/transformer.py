"""The class that scripts name where they wrap a transformed model's layers, one by one.

Source: AWS's public training scripts for version 2 (aws/amazon-sagemaker-examples, model_parallel_v2, fsdp_utils.py),
which hand ``TransformerLayer`` to torch's wrapping policies, and ask by ``isinstance``.
"""

from __future__ import annotations

from typing import Any

from torch import nn

_LAYER = "_tsm_layer"


class _Layers(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, nn.Module) and _LAYER in vars(instance)


class TransformerLayer(metaclass=_Layers):
    """Every layer of a model that ``tsm.transform`` has returned: what stands in its outermost lists of modules.

    A transformed model keeps its own classes, so this one has no instances of its own.
    """


TETransformerLayer = TransformerLayer
"""The same, as scripts for torch 2.0 call it."""


def mark_layers(module: nn.Module) -> None:
    """Makes the layers of ``module`` instances of :class:`TransformerLayer`."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            for layer in child:
                vars(layer)[_LAYER] = True
        else:
            mark_layers(child)
