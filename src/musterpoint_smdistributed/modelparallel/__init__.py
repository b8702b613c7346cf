"""AWS's model-parallel library by its name, on open PyTorch. Independent of AWS.

Scripts import :mod:`smdistributed.modelparallel.torch`, mostly ``as smp``.
"""

if __name__ != "smdistributed.modelparallel":
    raise ImportError(
        "import it as smdistributed.modelparallel, after `import musterpoint_smdistributed`: it is one package"
    )

__version__ = "1.15.0+musterpoint.0.1.0"
"""Of the library whose interface this is, and of musterpoint."""
__shim__ = "musterpoint"
