"""What Python runs first in every process of a job under ``muster local``.

This directory is then first on PYTHONPATH. The user's own ``sitecustomize`` runs too. Old Pythons load this file too:
no newer syntax.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

HERE = os.path.dirname(os.path.abspath(__file__))


def run_next() -> None:
    """Runs the ``sitecustomize`` that this one hides; one in front of it may have called this one."""
    entries = [os.path.abspath(entry) for entry in sys.path]
    spec = PathFinder.find_spec("sitecustomize", sys.path[entries.index(HERE) + 1 :])
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


import_module("muster_gloo_exit")
if os.environ.get("MUSTER_CODE_COPY") and os.environ.get("MUSTER_CODE_COPY_OF"):
    import_module("muster_code_names")
if os.environ.get("MUSTER_CPU_FALLBACK"):
    import_module("muster_cpu_fallback")
if os.environ.get("MUSTER_DEBUG_TERMINAL"):
    import_module("muster_patience")
    import_module("muster_breakpoints")
run_next()
