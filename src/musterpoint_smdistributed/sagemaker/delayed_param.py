"""Models whose parameters get their memory and values only when they are sharded."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

import torch
from torch import nn

from .errors import SMPUnsupportedError
from .logger import get_logger
from .tensor_parallel.dividing import on_tensor_ranks, shared_out_as
from .utils.module_utils import empty_module_params, move_buffers_to_device

Init = Callable[[nn.Module], Any]


class DelayedParamIniter:
    """Initializes a model that was made on the meta device, module by module.

    How, without ``init_method_using_config``: as transformers' models do (``_init_weights``), else by each module's
    own ``reset_parameters``, as when it was made.

    Args:
        model: the whole model.
        init_method_using_config: called with each module that has parameters of its own, to give them memory and
            values.
        verbose: logs each module.
    """

    def __init__(self, model: nn.Module, init_method_using_config: Init | None = None, verbose: bool = False) -> None:
        self.model, self._given, self._verbose = model, init_method_using_config, verbose
        self._expected = {id(each) for each in model.parameters() if each.is_meta}
        self._names = {module: name for name, module in model.named_modules()}
        self.initialized = 0

    def get_param_init_fn(self) -> Init:
        """What FullyShardedDataParallel takes as ``param_init_fn``; ``model.apply`` takes it as well."""
        return self._initialize

    def get_post_param_init_fn(self) -> Init:
        """What FullyShardedDataParallel takes as ``post_param_init_fn``: weights that modules share are one again."""

        def tie(module: nn.Module) -> None:
            tied = getattr(self.model, "tie_weights", None)
            if tied is not None:
                tied()

        return tie

    def count_num_params(self, module: nn.Module, *args: nn.Parameter) -> int:
        """Notes how many parameters were initialized with ``module``; returns how many there are in all."""
        own = args or tuple(module.parameters(recurse=False))
        self.initialized += sum(id(each) in self._expected for each in own)
        return self.initialized

    @contextlib.contextmanager
    def validate_params_and_buffers_inited(self, enabled: bool = True) -> Iterator[None]:
        """Checks at its end that nothing is on the meta device any more.
        Raises AssertionError: something is, or fewer parameters were initialized than there are."""
        yield
        if not enabled:
            return
        left = [name for name, each in (*self.model.named_parameters(), *self.model.named_buffers()) if each.is_meta]
        if left:
            raise AssertionError(
                f"{len(left)} parameters or buffers are still on the meta device, {left[0]} first: pass "
                "init_method_using_config, which gives them their values"
            )
        if self.initialized < len(self._expected):
            raise AssertionError(f"{self.initialized} of {len(self._expected)} parameters were initialized")

    def _initialize(self, module: nn.Module) -> None:
        if not any(each.is_meta for each in (*module.parameters(recurse=False), *module.buffers(recurse=False))):
            return
        if self._verbose:
            get_logger().info("initializing %s", self._names.get(module, type(module).__name__))
        self.count_num_params(module)
        divided = {name: each for name, each in module.named_parameters(recurse=False) if on_tensor_ranks(each)}
        for name, each in divided.items():
            whole = torch.empty(each.shape, dtype=each.dtype, device="meta")
            module._parameters[name] = nn.Parameter(whole, requires_grad=each.requires_grad)
        self._give_values(module)
        for name, each in divided.items():
            module._parameters[name] = shared_out_as(each, getattr(module, name))

    def _give_values(self, module: nn.Module) -> None:
        if self._given is not None:
            self._given(module)
            return
        own = getattr(self.model, "_init_weights", None)
        reset = getattr(module, "reset_parameters", None)
        lost = [name for name, each in module.named_buffers(recurse=False) if each.is_meta]
        if not (callable(own) or callable(reset)) or (lost and not callable(reset)):
            raise SMPUnsupportedError(
                f"DelayedParamIniter: {self._names.get(module, '')} ({type(module).__name__}) has no reset_parameters, "
                f"so nobody knows the values of its {'buffers ' + ', '.join(lost) if lost else 'parameters'}: pass "
                "init_method_using_config"
            )
        device = _device()
        empty_module_params(module, device)
        if lost:
            module.to_empty(device=device, recurse=False)
        move_buffers_to_device(module, device)
        with torch.no_grad():
            if callable(reset) and (lost or not callable(own)):
                reset()
            if callable(own):
                own(module)


def on_meta(module: nn.Module) -> bool:
    """Whether there is something without memory in it."""
    return any(each.is_meta for each in (*module.parameters(), *module.buffers()))


def _device() -> torch.device:
    if torch.cuda.is_available() and torch.version.cuda:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
