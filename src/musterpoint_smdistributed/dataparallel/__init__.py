"""AWS's data-parallel library by its name, on open PyTorch: gloo on CPUs, NCCL on GPUs. Independent of AWS.

Scripts import :mod:`smdistributed.dataparallel.torch.torch_smddp` for the backend ``smddp``, or the older functions of
:mod:`smdistributed.dataparallel.torch.distributed`.
"""

if __name__ != "smdistributed.dataparallel":
    raise ImportError(
        "import it as smdistributed.dataparallel, after `import musterpoint_smdistributed`: it is one package"
    )

__version__ = "1.8.0+musterpoint.0.1.0"
"""Of the library whose interface this is, and of musterpoint."""
__shim__ = "musterpoint"
