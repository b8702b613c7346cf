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
    """Runs the ``sitecustomize`` that this one hides."""
    others = [path for path in sys.path if os.path.abspath(path) != HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


import_module("muster_gloo_exit")
if os.environ.get("MUSTER_CPU_FALLBACK"):
    import_module("muster_cpu_fallback")
run_next()
