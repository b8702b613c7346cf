"""A function put in the place of another one."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable


def replace(owner: Any, name: str, **values: Callable[[Any], Any]) -> None:
    """Puts a function in the place of ``owner.name`` that passes the named arguments through ``values`` first."""
    original = getattr(owner, name)
    signature = inspect.signature(original)
    changed = {key: value for key, value in values.items() if key in signature.parameters}

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        for key, value in changed.items():
            bound.arguments[key] = value(bound.arguments.get(key, signature.parameters[key].default))
        return original(*bound.args, **bound.kwargs)

    setattr(owner, name, replaced)
