"""DeepSpeed on two hosts: ZeRO-2 under every launcher that can start it, and how its own launcher's jobs end.

Its own launcher alone reports a killed rank as 247, polls once a second, and kills ranks 30 s after SIGTERM.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from ..restarted_ranks import SEES, check_alike
from .conftest import trained

DIGITS = Path(__file__).parent / "programs" / "deepspeed_digits.py"

pytestmark = pytest.mark.netns


@pytest.fixture
def deep(local, stack, tmp_path: Path):  # type: ignore[no-untyped-def]
    """``muster local`` whose programs run with the Python that has DeepSpeed, every extension of which is built."""
    local.environ["MUSTER_PYTHON"] = str(stack("deepspeed") / "python")
    local.environ["TORCH_EXTENSIONS_DIR"] = str(tmp_path / "extensions")
    yield local
    assert not list((tmp_path / "extensions").glob("*")), "an extension was compiled"


def trained_alike(ran) -> dict[int, list[float]]:  # type: ignore[no-untyped-def]
    """:func:`trained`, with the same weights on every rank in the end."""
    losses = trained(ran.stdout)
    assert len(set(re.findall(r"rank \d+ weights (\w+)", ran.stdout))) == 1
    return losses


def test_zero2_trains_on_uneven_hosts(deep, digits: Path) -> None:  # type: ignore[no-untyped-def]
    ran = deep.run("--hosts", "2", "--backend", "netns", "--host-slots", "1,2", "--launcher", "deepspeed", DIGITS,
                   digits, timeout=500)  # fmt: skip
    assert ran.code == 0, ran.stderr + ran.stdout
    assert sorted(trained_alike(ran)) == [0, 1, 2]
    # the argument and LOCAL_RANK agree, and count from each host's first rank
    for rank, local_rank in ((0, 0), (1, 0), (2, 1)):
        assert f"rank {rank} of 3: argument {local_rank}, device {local_rank}, stage 2" in ran.stdout


@pytest.mark.parametrize(
    ("launcher", "discover"), [("torchrun", ()), ("mpi", ()), ("mpi", ("--discover",))],
    ids=["torchrun", "mpi", "mpi, discovered"],
)  # fmt: skip
def test_zero2_trains_under_other_launchers(  # type: ignore[no-untyped-def]
    deep, stack, digits: Path, launcher: str, discover: tuple[str, ...]
) -> None:
    """Told its place like under every launcher; and asking MPI for it, as DeepSpeed does where nobody tells."""
    deep.environ["PATH"] = f"{stack('openmpi4')}{os.pathsep}{deep.environ['PATH']}"
    ran = deep.run("--hosts", "2", "--slots", "1", "--backend", "netns", "--launcher", launcher, DIGITS, digits,
                   *discover, timeout=500)  # fmt: skip
    assert ran.code == 0, ran.stderr + ran.stdout
    assert sorted(trained_alike(ran)) == [0, 1]
    for rank in (0, 1):
        assert f"rank {rank} of 2: argument -1, device 0, stage 2" in ran.stdout


ARGUMENTS = """
import os, sys
print("got", sys.argv[1:], os.environ["LOCAL_RANK"], os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
"""


def test_what_a_program_gets(deep) -> None:  # type: ignore[no-untyped-def]
    """A script gets its local rank as its first argument, a shell script doesn't; and the devices it was to see."""
    deep.environ["CUDA_VISIBLE_DEVICES"] = "5"
    script, shell = deep.program(ARGUMENTS), deep.program(f'{deep.environ["MUSTER_PYTHON"]} program.py "$@"', "run.sh")
    common = ("--hosts", "1", "--slots", "2", "--backend", "process", "--launcher", "deepspeed")
    expected = {(script, "--lr", "1"): ["--local_rank={}", "--lr", "1"], (shell, "--lr", "1"): ["--lr", "1"]}
    for number, (words, arguments) in enumerate(expected.items()):
        deep.output = deep.folder / f"job-{number}"
        ran = deep.run(*common, *words)
        assert ran.code == 0, ran.stderr
        for local_rank in "01":
            line = f"got {[word.format(local_rank) for word in arguments]} {local_rank} 5,-1"
            assert line in ran.stdout, (line, ran.stdout)


TUNING = {
    "train_micro_batch_size_per_gpu": "auto",
    "optimizer": {"type": "Adam", "params": {"lr": 5e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 0},
    "autotuning": {
        "enabled": True, "fast": True, "start_profile_step": 2, "end_profile_step": 3, "tuner_num_trials": 1,
        "max_train_micro_batch_size_per_gpu": 1, "num_tuning_micro_batch_sizes": 1,
    },
}  # fmt: skip


def test_autotuning_measures_on_both_hosts(deep, stack, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """DeepSpeed's own runner on the first host starts each experiment on both by pdsh, over the job's ssh."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "ds.json").write_text(json.dumps(TUNING))
    script = deep.program(
        f'cd {work} && exec deepspeed --hostfile "$MUSTER_HOSTFILE" --master_port "$PORT" --autotuning tune "$@"',
        "tune.sh",
    )
    deep.environ["PATH"] = f"{stack('deepspeed')}{os.pathsep}{deep.environ['PATH']}"
    ran = deep.run("--hosts", "2", "--slots", "1", "--backend", "netns", "--launcher", "ssh", "--env", "PORT=29600",
                   script, DIGITS.with_name("deepspeed_tuned.py"), "--deepspeed", "--deepspeed_config", "ds.json",
                   timeout=560)  # fmt: skip
    assert ran.code == 0, ran.stderr + ran.stdout
    results = work / "autotuning_results"
    said = "".join(path.read_text() for path in sorted(results.glob("*/stdout.log")))
    for rank, host in enumerate(("algo-1", "algo-2")):
        assert f"{host}: rank {rank} of 2 on {host}" in said, said
    assert [path for path in results.glob("*/metrics.json") if json.loads(path.read_text())["throughput"] > 0]
    assert json.loads((results / "ds_config_optimal.json").read_text())["train_micro_batch_size_per_gpu"] == 1


def test_ranks_see_the_same_with_its_launcher_and_without(deep) -> None:  # type: ignore[no-untyped-def]
    """The first attempt's ranks are started by DeepSpeed, the next one's by musterpoint itself."""
    deep.environ["CUDA_VISIBLE_DEVICES"] = "3,1"
    ran = deep.run(
        "--hosts", "2", "--host-slots", "1,2", "--backend", "netns", "--launcher", "deepspeed", "--max-restarts", "1",
        "--restart-on", "user", deep.program(SEES), deep.folder, "--lr", "0.1", timeout=500,
    )  # fmt: skip
    assert ran.code == 0, ran.stderr + ran.stdout
    check_alike(Path(deep.folder), 3, frozenset({"PYTORCH_NVML_BASED_CUDA_CHECK"}))  # any import of DeepSpeed sets it
