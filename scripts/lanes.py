#!/usr/bin/env python3
"""Which test runs where: scripts/lanes.py [PATH…]

Without paths: the lanes that the change since origin/main touches. With paths, of tests or sources: theirs. The suite
is what ``scripts/test`` runs; a lane is run by ``scripts/test --lane NAME``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SUITE = "suite"
"""The name of what `scripts/test` runs without arguments."""


class Command(NamedTuple):
    """A program that a lane runs after its tests.

    why_not: why this machine can't run it; empty: it can.
    """

    words: tuple[str, ...]
    why_not: Callable[[], str] = str


class Lane(NamedTuple):
    """Tests that are run together.

    holds: the tests, for people.
    sources: beginnings of paths, below the checkout, whose change the lane has to pass.
    commands: programs that are run, too.
    """

    holds: str
    sources: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()


AWS_EXAMPLES = os.environ.get("MUSTER_AWS_EXAMPLES", "")
"""A clone of AWS's examples."""


def no_examples() -> str:
    return "" if AWS_EXAMPLES else "MUSTER_AWS_EXAMPLES names no clone of github.com/aws/amazon-sagemaker-examples"


def no_gpu() -> str:
    return "" if Path("/dev/nvidiactl").exists() else "this machine has no GPU"


class Row(NamedTuple):
    """Test files, or a folder of them.

    prefix: how their paths begin, below tests/; of several rows that fit, the longest prefix counts.
    lane: where they run.
    stages: those of scripts/setup that they need beside `test`.
    limit: seconds that one test may take; more is a hang.
    also: other lanes in which those run that have the marker `lane`, and the stages that these need.
    quick: whether `scripts/test --quick` has them.
    """

    prefix: str
    lane: str = SUITE
    stages: tuple[str, ...] = ()
    limit: int = 600
    also: Mapping[str, tuple[str, ...]] = {}
    quick: bool = False


