"""Has a rank tell the supervisor of the exception that ends it, as facts: type, message, and where it was raised.

It comes before the program's exit functions run, and before what other libraries print. The program's own
``sys.excepthook`` runs as without us; where it sets another one later, nothing is told, and the output alone is read.

Nothing is imported at that moment but what is written in C. A module that evaluates text as it is imported, as
``socket`` and ``json`` do, makes Python forget that a KeyboardInterrupt is to end it by SIGINT: it would end with 1
(``run_eval_code_obj`` in CPython's ``pythonrun.c``).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing for it would delay every start
if TYPE_CHECKING:
    from types import TracebackType

SOCKET, TOKEN = "MUSTER_OUTER", "MUSTER_SOCKET_TOKEN"
LINE = "raised "
"""Begins the line; JSON follows."""
MOST_TEXT = 4000
"""Characters of a message."""
MOST_FRAMES = 100
MOST_CAUSES = 8
SECONDS = 2.0
"""For the supervisor to take it."""


def install() -> None:
    """Puts our hook before the one that is there."""
    before, process = sys.excepthook, os.getpid()

    def excepthook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if os.getpid() == process:  # not in a process that was forked from the rank
            try:
                tell(error)
            except BaseException:
                pass  # what the program prints has it, too
        before(kind, error, traceback)

    sys.excepthook = excepthook


def tell(error: BaseException) -> None:
    """Sends the facts, and returns when they have been taken."""
    import _socket

    address = os.environ[SOCKET]
    sock = _socket.socket(_socket.AF_UNIX)
    try:
        sock.settimeout(SECONDS)
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
        facts = text_of_json({"pid": os.getpid(), "chain": chain_of(error)})
        sock.sendall(f"{os.environ[TOKEN]}\n{LINE}{facts}\n".encode())
        sock.recv(16)
    finally:
        sock.close()


def text_of_json(value: object) -> str:
    """``value``, of dicts, lists, texts and whole numbers, as JSON in ASCII."""
    from _json import encode_basestring_ascii

    if isinstance(value, dict):
        return "{" + ",".join(f"{text_of_json(key)}:{text_of_json(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of_json, value)) + "]"
    return encode_basestring_ascii(value) if isinstance(value, str) else str(value)


def chain_of(error: BaseException | None) -> list[dict[str, object]]:
    """The exception and those that it was raised from or while handling, the last first."""
    found: list[dict[str, object]] = []
    seen = set()
    while error is not None and id(error) not in seen and len(found) < MOST_CAUSES:
        seen.add(id(error))
        found.append({"text": text_of(error), "frames": frames_of(error.__traceback__)})
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def text_of(error: BaseException) -> str:
    """As a traceback's last line has it."""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        said = str(error)
    except BaseException:
        said = "<exception str() failed>"
    return (f"{name}: {said}" if said else name)[:MOST_TEXT]


def frames_of(traceback: TracebackType | None) -> list[list[object]]:
    """File, line and function of every frame, outermost first; of a deep recursion the innermost."""
    found: list[list[object]] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        found.append([code.co_filename, traceback.tb_lineno, code.co_name])
        traceback = traceback.tb_next
    return found[:1] + found[1:][-MOST_FRAMES:]


if SOCKET in os.environ and TOKEN in os.environ:
    install()
