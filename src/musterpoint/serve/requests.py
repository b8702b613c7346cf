"""What every WSGI application of ours does with a request."""

from __future__ import annotations

import io
from typing import Any, Callable

Start = Callable[..., Any]


def body_of(environ: dict[str, Any]) -> bytes:
    """The body of the request, which can still be read by others."""
    stream = environ["wsgi.input"]
    if environ.get("wsgi.input_terminated") and not environ.get("CONTENT_LENGTH"):
        body: bytes = stream.read()
    else:
        body = stream.read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    return body