CORE, EMBEDDED = "src/musterpoint/core/", "src/musterpoint/embedded/"
LANES = {
    SUITE: Lane(
        "style, types, rooms, unit tests, a job of two hosts for each promise, one MPI, S3, serve, the wheel, the demo",
        ("",),
        (Command(("scripts/demo",)),),
    ),
    "hosts": Lane(
        "jobs of two hosts: every option, report, platform and kind of failure",
        (CORE, EMBEDDED, *(f"src/musterpoint/{room}" for room in ("base", "cli", "local", "tools"))),
    ),
    "contract": Lane(
        "the real sagemaker-training, SDK v3's drivers, moto's control plane",
        (CORE + "job", CORE + "code", CORE + "outputs", EMBEDDED + "standins", "src/musterpoint/integrations"),
    ),
    "mpi": Lane(
        "Open MPI 5, MPICH, Intel MPI, and what goes wrong with mpirun",
        (
            CORE + "launch/mpi",
            CORE + "launch/launchers/mpi",
            CORE + "supervise/mpi",
            EMBEDDED + "programs/launch_agent",
        ),
    ),
    "tensorflow": Lane(
        "TensorFlow's strategies and parameter servers",
        (CORE + "launch/tensorflow", CORE + "launch/launchers/tensorflow", CORE + "launch/launchers/parameter_server"),
    ),
    "horovod": Lane(
        "Horovod for torch and TensorFlow, compiled",
        (
            CORE + "launch/horovod",
            EMBEDDED + "programs/horovod",
            "src/musterpoint_smdistributed/dataparallel/tensorflow",
        ),
    ),
    "deepspeed": Lane("DeepSpeed, compiled", (CORE + "launch/launchers/deepspeed",)),
    "huggingface": Lane(
        "transformers, accelerate and Lightning",
        (CORE + "launch/launchers/accelerate", "src/musterpoint_smdistributed/modelparallel"),
    ),
    "ray": Lane("Ray and Ray Train", (CORE + "launch/launchers/ray", EMBEDDED + "programs/ray")),
    "jax": Lane("JAX", (EMBEDDED + "startup/jax", CORE + "launch/launchers/jax")),
    "xgboost": Lane("XGBoost", (CORE + "launch/xgboost",)),
    "images": Lane(
        "base images, containers by docker run and compose, the SDKs' local modes",
        (
            "docker",
            "container",
            CORE + "processes",
            CORE + "entrypoint",
            "src/musterpoint/cli/train",
            "src/musterpoint/cli/bundle",
            "src/musterpoint/local/docker",
            EMBEDDED + "programs/pid1",
            "scripts/images",
            "scripts/build-image",
        ),
    ),
    "sdk": Lane("muster serve, whole; SDK v2 and v3, AWS's CLI and Airflow against it", ("src/musterpoint/serve",)),
    "slurm": Lane(
        "a real Slurm of two nodes", (CORE + "job/slurm", CORE + "job/platforms/slurm", CORE + "started_per")
    ),
    "kubernetes": Lane(
        "charts, manifests and the Action", ("deploy", "action.yml", CORE + "job/platforms/kube", "docs/kubernetes")
    ),
    "azureml": Lane("AzureML's jobs", (CORE + "job/azureml", CORE + "job/platforms/azureml", CORE + "started_per")),
    "smdistributed": Lane(
        "all of smdistributed, and AWS's published scripts",
        ("src/musterpoint_smdistributed",),
        (Command(("scripts/aws_examples", AWS_EXAMPLES), no_examples),),
    ),
    "pages": Lane(
        "what needs a browser, the site, and the documentation's blocks",
        ("docs", "README.md", "scripts/site", "src/musterpoint/tools/viewer", "src/musterpoint/serve/page"),
    ),
    "faults": Lane(
        "faults under every launcher",
        (CORE + "supervise", CORE + "processes", CORE + "channel", CORE + "diagnosis", EMBEDDED + "programs/rank_stub"),
    ),
    "fuzz": Lane(
        "fuzzers, generated models, hundreds of simulated hosts, scripts that are told to stop, culprits",
        (
            CORE + "channel",
            CORE + "rollcall",
            CORE + "job",
            CORE + "code",
            CORE + "processes/shell",
            CORE + "processes/signal_once",
            "scripts/fuzz",
        ),
        (Command(("scripts/fuzz", "--properties")),),
    ),
    "pythons": Lane(
        "other interpreters, shells, ssh, and the pairs of docs/migration.md",
        ("src/musterpoint/base", "src/musterpoint/cli", CORE + "processes/ssh", "docs/migration.md"),
    ),
    "release": Lane(
        "the wheel, and other files of a release", ("setup.cfg", "pyproject.toml", "MANIFEST.in", "scripts/release")
    ),
    "bench": Lane(
        "the benchmarks' programs",
        ("scripts/bench", "scripts/benchmarks"),
        (Command(("scripts/bench", "--only", "start,memory,stop", "--quick")),),
    ),
    "gpu": Lane(
        "scripts/gpu: dry, and where there is a GPU on that",
        ("scripts/gpu", "scripts/gpus"),
        (Command(("scripts/gpu",), no_gpu),),
    ),
}

