from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.core.job import distribution, hyperparameters
from musterpoint.core.job.distribution import from_hyperparameters
from musterpoint.core.job.model import Distribution, DistributionKind

VECTORS = json.loads((Path(__file__).parent / "vectors" / "v2_hyperparameters.json").read_text())
SENT = {case: entry["hyperparameters"] for case, entry in VECTORS.items() if "hyperparameters" in entry}

NONE = Distribution()
TORCH = Distribution("torch_distributed")
MPI = Distribution("mpi")
SMDDP = Distribution("smdistributed_dataparallel", dataparallel=True)
XLA = Distribution("pytorch_xla")
SERVERS = Distribution("parameter_server")
MIRRORED = Distribution("multi_worker_mirrored_strategy")
SMP = Distribution("smdistributed_modelparallel", parameters={"partitions": 2})

MPI_OPTIONS = "sagemaker_mpi_custom_mpi_options"
DATAPARALLEL_OPTIONS = "sagemaker_distributed_dataparallel_custom_mpi_options"
EXPECTED: dict[str, Distribution] = {
    "BASE PyTorch": NONE,
    "PT mpi": MPI,
    "PT mpi opts": Distribution("mpi", 8, "-verbose --NCCL_DEBUG=INFO", options_key=MPI_OPTIONS),
    "PT mpi disabled": NONE,
    "PT smddp": SMDDP,
    "PT smddp opts": SMDDP._replace(options="-x A=1", options_key=DATAPARALLEL_OPTIONS),
    "PT smp": SMP._replace(processes_per_host=8, parameters={"partitions": 2, "microbatches": 4, "ddp": True}),
    "PT smp only": SMP,
    "PT smp v2 + torch_distributed": TORCH._replace(parameters={"tensor_parallel_degree": 8}),
    "PT torch_distributed": TORCH,
    "PT torch_distributed extra keys": TORCH,
    "PT torch_distributed + smddp": TORCH._replace(dataparallel=True),
    "PT pytorchddp": SMDDP,
    "PT pytorchddp opts": SMDDP._replace(options="-x B=2", options_key=DATAPARALLEL_OPTIONS),
    "PT parameter_server": SERVERS,
    "PT trn1 torch_distributed": TORCH,
    "PT cpu torch_distributed image_uri": TORCH,
    "PT p5 torch_distributed": TORCH,
    "PT unknown key": NONE,
    "PT hetero mpi": MPI._replace(processes_per_host=8, groups=("g2",)),
    "PT hetero smddp": SMDDP._replace(groups=("g2",)),
    "PT hetero smp": SMP._replace(groups=("g2",)),
    "PT hetero torch_distributed": TORCH,
    "PT one group td": TORCH,
    "PT one group mpi": MPI._replace(groups=("g2",)),
    "PT hetero nodist": NONE,
    "BASE TF": NONE,
    "TF mpi": MPI._replace(processes_per_host=4),
    "TF ps": SERVERS,
    "TF mwms": MIRRORED,
    "TF smddp": SMDDP,
    "TF smp": SMP,
    "TF model_dir False": NONE,
    "BASE MX": NONE,
    "MX ps": SERVERS,
    "MX mpi": MPI,
    "MX mpi pph": MPI._replace(processes_per_host=2, options="-v", options_key=MPI_OPTIONS),
    "MX mpi opts nopph": MPI,
    "BASE HF": NONE,
    "HF pytorchddp": Distribution("pytorch_ddp"),
    "HF torch_distributed": TORCH,
    "HF td+smp": TORCH,
    "HF smddp": SMDDP,
    "HF mpi": MPI,
    "HF hetero td": TORCH,
    "HF one group smddp": SMDDP._replace(groups=("g2",)),
    "HF compiler": XLA,
    "PT compiler": XLA,
    "TF compiler": NONE,
    "GEN nosrc": NONE,
    "GEN src": NONE,
    "GEN isolated": NONE,
    "BASE PT isolated": NONE,
    "TF torch_distributed": NONE,
    "TF pytorchddp": NONE,
    "TF pytorchxla": XLA,
    "HF smp": SMP._replace(processes_per_host=8),
    "HF td+smddp": TORCH,
    "HF ps": SERVERS,
    "MX smddp": NONE,
    "MX torch_distributed": NONE,
    "BASE SKLearn": NONE,
    "BASE XGB": NONE,
    "PT p5 td+smddp": TORCH._replace(dataparallel=True),
    "PT sh mpi": MPI,
}


