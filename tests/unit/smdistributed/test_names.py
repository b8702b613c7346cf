"""What scripts import from smdistributed.modelparallel is there; what isn't supported says so when it is used."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType
from typing import Any, Callable

import pytest

from .conftest import STARTUP, Modules

pytestmark = pytest.mark.torch


NAMES = """
init is_initialized is_tracing rank size local_rank local_size get_world_process_group
CommGroup RankType WORLD MP_GROUP DP_GROUP PP_GROUP TP_GROUP RDP_GROUP broadcast send recv_from allgather barrier
state logger get_logger step StepOutput DistributedModel DistributedOptimizer model partition set_partition
tensor_parallelism set_tensor_parallelism model_creation delay_param_initialization delayed_parameter_initialization
tp_register tp_register_with_module set_activation_checkpointing patches amp nn optimizers
save load save_checkpoint resume_from_checkpoint
"""
PUBLIC = NAMES.split() + [
    each.format(kind=kind)
    for kind in ("mp", "dp", "pp", "tp", "rdp")
    for each in ("{kind}_rank", "{kind}_size", "get_{kind}_group", "get_{kind}_process_group", "{kind}_barrier")
]
FAMILIES = ("gpt2", "gptj", "gptneo", "gptneox", "bert", "roberta", "t5")
PATHS = [
    "", ".step", ".model", ".nn", ".nn.huggingface", ".amp", ".optimizers", ".patches", ".patches.checkpoint",
    ".exceptions", *(f".nn.huggingface.{name}" for name in FAMILIES),
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_paths(modelparallel: Modules, path: str) -> None:
    assert isinstance(modelparallel(f"torch{path}"), ModuleType)


def test_names(modelparallel: Modules) -> None:
    smp = modelparallel("torch")
    assert [name for name in PUBLIC if not hasattr(smp, name)] == []
    assert sorted(set(smp.__all__)) == sorted(smp.__all__)
    assert [name for name in smp.__all__ if not hasattr(smp, name)] == []
    assert callable(smp.step)
    assert smp.step is modelparallel("torch.step").step
    assert smp.model.DistributedModel is smp.DistributedModel


def test_errors_of_the_library_are_where_the_toolkit_looks(modelparallel: Modules, environ: dict[str, str]) -> None:
    """sagemaker-training takes the names of all classes in these modules, in a Python that may lack torch."""
    base = modelparallel("backend.exceptions").SMPError
    for path in ("backend.exceptions", "torch.exceptions"):
        found = {name: each for name, each in vars(modelparallel(path)).items() if isinstance(each, type)}
        assert len(found) >= 4
        assert all(issubclass(each, base) and each.__name__ == name for name, each in found.items())
    code = (
        "import musterpoint_smdistributed, sys; sys.modules['torch'] = None\n"
        "from smdistributed.modelparallel.backend import exceptions; print(exceptions.SMPError.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == "SMPError\n", done.stderr


def test_what_is_not_there_yet_says_so_when_it_is_used(modelparallel: Modules) -> None:
    smp = modelparallel("torch")
    gpt2 = modelparallel("torch.nn.huggingface.gpt2")

    uses: dict[str, Callable[[], Any]] = {
        "smp.optimizers.FusedNovoGrad": lambda: smp.optimizers.FusedNovoGrad([]),
        "smp.optimizers.FusedLAMB": lambda: smp.optimizers.FusedLamb([]),
        "smp.nn.huggingface.t5.translate_state_dict_to_hf_t5": lambda: (
            smp.nn.huggingface.t5.translate_state_dict_to_hf_t5({})
        ),
    }
    for name, use in uses.items():
        with pytest.raises(NotImplementedError) as caught:
            use()
        assert str(caught.value).startswith(f"{name}: musterpoint's smdistributed.modelparallel doesn't have it yet; ")
    assert not hasattr(smp.nn, "DistributedNothing")
    assert not hasattr(gpt2, "nothing")
    with pytest.raises(ImportError):
        importlib.import_module("smdistributed.modelparallel.torch.nn.huggingface.gpt2.nothing")


def test_modules_that_share_tensors_need_a_world(modelparallel: Modules) -> None:
    smp = modelparallel("torch")
    assert len(smp.nn.__all__) == 11
    for name in smp.nn.__all__:
        assert issubclass(getattr(smp.nn, name), modelparallel("torch.nn.base").nn.Module)
    with pytest.raises(modelparallel("backend.exceptions").SMPNotInitializedError, match=r"call smp\.init"):
        smp.nn.DistributedLinear(4, 4)
    with pytest.raises(TypeError, match=r"isn't a class derived from smp\.nn\.DistributedModule"):
        smp.tp_register(int)(dict)


def test_marks_for_tensor_parallelism_have_nothing_to_share_out(modelparallel: Modules, torch: Any) -> None:
    smp = modelparallel("torch")
    with smp.model_creation(tensor_parallelism=False, dtype=torch.float64), smp.delay_param_initialization(False):
        assert torch.nn.Linear(2, 2).weight.dtype == torch.float64
    with smp.tensor_parallelism(enabled=True, fused_bias_gelu=True):
        layer = smp.nn.FusedLayerNorm(4)
    smp.set_tensor_parallelism(layer, False)
    assert layer.weight.dtype == torch.float32


LOGGING = """
import logging
import smdistributed.modelparallel.torch as smp
smp.init({"odd": 1})
logging.basicConfig(format="of the script: %(message)s")
smp.init({"microbatches": 3})
smp.logger.info("hello")
smp.barrier()
print(smp.rank(), smp.size(), smp.local_size(), smp.get_mp_group(), smp.allgather("x", smp.PP_GROUP), smp.state.cfg.odd)
raise SystemExit("through")
"""


def test_without_a_launcher_it_is_one_rank(environ: dict[str, str]) -> None:
    """And its lines are logged once, whoever configures logging, and when."""
    environ["PYTHONPATH"] = STARTUP
    done = subprocess.run([sys.executable, "-c", LOGGING], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == "0 1 1 [0] ['x'] 1\n", done.stderr
    said = done.stderr.splitlines()
    assert len(said) == 5, said
    assert ": world size 1 = partitions 1 x replicas 1, placement cluster, microbatches 1, pipeline inter" in said[0]
    assert said[1].startswith("smdistributed.modelparallel: odd (smp.init) is no parameter that musterpoint's smdist")
    assert said[2:] == [
        "of the script: smp.init was called before: microbatches=3 of this call is not used",
        "of the script: hello",
        "through",
    ]
