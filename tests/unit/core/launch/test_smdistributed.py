"""Jobs that ask for smdistributed: which launcher, whose package, and what is refused before anything starts."""

from __future__ import annotations

import importlib
import os
import random
import re
import sys
from contextlib import nullcontext
from typing import Any

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.job.model import Distribution, EntryPoint, Job
from musterpoint.core.launch.choose import choose
from musterpoint.core.launch.inputs import SMDISTRIBUTED
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.launch.launcher import MPIRUN
from musterpoint.core.launch.launchers import find_launcher
from musterpoint.core.launch.smdistributed import (
    DATAPARALLEL,
    MODELPARALLEL,
    SWITCH,
    VARIABLE,
    check_layout,
    check_modules,
    not_asked,
    notes,
    wanted,
)

from .conftest import Planner

SMDDP = Distribution("smdistributed_dataparallel", dataparallel=True)
SMP = Distribution("smdistributed_modelparallel", parameters={"partitions": 2, "ddp": True})
NOTE = (
    "musterpoint's own, on PyTorch or TensorFlow, unless the program's Python has AWS's (SMDISTRIBUTED_SHIM=0 leaves "
    "it out)"
)
NOTE_FORCED = (
    "musterpoint's own, on PyTorch or TensorFlow, also where the program's Python has AWS's: SMDISTRIBUTED_SHIM=1"
)


def job(distribution: Distribution = SMDDP) -> Job:
    return Job("sagemaker", "j", ("algo-1",), "algo-1", ("algo-1",), EntryPoint("t.py"), distribution)


@pytest.mark.parametrize(
    ("here", "launcher"), [({MPIRUN, "torch"}, "mpi"), ({MPIRUN}, "mpi"), ({"torch"}, "torchrun"), (set(), "mpi")]
)
@pytest.mark.parametrize(("distribution", "library"), [(SMDDP, "data"), (SMP, "model")])
def test_without_mpirun_it_is_torchrun(here: set[str], launcher: str, distribution: Distribution, library: str) -> None:
    choice = choose(job(distribution), Settings(), Devices(gpus=8), here.__contains__, False)
    assert choice.launcher == launcher
    assert (f"smdistributed {library} parallelism; there is no mpirun on PATH" in choice.reason) == (
        launcher == "torchrun"
    )
    said = notes(job(distribution), {}, find_launcher(choice.launcher), choice.reason)
    assert said[-1] == f"smdistributed.{library}parallel is {NOTE}"
    assert len(said) == (2 if launcher == "torchrun" else 1)


def test_what_is_said_of_it() -> None:
    both = "smdistributed.dataparallel and smdistributed.modelparallel are"
    assert notes(job(), {}, find_launcher("mpi"), "") == (f"{DATAPARALLEL} is {NOTE}",)
    assert notes(job(), {"SMDISTRIBUTED_SHIM": "1"}, find_launcher("mpi"), "") == (f"{DATAPARALLEL} is {NOTE_FORCED}",)
    assert notes(job(Distribution("none")), {"SMDISTRIBUTED_SHIM": "1"}, find_launcher("script"), "") == (
        f"{both} {NOTE_FORCED}",
    )
    assert notes(job(SMP._replace(dataparallel=True)), {}, find_launcher("mpi"), "") == (f"{both} {NOTE}",)
    assert notes(job(), {"SMDISTRIBUTED_SHIM": "0"}, find_launcher("mpi"), "") == ()
    assert notes(job(Distribution("torch_distributed")), {}, find_launcher("torchrun"), "") == ()


@pytest.mark.parametrize(
    ("distribution", "switch", "answer"),
    [
        (SMDDP, "", True),
        (SMDDP, "0", False),
        (SMDDP, "1", True),
        (Distribution("torch_distributed", dataparallel=True), "", True),
        (Distribution("torch_distributed"), "", False),
        (Distribution("torch_distributed"), "1", True),
        (SMP, "", True),
        (SMP, "0", False),
        (Distribution("smdistributed_modelparallel"), "", True),
        (Distribution("torch_distributed", parameters={"partitions": 2}), "", True),
    ],
)
def test_who_gets_it(distribution: Distribution, switch: str, answer: bool) -> None:
    environ = {"SMDISTRIBUTED_SHIM": switch} if switch else {}
    assert wanted(job(distribution), environ) == answer


IMPORTS = "import os\nimport smdistributed.modelparallel.torch as smp\n"


