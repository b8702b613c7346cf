"""Says that the TensorFlow half of AWS's library isn't here."""

raise ImportError(
    "smdistributed.dataparallel.tensorflow: musterpoint's smdistributed.dataparallel is for PyTorch only; with "
    "TensorFlow use Horovod (distribution mpi) or multi_worker_mirrored_strategy",
    name=__name__,
)