SETS_UP = ("scripts/setup", "scripts/stacks.py", "scripts/environments.py", "scripts/constraints.txt")
"""What sets stages up."""
OPEN_MPI = ("openmpi4",)
ALL_MPI = ("openmpi4", "mpi")
S3 = ("s3",)
ROWS = (
    Row("unit/", quick=True, limit=300),
    # these import torch, start many processes, or measure how long much takes
    Row("unit/base/test_masking"),
    Row("unit/cli/test_bundle", also={"pythons": ()}),
    Row("unit/cli/test_driver"),
    Row("unit/cli/test_launch"),
    Row("unit/core/code/test_install."),
    Row("unit/core/data/test_moves"),
    Row("unit/core/diagnosis/test_real_programs"),
    Row("unit/core/diagnosis/test_scripts", also={"fuzz": ()}),
    Row("unit/core/launch/test_no_names"),
    Row("unit/core/started_per_rank/"),
    Row("unit/core/supervise/test_restarts"),
    Row("unit/core/test_entrypoint"),
    Row("unit/embedded/programs/test_checkpoint_kinds"),
    Row("unit/embedded/programs/test_launch_agent"),
    Row("unit/embedded/programs/test_stack_sampler", also={"faults": ()}),
    Row("unit/embedded/startup/test_stack_dumps"),
    Row("unit/local/test_cpu_fallback", also={"hosts": ()}),
    Row("unit/local/test_gloo_exit"),
    Row("unit/local/test_options"),
    Row("unit/local/test_patience"),
    Row("unit/test_metadata"),
    Row("unit/test_portability"),
    Row("unit/test_reaper"),
    Row("unit/test_start_path"),
    Row("unit/tools/check/test_gpus", quick=True, also={"gpu": ("compiler",)}),
    Row("unit/tools/test_plan_variables"),
    # and these are in lanes
    Row("unit/cli/test_completion", "pythons", ("shells",)),
    Row("unit/core/processes/test_ssh_door", "pythons", ("ssh",)),
    Row("unit/core/code/test_archive_bounds", "fuzz"),
    Row("unit/core/supervise/test_crowd", "fuzz"),
    Row("unit/test_culprits", "fuzz"),
    Row("unit/smdistributed/", "smdistributed"),
    Row("unit/smdistributed/test_config"),
    Row("unit/smdistributed/test_finder"),
    Row("unit/smdistributed/test_lives"),
    Row("unit/smdistributed/test_model_parallel."),
    Row("unit/smdistributed/test_names"),
    Row("unit/smdistributed/test_partition"),
    Row("unit/smdistributed/test_rank_environment"),
    Row("unit/smdistributed/test_sharding"),
    Row("unit/smdistributed/test_smddp"),
    Row("unit/smdistributed/test_step"),
    Row("unit/smdistributed/test_topology"),
    Row("unit/smdistributed/test_transport"),
    Row("unit/smdistributed/test_generated", "fuzz"),
    Row("contract/", "contract", ("peer", "s3", "sdk-v3")),
    Row("docs/", "pages", ("kubernetes",)),
    Row("docs/test_printed_commands", quick=True),
    Row("faults/", "faults", ("openmpi4", "mpi", "deepspeed", "horovod-gloo", "tensorflow"), limit=1200),
    Row("faults/test_containers", "images", ("images",), limit=1200),
    Row("faults/test_tables"),
    # jobs of two hosts: one test for each promise of the documentation is in the suite, by its marker
    Row("hosts/", "hosts", also={SUITE: ()}),
    Row("hosts/mpi/", "mpi", ALL_MPI, also={SUITE: OPEN_MPI}),
    Row("hosts/stacks/test_checkpoints_of_trainers", "deepspeed", ("deepspeed", "huggingface")),
    Row("hosts/stacks/test_deepspeed", "deepspeed", ("openmpi4", "deepspeed", "ssh")),
    Row("hosts/stacks/test_horovod", "horovod", ("openmpi4", "horovod", "horovod-gloo", "horovod-tf")),
    Row("hosts/stacks/test_huggingface", "huggingface", ("huggingface",), limit=1200),
    Row("hosts/stacks/test_jax", "jax", ("jax",)),
    Row("hosts/stacks/test_lightning", "huggingface", ("huggingface",)),
    Row("hosts/stacks/test_ray", "ray", ("ray",)),
    Row("hosts/stacks/test_xgboost", "xgboost", ("xgboost",)),
    Row("hosts/tensorflow/", "tensorflow", ("tensorflow",)),
    Row("hosts/tensorflow/test_smdistributed", "horovod", ("openmpi4", "horovod-tf", "tensorflow")),
    Row("hosts/test_action", "kubernetes", ("kubernetes",)),
    Row("hosts/test_azureml", "azureml"),
    Row("hosts/test_check.", "hosts", also={SUITE: (), "faults": ("compiler",)}),
    Row("hosts/test_checkpoints.", "hosts", S3, also={SUITE: S3}),
    Row("hosts/test_code.", "hosts", S3, also={SUITE: S3}),
    Row("hosts/test_code_index", "hosts", S3, also={SUITE: S3}),
    Row("hosts/test_data", "hosts", S3, also={SUITE: S3}),
    Row("hosts/test_fuzz", "fuzz", ("shells",), limit=1200),
    Row("hosts/test_gpu_script", "gpu", limit=2000),
    Row("hosts/test_kubernetes_files", "kubernetes", ("kubernetes",)),
    Row("hosts/test_platform_plugin", also={"hosts": ()}),
    Row("hosts/test_migration", "pythons", ("openmpi4", "deepspeed", "horovod-gloo", "huggingface", "ray")),
    Row("hosts/test_mounts"),
    Row("hosts/test_outputs", "hosts", S3, also={SUITE: S3}),
    Row("hosts/test_own_launcher", also={"hosts": ()}),
    Row("hosts/test_placement"),
    Row("hosts/test_plan"),
    Row("hosts/test_release", "release", ("release",), limit=1200),
    Row("hosts/test_report_page", "pages", ("browser",)),
    Row("hosts/test_sagemaker_training", "contract", ("peer",)),
    Row("hosts/test_site", "pages", ("site",)),
    Row("hosts/test_slurm", "slurm", ("openmpi4", "mpi", "slurm")),
    Row("hosts/test_smdistributed", "smdistributed", OPEN_MPI),
    Row("hosts/test_ssh", "pythons", ("ssh",)),
    Row("hosts/test_stop_early"),
    Row("hosts/test_torchrun_command"),
    Row("hosts/test_user_text"),
    Row("hosts/test_wheel"),
    Row("images/", "images", ("images",), limit=1200),
    Row("images/test_aws_shape", "images", ("images", "aws-image"), limit=1200),
    Row("images/test_kubernetes", "images", ("images", "kubernetes"), limit=1200),
    Row("images/test_sdk_v2", "images", ("images", "sdk-v2"), limit=1200),
    Row("images/test_sdk_v3", "images", ("images", "sdk-v3"), limit=1200),
    Row("serve/", also={"sdk": ()}),
    Row("serve/clients/", "sdk", ("aws-cli", "airflow", "sdk-v2", "sdk-v3")),
    Row("serve/test_page", "pages", ("browser",)),
)