@pytest.mark.parametrize(
    ("program", "distribution", "environ", "warned"),
    [
        (IMPORTS, Distribution("none"), {}, True),
        ("from smdistributed.dataparallel.torch import x\n", Distribution("none"), {}, True),
        ("try:\n    import smdistributed.dataparallel\n", Distribution("none"), {}, False),
        (IMPORTS, SMP, {}, False),
        (IMPORTS, Distribution("torch_distributed"), {}, False),
        (IMPORTS, Distribution("none"), {"SMDISTRIBUTED_SHIM": "1"}, False),
        (IMPORTS, Distribution("none"), {"SM_HP_MP_PARAMETERS": '{"partitions": 2}'}, False),
    ],
)
def test_a_program_whose_job_does_not_ask_for_it_is_told(
    program: str, distribution: Distribution, environ: dict[str, str], warned: bool
) -> None:
    said = not_asked(job(distribution), environ, program)
    assert said.startswith("warning: t.py imports smdistributed.") == warned == bool(said)
    assert ('"mpi": {"enabled": True}' in said) == (warned and program is IMPORTS)


def test_parameters_in_the_environment_ask_for_it() -> None:
    """Of a launcher inside of a job, which doesn't see the hyperparameters."""
    assert wanted(job(Distribution("none")), {VARIABLE: '{"partitions": 2}'})
    assert not wanted(job(Distribution("none")), {VARIABLE: "{}"})


OFF = {"SMDISTRIBUTED_SHIM": "0"}


@pytest.mark.parametrize(
    ("distribution", "here", "environ", "words"),
    [
        (SMDDP, {DATAPARALLEL}, {}, ""),
        (SMDDP, {"torch"}, {}, ""),
        (SMDDP, {"tensorflow"}, {}, ""),
        (SMDDP, {DATAPARALLEL}, OFF, ""),
        (SMDDP, {"torch"}, OFF, "and SMDISTRIBUTED_SHIM=0 leaves musterpoint's out"),
        (SMDDP, set(), {}, "neither AWS's smdistributed.dataparallel nor torch"),
        (SMDDP, {"torch"}, {"SMDISTRIBUTED_SHIM": "yes"}, "SMDISTRIBUTED_SHIM=yes: expected 0"),
        (SMP, {"torch"}, {}, ""),
        (SMP, {MODELPARALLEL}, OFF, ""),
        (SMP, {DATAPARALLEL, "torch"}, OFF, "no smdistributed.modelparallel, and"),
        (SMP, {DATAPARALLEL}, {}, "nor torch nor tensorflow, one of which musterpoint's needs"),
        (Distribution("torch_distributed"), set(), {}, ""),
    ],
)
def test_what_is_checked_first(distribution: Distribution, here: set[str], environ: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) if words else nullcontext():
        check_modules(job(distribution), environ, here.__contains__)


def test_it_stands_first_on_the_programs_path(plan: Planner) -> None:
    def path(**environ: str) -> list[str]:
        made = plan("torchrun", {"algo-1": 1}, distribution=SMDDP, environ=environ)
        return made.user_pythonpath.split(os.pathsep)

    assert path()[0] == SMDISTRIBUTED
    assert path(PYTHONPATH=os.pathsep.join([SMDISTRIBUTED, "/mine"])).count(SMDISTRIBUTED) == 1
    assert SMDISTRIBUTED not in path(SMDISTRIBUTED_SHIM="0")
    assert os.path.isfile(os.path.join(SMDISTRIBUTED, "sitecustomize.py"))


def check_layout_of(plan: Planner, parameters: Any, *slots: int, launcher: str = "mpi", **more: Any) -> None:
    hosts = {f"algo-{number}": count for number, count in enumerate(slots, 1)}
    distribution = Distribution("smdistributed_modelparallel", parameters=parameters, **more)
    made = plan(launcher, hosts, distribution=distribution)
    check_layout(job(distribution), {}, find_launcher(made.launcher), made)


@pytest.mark.parametrize(
    ("parameters", "slots"),
    [
        ({}, (3,)),
        ({"partitions": 2}, (2, 2)),
        ({"partitions": "2", "ddp": True}, (1, 1)),
        ({"partitions": 3, "pipeline_parallel_degree": 2}, (4,)),
        ({"pipeline_parallel_degree": 2, "tensor_parallel_degree": 2, "ddp": True}, (4, 4)),
        ({"partitions": 4, "default_partition": 3, "auto_partition": False, "horovod": True}, (2, 1, 1)),
        ({"ddp": True, "ddp_port": 8000, "ddp_dist_backend": "gloo", "unknown": [1]}, (1,)),
        ({"ddp_dist_backend": "auto"}, (1,)),
        ({"sharded_data_parallel_degree": 2, "ddp": True}, (2, 2)),
        ({"hybrid_shard_degree": 0}, (3,)),
    ],
)
def test_parameters_that_fit(plan: Planner, parameters: dict[str, Any], slots: tuple[int, ...]) -> None:
    check_layout_of(plan, parameters, *slots)


