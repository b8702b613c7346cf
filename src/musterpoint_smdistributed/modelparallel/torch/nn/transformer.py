"""Transformer layers whose weights are divided over the ranks.

What they compute are the reference implementations of ``DistributedTransformer`` and its parts in AWS's documentation
("PyTorch API for Tensor Parallelism", appendix). Names of parameters are those of the references.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, cast

import torch
from torch import nn
from torch.nn import functional

from . import layouts
from .attention import DistributedAttentionLayer
from .base import DistributedModule, must_divide, refuse_unknown
from .layers import ColumnLinear, Dropout, InnerLayerNorm, RowLinear
from .layouts import Enter, Entered, Layout, Leave

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": functional.gelu,
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu_new": lambda inputs: functional.gelu(inputs, approximate="tanh"),
    "gelu_pytorch_tanh": lambda inputs: functional.gelu(inputs, approximate="tanh"),
}
"""``gelu`` and ``relu`` are AWS's; the others are what transformers calls them."""


class DistributedTransformerOutputLayer(DistributedModule):
    """Two linear layers with an activation between them, dropout, residual and layer normalization.

    Args:
        hidden_size, intermediate_size: of all ranks together.
        activation: ``gelu`` or ``relu``; also ``gelu_new``, ``gelu_pytorch_tanh``, ``silu``.
        residual: as in :class:`.DistributedAttentionLayer`.
        fp32_residual_addition: add the residual in single precision, where the model has less.

    Raises:
        ValueError: the tensor-parallel degree doesn't divide ``intermediate_size``, or the activation is unknown.
    """

    def __init__(
        self,
        hidden_size: int = 1024,
        intermediate_size: int = 4096,
        hidden_dropout_prob: float = 0.1,
        activation: str = "gelu",
        layernorm_epsilon: float = 1e-5,
        initializer_range: float = 0.02,
        use_normal_initialization: bool = False,
        pre_layernorm: bool = False,
        post_layernorm: bool = True,
        fp32_residual_addition: bool = False,
        residual: bool | None = None,
        **hints: Any,
    ) -> None:
        refuse_unknown("DistributedTransformerOutputLayer", hints)
        must_divide("DistributedTransformerOutputLayer", intermediate_size=intermediate_size)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation={activation!r}: expected {' or '.join(ACTIVATIONS)}")
        super().__init__()
        std = initializer_range if use_normal_initialization else None
        self.activation = activation
        self.residual = post_layernorm if residual is None else residual
        self.fp32_residual_addition = fp32_residual_addition
        self.dense1 = ColumnLinear(hidden_size, intermediate_size, True, std)
        self.dense2 = RowLinear(intermediate_size, hidden_size, True, std)
        self.dropout = Dropout(hidden_dropout_prob)
        self.pre_layernorm = InnerLayerNorm(hidden_size, layernorm_epsilon) if pre_layernorm else None
        self.layernorm = InnerLayerNorm(hidden_size, layernorm_epsilon) if post_layernorm else None

    def forward(self, inp: torch.Tensor, layout: Layout | None = None) -> torch.Tensor:
        """Hidden states (batch, sequence, hidden_size) to hidden states; in a transformer layer in its ``layout``."""
        if layout is not None:
            return self.within(inp, layout)
        layout = layouts.chosen(inp)
        return layouts.leave(self.within(layouts.enter(inp, layout), layout), layout)

    def within(self, hidden: torch.Tensor, layout: Layout) -> torch.Tensor:
        """The same in a layout."""
        states = hidden if self.pre_layernorm is None else self.pre_layernorm(hidden, layout)
        output = self.computed(states, layout)
        if self.residual:
            output = self._sum(output, hidden)
        return output if self.layernorm is None else self.layernorm(output, layout)

    def computed(self, states: torch.Tensor, layout: Layout) -> torch.Tensor:
        """Without residual and normalization."""
        between = ACTIVATIONS[self.activation](self.dense1(layouts.gathered(states, layout)))
        return cast(torch.Tensor, self.dropout(self.dense2(between, layout), layout))

    def _sum(self, output: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        if self.fp32_residual_addition and output.dtype in (torch.float16, torch.bfloat16):
            return (output.float() + hidden.float()).to(output.dtype)
        return output + hidden


class DistributedTransformerLayer(DistributedModule):
    """Attention, perhaps cross-attention, and an output layer.

    Args:
        parallel_attn_output: attention and output layer have the same input, and their results are added (GPT-J,
            GPT-NeoX); ``single_pre_layernorm``: and one normalization of it.

    The others are those of :class:`.DistributedAttentionLayer` and :class:`DistributedTransformerOutputLayer`.
    """

    def __init__(
        self,
        num_attention_heads: int = 32,
        attention_head_size: int | None = None,
        hidden_size: int = 1024,
        intermediate_size: int = 4096,
        attention_dropout_prob: float = 0.1,
        hidden_dropout_prob: float = 0.1,
        activation: str = "gelu",
        layernorm_epsilon: float = 1e-5,
        initializer_range: float = 0.02,
        use_normal_initialization: bool = False,
        causal_mask_size: int | None = None,
        add_cross_attention: bool = False,
        pre_layernorm: bool = False,
        post_layernorm: bool = True,
        parallel_attn_output: bool = False,
        single_pre_layernorm: bool = False,
        **more: Any,
    ) -> None:
        refuse_unknown("DistributedTransformerLayer", more)
        super().__init__()
        self.add_cross_attention, self.parallel = add_cross_attention, parallel_attn_output
        given: dict[str, Any] = {
            "num_attention_heads": num_attention_heads,
            "attention_head_size": attention_head_size,
            "hidden_size": hidden_size,
            "intermediate_size": intermediate_size,
            "attention_dropout_prob": attention_dropout_prob,
            "hidden_dropout_prob": hidden_dropout_prob,
            "activation": activation,
            "layernorm_epsilon": layernorm_epsilon,
            "initializer_range": initializer_range,
            "use_normal_initialization": use_normal_initialization,
            "causal_mask_size": causal_mask_size,
            "pre_layernorm": pre_layernorm,
            "post_layernorm": post_layernorm,
            **more,
        }
        self.attention = DistributedAttentionLayer(**given)
        normalized = pre_layernorm and not (parallel_attn_output and single_pre_layernorm)
        self.output = DistributedTransformerOutputLayer(**{**given, "pre_layernorm": normalized})
        if add_cross_attention:
            self.cross_attention = DistributedAttentionLayer(cross_attention=True, **given)
        self.enter = Enter()

    def forward(self, inp: Any) -> Any:
        """``(hidden_states, attention_mask)``, with cross-attention ``(hidden_states, cross_states, attention_mask,
        cross_mask)``, to the same tuple with new hidden states."""
        if isinstance(inp, Entered):
            return inp._replace(hidden=self.within(inp))
        entered = self.enter(*arguments(inp, self.add_cross_attention))
        return (layouts.leave(self.within(entered), entered.layout), *inp[1:])

    def within(self, entered: Entered) -> torch.Tensor:
        """The new hidden states in a layout."""
        if self.parallel:
            return self._side_by_side(entered)
        hidden = self.attention(entered)
        if self.add_cross_attention:
            hidden = self.cross_attention(entered._replace(hidden=hidden))
        return cast(torch.Tensor, self.output(hidden, entered.layout))

    def _side_by_side(self, entered: Entered) -> torch.Tensor:
        hidden, layout = entered.hidden, entered.layout
        states = self.attention.normalized(hidden, layout)
        of_attention = self.attention.computed(states, entered)
        norm = self.output.pre_layernorm
        of_output = self.output.computed(states if norm is None else norm(hidden, layout), layout)
        return hidden + of_attention + of_output


class DistributedTransformer(DistributedModule):
    """``num_layers`` of :class:`DistributedTransformerLayer`, as ``seq_layers``; takes and gives what they do.

    With both ``pre_layernorm`` and ``post_layernorm`` each layer normalizes its inputs and its outputs. ``window_size``
    may be a list, with a number or None for each layer. Raises ValueError: that list has another length than
    ``num_layers``.
    """

    def __init__(self, num_layers: int = 12, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        named = {**dict(zip(inspect.signature(DistributedTransformerLayer).parameters, args)), **kwargs}
        by_layer = named.pop("scale_attn_by_layer_idx", False)
        windows = named.pop("window_size", None)
        if not isinstance(windows, (list, tuple)):
            windows = [windows] * num_layers
        if len(windows) != num_layers:
            raise ValueError(f"window_size={windows!r:.80}: expected one for each of num_layers={num_layers}")
        self.add_cross_attention = bool(named.get("add_cross_attention"))
        self.seq_layers = nn.Sequential()
        for index, window in enumerate(windows):
            own = {"scale_attn_by_layer_idx": by_layer, "layer_idx": index, "window_size": window}
            self.seq_layers.append(DistributedTransformerLayer(**named, **own))
        self.enter, self.leave = Enter(), Leave()

    def forward(self, inp: Any) -> Any:
        """As :meth:`DistributedTransformerLayer.forward`."""
        inside = self.seq_layers(self.enter(*arguments(inp, self.add_cross_attention)))
        return (self.leave(inside), *inp[1:])


def arguments(inp: Any, crossed: bool) -> tuple[Any, ...]:
    """Hidden states, mask, cross states and cross mask out of the tuple that layers take."""
    if crossed:
        hidden, cross, mask, cross_mask = inp
        return hidden, mask, cross, cross_mask
    hidden, mask = inp
    return hidden, mask
