"""The errors of the API, with the codes and texts that AWS answers with."""

from __future__ import annotations

from typing import Any

from musterpoint.base import untrusted


class ApiError(Exception):
    """An answer that isn't a success: ``code`` as clients see it, text, HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def invalid(message: str) -> ApiError:
    """The request is wrong; most of what SageMaker refuses has this code."""
    return ApiError("ValidationException", message)


def absent(what: str = "") -> ApiError:
    """There is no such thing; SageMaker's own text names it for some operations only."""
    return invalid(f"Requested resource not found{': ' + what if what else '.'}")


def in_use(message: str) -> ApiError:
    return ApiError("ResourceInUse", message)


def not_here(operation: str, what: str) -> ApiError:
    """``muster serve`` doesn't have this, and says so; it never pretends."""
    return invalid(f"{operation}: muster serve doesn't have {what}; docs/serve.md lists what it has")


MOST_LEVELS = 200
"""Of what is read as JSON: deeper values can't be walked."""


def read_json(data: str | bytes) -> Any:
    """The value of the text.

    Raises:
        ValueError: it is no JSON, or is nested too deeply.
    """
    return untrusted.read_json(data, MOST_LEVELS - 1)