def row(path: str) -> Row | None:
    """The row of a file, by its path below the checkout; None: it has none."""
    found = [each for each in ROWS if path.startswith(f"tests/{each.prefix}")]
    return max(found, key=lambda each: len(each.prefix), default=None)


def has_tests(lane: str) -> bool:
    """Whether the lane is more than its commands."""
    return any(lane == each.lane or lane in each.also for each in ROWS)


def stages_of(lane: str) -> set[str]:
    """What the tests of a lane need."""
    found = {stage for each in ROWS for stage in each.also.get(lane, ())}
    return found.union(*(each.stages for each in ROWS if each.lane == lane))


def stages_below(paths: Sequence[str]) -> set[str]:
    """What tests below these paths may need, in whatever lane."""
    found: set[str] = set()
    for each in rows_below(paths):
        found.update(each.stages, *each.also.values())
    return found


def rows_below(paths: Iterable[str]) -> list[Row]:
    """The rows of tests at or below these paths, files and folders from the root of the checkout."""
    places = [path.partition("::")[0].removeprefix("./") for path in paths]
    return [
        each
        for each in ROWS
        if any(place in ("", ".") or f"tests/{each.prefix}".startswith(place) or row(place) is each for place in places)
    ]


def touched(paths: Iterable[str]) -> list[str]:
    """The lanes that a change of these files, by paths below the checkout, has to pass; folders end with a slash."""
    found: set[str] = set()
    for path in paths:
        for each in rows_below([path]):
            found.update((each.lane, *each.also))
        if path.startswith("tests/"):
            continue
        for name, lane in LANES.items():
            if path.startswith(lane.sources) or (path.endswith("/") and any(s.startswith(path) for s in lane.sources)):
                found.add(name)
            if path in SETS_UP and stages_of(name):
                found.add(name)
    return [name for name in LANES if name in found]


def git(*command: str) -> list[str]:
    """The words, each ended by NUL or a new line, that a git command prints; none: it failed."""
    done = subprocess.run(("git", *command), cwd=ROOT, capture_output=True, check=False)
    words = b"" if done.returncode else done.stdout.replace(b"\n", b"\0")
    return [os.fsdecode(word) for word in words.split(b"\0") if word]


def changed() -> list[str]:
    """Files that differ between this tree and where it left origin/main, else the commit before the last."""
    base = git("merge-base", "HEAD", "origin/main") or ["HEAD~1"]
    return [*git("diff", "-z", "--name-only", base[0]), *git("ls-files", "-z", "--others", "--exclude-standard")]


def main(paths: list[str]) -> int:
    if {"--help", "-h"} & set(paths):
        print(__doc__)
        return 0
    places = [Path(path).absolute() if Path(path).exists() else ROOT / path for path in paths]
    unknown = [str(place) for place in places if not place.exists() or not place.is_relative_to(ROOT)]
    if unknown:
        print(f"lanes: {unknown[0]}: no such path below {ROOT}", file=sys.stderr)
        return 64
    named = [os.path.relpath(place, ROOT) + "/" * place.is_dir() for place in places]
    for name in touched(named or changed()):
        print(f"{name:14} {LANES[name].holds}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
