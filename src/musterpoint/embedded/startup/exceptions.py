"""Has a rank tell the supervisor of the exception that ends it, as facts: type, message, and where it was raised.

It comes before the program's exit functions run, and before what other libraries print. Python announces the call of
``sys.excepthook`` to audit hooks, whatever function the program has put there.

Nothing is imported at that moment but what is written in C. A module that evaluates text as it is imported, as
``socket`` and ``json`` do, makes Python forget that a KeyboardInterrupt is to end it by SIGINT: it would end with 1
(``run_eval_code_obj`` in CPython's ``pythonrun.c``).
"""

from __future__ import annotations

import _thread
import os
import sys

TYPE_CHECKING = False  # importing typing for it would delay every start
if TYPE_CHECKING:
    from typing import TypeGuard

SOCKET, TOKEN = "MUSTER_OUTER", "MUSTER_SOCKET_TOKEN"
LINE = "raised "
"""Begins the line; JSON follows."""
UNNAMED = ("builtins", "__main__") if sys.version_info >= (3, 11) else ("builtins",)
"""Modules whose name a traceback leaves out."""
MOST_TEXT = 4000
"""Characters of a message."""
MOST_FRAMES = 100
MOST_CAUSES = 8
SECONDS = 2.0
"""For the supervisor to take it."""


def install() -> None:
    """Tells of the exception that ends this process, once its main thread has no frame left."""
    process, main = os.getpid(), _thread.get_ident()

    def heard(event: str, args: tuple[object, ...]) -> None:
        if event != "sys.excepthook" or os.getpid() != process or _thread.get_ident() != main:
            return  # among others: in a process that was forked from the rank
        error = args[2]
        # C code may print an exception of a callback, and the program goes on: it has frames of its own then
        if isinstance(error, BaseException) and sys._getframe().f_back is None and not goes_on():
            try:
                tell(error)
            except BaseException:
                pass  # what the program prints has it, too

    sys.addaudithook(heard)


def goes_on() -> bool:
    """Whether a person sits there: Python asks for more after the exception (``python -i``), or a debugger may."""
    return bool(sys.flags.interactive or os.environ.get("PYTHONINSPECT") or os.isatty(0))


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
        caused = int(error.__cause__ is not None)
        found.append({"text": text_of(error), "frames": frames_of(error), "caused": caused})
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def text_of(error: BaseException) -> str:
    """As a traceback's last line has it."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ in UNNAMED else f"{kind.__module__}.{kind.__qualname__}"
    try:
        said = error.msg if has_place(error) else str(error)  # which has the place, too
    except BaseException:
        said = "<exception str() failed>"
    return (f"{name}: {said}" if said else name)[:MOST_TEXT]


def has_place(error: BaseException) -> TypeGuard[SyntaxError]:
    """Tells whether the error's own place in a file is a traceback's last frame."""
    if not isinstance(error, SyntaxError):
        return False
    return type(error.filename) is str and type(error.lineno) is int and type(error.msg) is str


def frames_of(error: BaseException) -> list[list[object]]:
    """File, line and function of every frame, outermost first; of a deep recursion the innermost."""
    found: list[list[object]] = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        found.append([code.co_filename, traceback.tb_lineno, code.co_name])
        traceback = traceback.tb_next
    if has_place(error):
        found.append([error.filename, error.lineno, ""])
    return found[:1] + found[1:][-MOST_FRAMES:]


if SOCKET in os.environ and TOKEN in os.environ:
    install()
