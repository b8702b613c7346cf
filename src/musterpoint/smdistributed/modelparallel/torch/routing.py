"""Where the modules of a divided model run when somebody calls them.

Every rank has all modules. One whose parameters are all on this rank runs as it is. One whose parameters are on another
rank is called there. What spans several ranks runs as a chain of stages if it can be traced (:mod:`.stages`); else it
runs on the rank that has its own parameters, and calls its children one by one.
"""

from __future__ import annotations

import functools
import itertools
import sys
from typing import Any, Callable, Mapping, Sequence

import torch
from torch import nn

from . import absent
from .errors import SMPStepError
from .messages import Link
from .packing import Names
from .scheduler import current
from .server import Routing, Server

ANYWHERE = -1
"""The place of a module without parameters and buffers: it runs where it is called."""
SEVERAL = -2
"""The place of a module whose parts are on several ranks."""


class Places:
    """Where each module of a divided model is.

    Args:
        owner: the rank that has a module's own parameters and buffers, by the module's name.
    """

    def __init__(self, model: nn.Module, owner: Mapping[str, int]) -> None:
        self.owner = owner
        self._places: dict[str, int] = {}
        for name, module in model.named_modules():
            held = {
                owner[prefix] for prefix, inner in module.named_modules(prefix=name)
                if any(True for _ in itertools.chain(inner.parameters(False), inner.buffers(False)))
            }  # fmt: skip
            self._places[name] = ANYWHERE if not held else held.pop() if len(held) == 1 else SEVERAL

    def of(self, name: str) -> int:
        """The rank that has everything of the module, or ANYWHERE or SEVERAL."""
        return self._places[name]

    def of_parameter(self, name: str) -> int:
        """The rank that has a parameter or a buffer."""
        return self.owner[name.rpartition(".")[0]]


class ModuleRouting(Routing):
    """The routes of one model on one rank.

    Args:
        model: all of it; the values of parameters of others aren't needed.
        rank: this rank of the pipeline.
    """

    def __init__(self, model: nn.Module, places: Places, rank: int) -> None:
        self.names = Names(model)
        self._places, self._rank = places, rank
        self._server: Server | None = None
        self._native: dict[str, Callable[..., Any]] = {}
        self._flags: bytes | None = None

    def install(self, server: Server) -> None:
        """From now on calls of modules go where these are."""
        self._server = server
        for name, module in self.names.modules.items():
            place = self._places.of(name)
            native = module.forward
            self._native[name] = native
            if place in (self._rank, ANYWHERE) or type(module).forward is nn.Module.forward:
                continue
            route = self._spanning if place == SEVERAL else self._elsewhere
            module.forward = _uncompiled(functools.wraps(native)(functools.partial(route, name)))
            module._compiled_call_impl = None
        absent.fetch = self._fetch

    def _elsewhere(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A call of a module that another rank has."""
        return self._call(name, self._places.of(name), args, kwargs)

    def _spanning(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A call of a module whose parts are on several ranks."""
        owner = self._places.owner[name]
        if owner == self._rank or not name:
            return self._native[name](*args, **kwargs)
        return self._call(name, owner, args, kwargs)

    def _call(self, name: str, rank: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._in_step(name).call([Link(rank, ("module", name))], args, kwargs, f"module {name}")

    def _fetch(self, parameter: nn.Parameter) -> torch.Tensor:
        """The values of a parameter that another rank has."""
        known = self.names.of(parameter)
        if known is None:
            raise SMPStepError("a parameter of another model is used in this step; it has no values here")
        name = known[1]
        server = self._in_step(name)
        value = server.call([Link(self._places.of_parameter(name), ("parameter", name))], (), {}, f"parameter {name}")
        assert isinstance(value, torch.Tensor)
        return value

    def _in_step(self, name: str) -> Server:
        if self._server is None or current() is None:
            raise SMPStepError(
                f"{name} is on another rank of the pipeline: call the model inside of an @smp.step function, and use "
                "model.state_dict() for the values of all parameters"
            )
        return self._server

    # ---- for the server

    def function(self, target: tuple[Any, ...]) -> Callable[..., Any]:
        kind, name = target
        if kind == "parameter":
            parameter = self.names.parameters[name]
            return lambda: parameter.view_as(parameter)
        return self._native[name]

    def training(self) -> bytes:
        return bytes(module.training for module in self.names.modules.values())

    def begin(self, training: bytes) -> None:
        own = self.training()
        self._flags = own if own != training else None
        if self._flags is not None:
            self._set(training)

    def end(self) -> None:
        if self._flags is not None:
            self._set(self._flags)
        self._flags = None

    def adopt(self, chains: Sequence[Any]) -> None:
        pass

    def _set(self, training: bytes) -> None:
        for module, flag in zip(self.names.modules.values(), training):
            module.training = bool(flag)


def _uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for torch.compile to leave as it is, where a model uses that: the compiler can't see other ranks."""
    if "torch._dynamo" not in sys.modules:  # importing it takes a second
        return function
    disabled: Callable[..., Any] = torch.compiler.disable(function)
    return disabled
