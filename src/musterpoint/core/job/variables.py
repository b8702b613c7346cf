"""Which of a platform's variables a job is read from, for ``muster plan``."""

from __future__ import annotations

from typing import ItemsView, Iterator, Mapping

_ANY = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "NNODES",
    "NUM_NODES",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TF_CONFIG",
    "RAY_ADDRESS",
)
_NAMES: dict[str, tuple[str, ...]] = {
    "sagemaker": ("SM_", "SAGEMAKER_", "TRAINING_JOB_"),
    "azureml": ("AZUREML_", "_AZUREML_", "AZ_BATCH", "AZURE_ML_", "OMPI_", "PMIX_", "PMI_", "MPI_LOCAL"),
    "slurm": ("SLURM", "PMIX_", "PMI_"),
    "kubeflow": (
        "PET_",
        "JAX_",
        "DMLC_",
        "KUBEFLOW_",
        "K_MPI_",
        "OMPI_MCA_",
        "JOB_COMPLETION_INDEX",
        "KUBERNETES_SERVICE",
        "HOSTNAME",
    ),
    "kubernetes": ("JOB_COMPLETION_INDEX", "JOBSET_", "PET_", "KUBERNETES_SERVICE", "HOSTNAME"),
    "vertex": ("CLUSTER_SPEC", "CLOUD_ML_", "AIP_"),
    "plain": ("PET_",),
}
"""How the variables begin that a platform gives its processes. Those in ``_ANY`` are any platform's."""


OUTPUTS = "AZURE_ML_OUTPUT_"
"""How the variables begin that are all read, by going through them."""


class Watched(Mapping[str, str]):
    """Variables, and the names of those that are looked up (:attr:`seen`); going through all of them looks up none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> str:
        if name in self._environ:
            self.seen.add(name)
        return self._environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)

    def __contains__(self, name: object) -> bool:
        return name in self._environ

    def items(self) -> ItemsView[str, str]:
        return self._environ.items()


def of_platform(platform: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the platform's variables in ``environ``."""
    starts = _NAMES[platform]
    return tuple(name for name, text in sorted(environ.items()) if text and (name in _ANY or name.startswith(starts)))
