"""Jobs that ask for smdistributed: which launcher, whose package, and what is refused before anything starts."""

from __future__ import annotations

import os
from typing import Callable

import pytest

from musterpoint.errors import UsageError
from musterpoint.fabric.devices import Devices
from musterpoint.job.model import Distribution, EntryPoint, Job
from musterpoint.launch.choose import MPIRUN, choose
from musterpoint.launch.inputs import SMDISTRIBUTED
from musterpoint.launch.plan import LaunchPlan
from musterpoint.launch.smdistributed import DATAPARALLEL, NOTE, check, notes, wanted
from musterpoint.settings import Settings

SMDDP = Distribution("smdistributed_dataparallel", dataparallel=True)


def job(distribution: Distribution = SMDDP) -> Job:
    return Job("sagemaker", "j", ("algo-1",), "algo-1", ("algo-1",), EntryPoint("t.py"), distribution)


@pytest.mark.parametrize(
    ("here", "launcher"),
    [({MPIRUN, "torch"}, "mpi"), ({MPIRUN}, "mpi"), ({"torch"}, "torchrun"), (set(), "mpi")],
)
def test_without_mpirun_it_is_torchrun(here: set[str], launcher: str) -> None:
    choice = choose(job(), Settings(), Devices(gpus=8), here.__contains__, False)
    assert choice.launcher == launcher
    assert ("there is no mpirun on PATH" in choice.reason) == (launcher == "torchrun")
    said = notes(job(), {}, choice.launcher, choice.reason)
    assert said[-1] == NOTE
    assert len(said) == (2 if launcher == "torchrun" else 1)


@pytest.mark.parametrize(
    ("distribution", "switch", "answer"),
    [
        (SMDDP, "", True),
        (SMDDP, "0", False),
        (SMDDP, "1", True),
        (Distribution("torch_distributed", dataparallel=True), "", True),
        (Distribution("torch_distributed"), "", False),
        (Distribution("torch_distributed"), "1", True),
    ],
)
def test_who_gets_it(distribution: Distribution, switch: str, answer: bool) -> None:
    environ = {"SMDISTRIBUTED_SHIM": switch} if switch else {}
    assert wanted(job(distribution), environ) == answer


@pytest.mark.parametrize(
    ("here", "environ", "words"),
    [
        ({DATAPARALLEL}, {}, ""),
        ({"torch"}, {}, ""),
        ({DATAPARALLEL}, {"SMDISTRIBUTED_SHIM": "0"}, ""),
        ({"torch"}, {"SMDISTRIBUTED_SHIM": "0"}, "and SMDISTRIBUTED_SHIM=0 leaves musterpoint's out"),
        (set(), {}, "neither AWS's smdistributed.dataparallel nor torch"),
        ({"torch"}, {"SMDISTRIBUTED_SHIM": "yes"}, "SMDISTRIBUTED_SHIM=yes: expected 0"),
    ],
)
def test_what_is_checked_first(here: set[str], environ: dict[str, str], words: str) -> None:
    if not words:
        check(job(), environ, here.__contains__)
        return
    with pytest.raises(UsageError) as caught:
        check(job(), environ, here.__contains__)
    assert words in str(caught.value)


def test_a_job_that_does_not_ask_is_not_checked() -> None:
    check(job(Distribution("torch_distributed")), {}, frozenset().__contains__)


Planner = Callable[..., LaunchPlan]


def test_it_stands_first_on_the_programs_path(plan: Planner) -> None:
    def path(**environ: str) -> list[str]:
        made = plan("torchrun", {"algo-1": 1}, distribution=SMDDP, environ=environ)
        return made.user_pythonpath.split(os.pathsep)

    assert path()[0] == SMDISTRIBUTED
    assert path(PYTHONPATH=os.pathsep.join([SMDISTRIBUTED, "/mine"])).count(SMDISTRIBUTED) == 1
    assert SMDISTRIBUTED not in path(SMDISTRIBUTED_SHIM="0")
    assert os.path.isfile(os.path.join(SMDISTRIBUTED, "sitecustomize.py"))


def test_variables_of_the_mpi_options_are_kept_by_torchrun(plan: Planner) -> None:
    def planned(options: str) -> LaunchPlan:
        asked = SMDDP._replace(options=options)
        return plan("torchrun", {"algo-1": 1}, distribution=asked, environ={"NCCL_DEBUG": "WARN"})

    made = planned("-verbose -x NCCL_DEBUG=INFO -x HOME --FI_PROVIDER=efa --mca btl ^openib")
    found = {setting.name: setting.value for setting in made.environment}
    assert (found["NCCL_DEBUG"], found["FI_PROVIDER"]) == ("INFO", "efa")
    assert "HOME" not in found
    assert "custom_mpi_options: -verbose --mca btl ^openib isn't followed: torchrun starts the ranks" in made.notes
    assert not any("custom_mpi_options" in note for note in planned("-x A=1").notes)
    with pytest.raises(UsageError, match="sagemaker_distributed_dataparallel_custom_mpi_options"):
        planned("-x 'A=1")