@pytest.mark.parametrize(
    ("parameters", "slots", "words"),
    [
        ({"partitions": 2}, (3,), "has partitions 2, so one replica of the model is 2 ranks, but the job has 3: ask"),
        (
            {"partitions": 2, "tensor_parallel_degree": 2, "ddp": True},
            (1, 1),
            "has partitions 2 x tensor_parallel_degree 2",
        ),
        ({"partitions": 2, "pipeline_parallel_degree": 4}, (2,), "has partitions 4, so"),
        ({"sharded_data_parallel_degree": 2, "ddp": True}, (3,), "has sharded_data_parallel_degree 2, which"),
        ({"context_parallel_degree": 4}, (2,), "has context_parallel_degree 4, which doesn't divide the 2 ranks that"),
        ({"hybrid_shard_degree": "4"}, (2,), "has hybrid_shard_degree 4, which doesn't divide the job's 2 copies"),
    ],
)
def test_parameters_that_do_not(plan: Planner, parameters: dict[str, Any], slots: tuple[int, ...], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_layout_of(plan, parameters, *slots)
    assert str(caught.value).startswith(f"the hyperparameter mp_parameters {words}")


@pytest.mark.parametrize("launcher", ["mpi", "script"])
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"partitions": 0}, "partitions=0 ({}): expected a whole number, 1 or more"),
        ({"partitions": "two"}, "partitions='two' ({}): expected a whole number"),
        ({"partitions": "9" * 5000}, "partitions='" + "9" * 79 + " ({}): expected a whole number"),
        ({"microbatches": 1.5}, "microbatches=1.5 ({}): expected"),
        ({"pipeline": "zigzag"}, "pipeline='zigzag' ({}): expected interleaved or simple"),
        ({"partitionz": 2}, "partitionz=2 ({}): no parameter of model parallelism; did you mean partitions?"),
        (
            {"hybrid_shard_degre": 2},
            "hybrid_shard_degre=2 ({}): no parameter of model parallelism; did you mean hybrid_",
        ),
        ({"ddp": True, "horovod": True}, "ddp=True ({}) and horovod=True ({}): choose one"),
        ({"fp16": "true", "bf16": 1}, "fp16=True ({}) and bf16=True ({}): a model is trained in one of the two"),
        ({"ddp_port": 8000}, "ddp_port=8000 ({}): it needs ddp to be set as well, and ddp=False (the default)"),
        ({"default_partition": 1}, "default_partition=1 ({}): expected less than pipeline_parallel_degree=1 (the def"),
        ({"partitions": 1, "tensor_parallel_degree": 2}, "tensor_parallel_degree=2 ({}): it needs ddp to be set as"),
        ({"hybrid_shard_degree": -1}, "hybrid_shard_degree=-1 ({}): expected a whole number, 0 or more"),
    ],
)
def test_parameters_that_the_library_would_refuse(
    plan: Planner, parameters: dict[str, Any], words: str, launcher: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_layout_of(plan, parameters, 1, launcher=launcher)
    assert str(caught.value).startswith(words.replace("{}", "the hyperparameter mp_parameters"))


def test_parameters_that_nobody_knows_are_noted(plan: Planner) -> None:
    asked = job(Distribution("smdistributed_modelparallel", parameters={"partitions": 1, "strange": 1, "odd": None}))
    said = notes(asked, {}, find_launcher("torchrun"), "why")
    assert said[1] == "strange, odd: no parameters of smdistributed.modelparallel, so without effect"
    assert "without effect" not in str(notes(asked, {SWITCH: "0"}, find_launcher("torchrun"), ""))


def test_a_program_that_starts_its_ranks_itself_may_have_any_number(plan: Planner) -> None:
    check_layout_of(plan, {"partitions": 4}, 1, launcher="script")


def test_as_many_ranks_as_the_job_says(plan: Planner) -> None:
    check_layout_of(plan, {"partitions": 2}, 4, 4, processes_per_host=4)
    with pytest.raises(UsageError, match="processes_per_host is 8, and algo-1 would run 4, but"):
        check_layout_of(plan, {"partitions": 2}, 4, 4, processes_per_host=8)


def test_parameters_in_the_environment_are_checked(plan: Planner) -> None:
    made = plan("torchrun", {"algo-1": 3})
    check_layout(
        job(Distribution()), {VARIABLE: "partitions=2,microbatches=4"}, find_launcher(made.launcher), made
    )  # left to the library
    for text, words in (
        ('{"partitions": 2}', "has partitions 2, so"), ('{"partitions"', "expected a JSON object"),
        ("[" * 100_000, "expected a JSON object"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=f"{VARIABLE}.*{words}"):
            check_layout(job(Distribution()), {VARIABLE: text}, find_launcher(made.launcher), made)


@pytest.mark.torch
def test_the_launcher_refuses_exactly_what_the_library_refuses(plan: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """``horovod``, which is TensorFlow's, only the library of PyTorch refuses."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    importlib.import_module("musterpoint_smdistributed.finder").install()
    config = importlib.import_module("smdistributed.modelparallel.torch.config")
    topology = importlib.import_module("smdistributed.modelparallel.torch.topology")
    numbers: list[Any] = [None, 0, 1, 2, 3, "2", 1.5]
    flags = [None, False, True]
    keys: dict[str, list[Any]] = {
        "partitions": numbers, "pipeline_parallel_degree": numbers, "microbatches": numbers, "ddp": flags,
        "horovod": flags, "fp16": flags, "bf16": flags, "ddp_port": [None, 80], "default_partition": [None, 0, 1, 2],
    }  # fmt: skip
    draw = random.Random(3)
    refused = 0
    for _ in range(400):
        chosen = {name: draw.choice(values) for name, values in keys.items() if draw.random() < 0.4}
        given = {name: value for name, value in chosen.items() if value is not None}
        ranks = draw.choice([1, 2, 3, 4])
        try:
            check_layout_of(plan, given, ranks)
        except UsageError:
            refused += 1
            library = pytest.raises((ValueError, NotImplementedError))
        else:
            library = pytest.raises(NotImplementedError) if given.get("horovod") else nullcontext()
        with library:
            read = config.read({"SAGEMAKER_BASE_DIR": "/nowhere"}, [], given)
            topology.Topology(ranks, read.pipeline_parallel_degree)
    assert refused > 100


@pytest.mark.parametrize(
    ("kind", "launcher"),
    [
        ("smdistributed_dataparallel", "torchrun"),
        ("smdistributed_modelparallel", "torchrun"),
        ("mpi", "torchrun"),
        ("mpi", "ranks"),
        ("mpi", "script"),
        ("mpi", "deepspeed"),
    ],
)
def test_variables_of_the_mpi_options_are_kept_without_mpirun(plan: Planner, kind: str, launcher: str) -> None:
    def planned(options: str, **more: str) -> LaunchPlan:
        asked = Distribution(kind, options=options, options_key="the_key")  # type: ignore[arg-type]
        return plan(launcher, {"algo-1": 1}, distribution=asked, environ={"NCCL_DEBUG": "WARN"}, **more)

    made = planned(
        "-verbose -x NCCL_DEBUG=INFO -x HOME --FI_PROVIDER=efa --mca btl ^openib -x PYTHONUNBUFFERED= -genv A 1",
        mpi_options="-x LATER=1",
    )
    found = {setting.name: setting.value for setting in made.environment}
    names = ("NCCL_DEBUG", "FI_PROVIDER", "PYTHONUNBUFFERED", "LATER", "A")
    assert [found[name] for name in names] == ["INFO", "efa", "", "1", "1"]
    assert "HOME" not in found
    by = launcher if launcher in ("torchrun", "deepspeed") else f"launcher {launcher}"
    ignored = f"custom_mpi_options and --mpi-options: -verbose --mca btl ^openib isn't followed: {by} starts the ranks"
    assert ignored in made.notes
    assert not any("custom_mpi_options" in note for note in planned("-x A=1").notes)
    with pytest.raises(UsageError, match="the hyperparameter the_key"):
        planned("-x 'A=1")


def test_a_rank_keeps_its_own_number(plan: Planner) -> None:
    asked = Distribution("mpi", options="-x RANK=7 -x MASTER_ADDR=elsewhere -x A=1")
    made = plan("ranks", {"algo-1": 2}, distribution=asked)
    assert not {"RANK", "MASTER_ADDR"} & {setting.name for setting in made.environment}


def test_a_host_outside_of_the_group_has_no_variables_of_its_ranks(plan: Planner) -> None:
    asked = Distribution("mpi", options="-x A=1")
    made = plan("torchrun", {"algo-1": 1, "algo-2": 1}, "algo-2", outside=("algo-2",), distribution=asked)
    assert "A" not in {setting.name for setting in made.environment}
