"""The text of one of our own modules, for programs of ours that run where musterpoint isn't importable."""

from __future__ import annotations


def module_text(module: str) -> str:
    """The source of ``module`` (its full name), from a directory or from the one-file launcher's archive.

    Raises:
        FileNotFoundError: the package has no such module.
    """
    from importlib.util import find_spec

    spec = find_spec(module)
    loader = spec.loader if spec else None
    source = loader.get_source(spec.name) if spec and loader and hasattr(loader, "get_source") else None
    if source is None:
        raise FileNotFoundError(f"{module.partition('.')[2].replace('.', '/')}.py is missing from the package")
    return str(source)
