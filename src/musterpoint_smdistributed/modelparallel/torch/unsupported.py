"""Names of AWS's library that scripts import, for what isn't there yet: they can be imported, and refuse to be used."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from ..backend.exceptions import SMPUnsupportedError


def refuse(name: str, instead: str) -> SMPUnsupportedError:
    """The error for ``name``, as the script calls it; ``instead`` is what to do."""
    return SMPUnsupportedError(f"{name}: musterpoint's smdistributed.modelparallel doesn't have it yet; {instead}")


def function(name: str, instead: str) -> Callable[..., Any]:
    """A function that raises :class:`SMPUnsupportedError`."""

    def unsupported(*args: Any, **kwargs: Any) -> Any:
        raise refuse(name, instead)

    unsupported.__name__ = unsupported.__qualname__ = name.rpartition(".")[2]
    unsupported.__doc__ = f"Not there yet: raises SMPUnsupportedError; {instead}."
    return unsupported


def classes(module: str, names: Sequence[str], instead: str) -> dict[str, type]:
    """A class for each name, of which there are no instances and which nothing can be derived from."""
    return {name: _class(f"smp.{module}.{name}", instead) for name in names}


def _class(name: str, instead: str) -> type:
    def unusable(*args: Any, **kwargs: Any) -> Any:
        raise refuse(name, instead)

    doc = f"Not there yet: raises SMPUnsupportedError; {instead}."
    body = {"__new__": unusable, "__init_subclass__": classmethod(unusable), "__doc__": doc}
    return type(name.rpartition(".")[2], (), body)
