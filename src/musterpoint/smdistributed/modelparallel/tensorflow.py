"""Says that the TensorFlow half of AWS's library isn't here."""

raise ImportError(
    "smdistributed.modelparallel.tensorflow: musterpoint's smdistributed.modelparallel is for PyTorch only; with "
    "TensorFlow use multi_worker_mirrored_strategy or Horovod (distribution mpi), which split no model",
    name=__name__,
)
