"""TOML, which Python reads from 3.11 on; before that the package tomli does. None where neither is there."""

import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    try:
        import tomli as tomllib  # type: ignore[import-not-found]
    except ModuleNotFoundError:
        tomllib = None

__all__ = ["tomllib"]
