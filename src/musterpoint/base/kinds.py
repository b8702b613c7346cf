"""All launchers and platforms by name, and what is known of each before its own file is read: a row for each."""

from musterpoint.base.records import NamedTuple


class LauncherRow(NamedTuple):
    """What asks for a launcher, so that it is found before its file is imported."""

    kinds: tuple[str, ...] = ()
    """Kinds of distribution; why is in its ``Launcher.asked_by``."""
    option: str = ""
    """An option, by field, that asks for it in jobs without a distribution."""
    programs: tuple[str, ...] = ()
    """Programs (a file's name, or a module) that are its own command lines, which are read."""
    commands: tuple[str, ...] = ()
    """Other commands and modules that start ranks themselves, and in whose place it starts the script; some only with a
    word behind them."""


_SMDISTRIBUTED = ("smdistributed_modelparallel", "smdistributed_dataparallel")

LAUNCHERS: dict[str, LauncherRow] = {
    "script": LauncherRow(),
    "torchrun": LauncherRow(
        ("torch_distributed", "pytorch_ddp", *_SMDISTRIBUTED),
        commands=(
            *("torchrun", "torch.distributed.run", "torch.distributed.launch"),
            *("ft_launcher", "hyperpodrun", "fabric", "lightning"),
            *("lightning.fabric.cli", "lightning_fabric.cli", "lightning.pytorch.cli"),
        ),
    ),
    "ranks": LauncherRow(_SMDISTRIBUTED, commands=("horovodrun", "horovod.runner.launch", "srun", "jsrun", "aprun")),
    "mpi": LauncherRow(("mpi", *_SMDISTRIBUTED), commands=("mpirun", "mpiexec", "orterun", "mpiexec.hydra")),
    "tensorflow": LauncherRow(("multi_worker_mirrored_strategy",)),
    "parameter-server": LauncherRow(("parameter_server",), option="tf_roles"),
    "deepspeed": LauncherRow(commands=("deepspeed", "deepspeed.launcher.runner", "deepspeed.launcher.launch")),
    "ray": LauncherRow(("ray",)),
    "jax": LauncherRow(("jax",)),
    "accelerate": LauncherRow(
        programs=(
            "accelerate",
            "accelerate-launch",
            "accelerate.commands.launch",
            "accelerate.commands.accelerate_cli",
            "trl",
            "trl.cli",
        ),
        commands=(
            *("accelerate launch", "accelerate-launch", "accelerate.commands.launch"),
            "accelerate.commands.accelerate_cli launch",
        ),
    ),
    "ssh": LauncherRow(),
}
"""Every launcher of ours; its object is ``LAUNCHER`` in ``core/launch/launchers/NAME.py``."""

PLATFORMS: dict[str, tuple[str, ...]] = {
    "sagemaker": (),
    "azurebatch": ("AZ_BATCH_",),
    "azureml": ("AZUREML_", "AZ_BATCH"),
    "slurm": ("SLURM",),
    "lws": ("LWS_",),
    "hyperpod": ("PET_MASTER_ADDR",),
    "kubeflow": ("PET_", "JAX_", "DMLC_", "MASTER_ADDR", "K_MPI_", "OMPI_MCA_", "I_MPI_HYDRA_", "HYDRA_"),
    "vertex": ("CLUSTER_SPEC",),
    "awsbatch": ("AWS_BATCH_JOB_N",),
    "skypilot": ("SKYPILOT_NUM_NODES", "SKYPILOT_NODE_"),
    "dstack": ("DSTACK_NODE",),
    "determined": ("DET_",),
    "tfconfig": ("TF_CONFIG",),
    "volcano": ("VC_",),
    "flux": ("FLUX_",),
    "lsf": ("LSB_",),
    "pbs": ("PBS_",),
    "nomad": ("NOMAD_",),
    "kubernetes": ("JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST"),
    "plain": (),
}
"""Every platform of ours, in the order in which they are looked for, and how its variables begin: where none begins so
it isn't looked at, else it decides itself. Its object is ``PLATFORM`` in ``core/job/platforms/NAME.py``.
``plain``: there is none.
"""
