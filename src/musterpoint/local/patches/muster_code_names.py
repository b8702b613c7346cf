"""Lets Python name the user's own files where a host runs a copy of them: in tracebacks, stacks, and at breakpoints.

Every code object is renamed just before it runs for the first time: that of the main program, those of modules, and
those that ``runpy`` or ``multiprocessing`` run. ``__file__`` and the working directory stay those of the copy, so what
the program writes beside itself goes there.

Old Pythons load this file too: no newer syntax.
"""

import os
import sys
from importlib import import_module

COPY = os.path.join(os.environ["MUSTER_CODE_COPY"], "")
OWN = os.path.join(os.environ["MUSTER_CODE_COPY_OF"], "")


def own_name(name):  # type: ignore[no-untyped-def]
    """The user's own file of which ``name`` is a copy; ``name`` itself where it is none."""
    if isinstance(name, str) and name.startswith(COPY):
        own = OWN + name[len(COPY) :]
        if os.path.exists(own):
            return own
    return name


def install():  # type: ignore[no-untyped-def]
    """From now on all code is renamed; does nothing where Python has no means for that (before 3.8)."""
    try:
        rename = import_module("_imp")._fix_co_filename
    except (ImportError, AttributeError):
        return
    if not hasattr(sys, "addaudithook"):
        return

    def before_it_runs(event, arguments):  # type: ignore[no-untyped-def]
        if event == "exec":
            name = getattr(arguments[0], "co_filename", None)
            own = own_name(name)  # type: ignore[no-untyped-call]
            if own is not name:
                rename(arguments[0], own)

    sys.addaudithook(before_it_runs)
    show = sys.excepthook

    def with_own_name(kind, error, traceback):  # type: ignore[no-untyped-def]
        if isinstance(error, SyntaxError):  # its file was never run
            error.filename = own_name(error.filename)  # type: ignore[no-untyped-call]
        show(kind, error, traceback)

    sys.excepthook = with_own_name


install()  # type: ignore[no-untyped-call]