def decoded(sent: dict[str, Any]) -> distribution.Decoded:
    return from_hyperparameters(hyperparameters.values(hyperparameters.decode(sent, "hyperparameters.json")))


@pytest.mark.parametrize("case", SENT)
def test_recorded_estimator(case: str) -> None:
    assert decoded(SENT[case]).distribution == EXPECTED[case]
    assert EXPECTED[case].kind in get_args(DistributionKind)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (
            {"sagemaker_use_mpi": "true", "sagemaker_num_processes": "4", "sagemaker_process_slots_per_host": "2",
             "sagemaker_additional_mpi_options": '"-v"'},
            Distribution("mpi", 2, "-v", processes=4, options_key="sagemaker_additional_mpi_options"),
        ),  # Chainer
        ({"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_processes": "6"}, Distribution("mpi", processes=6)),
        ({"sagemaker_mpi_enabled": "True"}, MPI),  # Python's str()
        ({"sagemaker_mpi_enabled": "False"}, NONE),
        ({"sagemaker_mpi_enabled": True}, MPI),
        ({"mp_parameters": '{"a": 1}'}, NONE._replace(parameters={"a": 1})),  # the script may read them all the same
        ({"mp_parameters": '"a=1"', "sagemaker_mpi_enabled": "true"}, MPI),
        ({"sagemaker_torch_distributed_enabled": "true", "mp_parameters": '{"a": 1}'},
         TORCH._replace(parameters={"a": 1})),  # SDK v3's SMP
        ({"sagemaker_mpi_enabled": "true", "sagemaker_distribution_instance_groups": '"g1"'},
         MPI._replace(groups=("g1",))),
    ],
)  # fmt: skip
def test_other_senders(sent: dict[str, Any], expected: Distribution) -> None:
    assert decoded(sent).distribution == expected


@pytest.mark.parametrize(
    ("sent", "level", "says"),
    [
        (SENT["PT torch_distributed + smddp"], "info", "is started as torch_distributed"),
        (SENT["PT smp only"], "warning", 'add "mpi": {"enabled": true}'),
        ({"sagemaker_ray_enabled": "true"}, "warning", "sagemaker_ray_enabled = true looks like a distribution"),
    ],
)
def test_what_people_are_told(sent: dict[str, Any], level: str, says: str) -> None:
    (note,) = decoded(sent).notes
    assert note.level == level
    assert says in note.text


@pytest.mark.parametrize("case", ["BASE PyTorch", "PT mpi", "HF compiler", "PT smp", "PT smp v2 + torch_distributed"])
def test_ordinary_jobs_are_quiet(case: str) -> None:
    assert decoded(SENT[case]).notes == ()


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"sagemaker_mpi_enabled": "maybe"}, 'sagemaker_mpi_enabled is "maybe", expected true or false'),
        ({"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "0"},
         "per_host is 0, expected a whole number, 1 to 65536"),
        ({"sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": "[1]"},
         "mpi_options is [1], expected a string"),
        ({"sagemaker_mpi_enabled": "true", "sagemaker_distribution_instance_groups": "[1]"},
         "instance_groups is [1], expected a list of instance group names"),
        ({"mp_parameters": "3", "sagemaker_distributed_dataparallel_enabled": "false"},
         "mp_parameters is 3, expected an object"),
    ],
)  # fmt: skip
def test_wrong_values(sent: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        decoded(sent)
