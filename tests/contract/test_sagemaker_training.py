"""The same job trees through the real sagemaker-training and through ours: what does the user's program see?

Compared are all variables, the arguments and the working directory. Differences are allowed only where
:data:`differences.DIFFERENCES` lists one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from musterpoint.base.settings import Settings
from musterpoint.core.code.workspace import Code
from musterpoint.core.job.exports import Machine, sagemaker_exports
from musterpoint.core.job.read import read_job

from ..hosts.packages import PYPROJECT, Index, backend, wheel
from ..ports import free_port
from .conftest import Theirs
from .differences import CHECKS, DIFFERENCES, ELSEWHERE, compare, pairs

DUMP = """
import json, os, sys
with open(os.environ["DUMP"], "w") as file:
    json.dump({"argv": sys.argv, "cwd": os.getcwd(), "environ": dict(os.environ)}, file)
"""
SHELL = 'exec "$DUMP_PYTHON" "$(dirname "$0")/dump.py" "$0" "$@"\n'
SETUP = "from setuptools import setup\nsetup(name='d')\n"
ONE_HOST = {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "eth0"}
FILE_CHANNEL = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}


class Tree(NamedTuple):
    """One job. ``files`` are the code directory's, with their modes; ``source`` are those of ``sources/``.

    ``{sources}`` in a hyperparameter stands for that directory, or for its archive.
    """

    program: str = "dump.py"
    hyperparameters: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    resources: dict[str, Any] = ONE_HOST
    environ: dict[str, str] = {}
    files: dict[str, tuple[str, int]] = {"dump.py": (DUMP, 0o644)}
    source: dict[str, tuple[str, int]] = {}
    packed: bool = False
    """Whether ``sources/`` is packed, as the SDK packs a source directory."""
    folders: tuple[str, ...] = ()
    """What the platform made besides."""
    pip: bool = False
    """Whether what pip is asked is compared, too."""
    starts: bool = True
    """Whether our ``train`` starts the program alone, as theirs does; else only functions are compared."""
    shows: frozenset[str] = frozenset()
    """Rows of the differences that this job needs."""


def groups(*entries: tuple[str, str, list[str]]) -> list[dict[str, Any]]:
    return [{"instance_group_name": name, "instance_type": kind, "hosts": hosts} for name, kind, hosts in entries]


SDK_V2 = {
    "sagemaker_program": '"dump.py"',
    "sagemaker_container_log_level": "20",
    "sagemaker_job_name": '"JOB"',
    "sagemaker_region": '"us-west-2"',
}
HOMOGENEOUS = {
    "current_host": "algo-1",
    "hosts": ["algo-1", "algo-2"],
    "network_interface_name": "eth0",
    "current_instance_type": "ml.m5.xlarge",
    "current_group_name": "homogeneousCluster",
    "instance_groups": groups(("homogeneousCluster", "ml.m5.xlarge", ["algo-1", "algo-2"])),
    "topology": None,
}
MIXED = {
    **HOMOGENEOUS,
    "hosts": ["algo-1", "algo-2", "algo-3"],
    "current_group_name": "cpu",
    "instance_groups": groups(("cpu", "ml.m5.xlarge", ["algo-1"]), ("gpu", "ml.g5.xlarge", ["algo-2", "algo-3"])),
}

TREES: dict[str, Tree] = {
    "nothing but the program": Tree(
        shows=frozenset({
            "SAGEMAKER_JOB_NAME", "SM_TRAINING_ENV", "PYTHONPATH", "PYTHONUNBUFFERED, PYTHONFAULTHANDLER", "MUSTER_*",
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "TORCHELASTIC_RESTART_COUNT",
            "SM_CHECKPOINT_DIR, SM_CURRENT_HOST_RANK, SM_ENTRY_SCRIPT, SM_HOST_COUNT, SM_INPUT_DATA_DIR, "
            "SM_MASTER_ADDR, SM_MASTER_PORT, SM_OUTPUT_FAILURE, SM_SOURCE_DIR",
        }),
    ),
    "hosts in no order": Tree(
        resources={**ONE_HOST, "hosts": ["algo-10", "algo-2", "algo-1"]},
        shows=frozenset({"SM_HOSTS, every list of hosts", "NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, TP_SOCKET_IFNAME",
                         "MASTER_ADDR, MASTER_PORT, NODE_RANK, NNODES, NPROC_PER_NODE"}),
    ),
    "a group's hosts in no order": Tree(
        resources={"current_host": "algo-2", "hosts": ["algo-10", "algo-2"], "current_group_name": "g",
                   "current_instance_type": "ml.m5.xlarge",
                   "instance_groups": groups(("g", "ml.m5.xlarge", ["algo-10", "algo-2"]))},
        shows=frozenset({"SM_INSTANCE_GROUPS, SM_INSTANCE_GROUPS_DICT, SM_CURRENT_INSTANCE_GROUP_HOSTS"}),
    ),
    "variables that are set already": Tree(
        environ={"SM_MODEL_DIR": "/srv", "SM_HOSTS": "[]", "OMP_NUM_THREADS": "3", "PYTHONUNBUFFERED": "", "X": "1"},
        shows=frozenset({"variables that are set already"}),
    ),
    "our options": Tree(environ={"MUSTER_SLOTS": "1", "MUSTER_LOG_PREFIX": "none"}, shows=frozenset({"MUSTER_*"})),
    "a directory for metrics": Tree(
        folders=("output/metrics/sagemaker",), shows=frozenset({"SAGEMAKER_METRICS_DIRECTORY"})
    ),
    "an SDK v2 estimator": Tree(hyperparameters={"epochs": "3", "lr": "0.1", **SDK_V2}, resources=HOMOGENEOUS),
    "every type of value": Tree(
        hyperparameters={
            "int": "3", "float": "0.1", "big": "1e5", "text": '"a b"', "raw": "a b", "true": "true", "false": "false",
            "null": "null", "list": '[1, "x", null]', "object": '{"b": 1, "a": [1, 2], "c": null}', "empty": '""',
            "blank": "", "quoted": "it's \"so\"", "number": 7, "unicode": '"\u00e4\u4e2d"', "nan": "NaN",
            "lines": "a\\nb", "zeros": "007", "version": "1.10",
        },
    ),
    "values that aren't strings": Tree(hyperparameters={"a": 1, "b": [1], "c": {"x": 1}, "d": None, "e": True}),
    "one letter names": Tree(
        hyperparameters={"b": "1", "a": "2", "z": '{"k": 1}'},
        shows=frozenset({"SM_USER_ARGS, the program's arguments"}),
    ),
    "odd names": Tree(
        hyperparameters={"batch-size": "1", "a.b": "2", "a b": "3", "a/b": "4", "\u00e4": "5"},
        shows=frozenset({"SM_HP_*, SM_CHANNEL_*"}),
    ),
    "model_dir and mp_parameters": Tree(
        hyperparameters={"model_dir": '"s3://b/m"', "mp_parameters": '{"ddp": true}'},
        shows=frozenset({"SMDISTRIBUTED_TOKEN"}),
    ),
    "the tuning service's own": Tree(hyperparameters={"_tuning_objective_metric": "loss", "lr": "0.1"}),
    "framework parameters": Tree(hyperparameters={"sagemaker_s3_output": "null", "sagemaker_estimator": '"RL"'}),
    "no region but the machine's": Tree(environ={"AWS_DEFAULT_REGION": "eu-west-1"}),
    "a job name of the platform's": Tree(environ={"TRAINING_JOB_NAME": "JOB-1"}, hyperparameters=SDK_V2),
    "an image's program": Tree(environ={"SAGEMAKER_PROGRAM": "dump.py"}, hyperparameters={"sagemaker_program": "x.py"}),
    "an empty variable for the source": Tree(environ={"SAGEMAKER_SUBMIT_DIRECTORY": ""}),
    "channels": Tree(inputs={"train": FILE_CHANNEL, "test": {"TrainingInputMode": "Pipe", "ContentType": "text/csv"}}),
    "odd channels": Tree(inputs={"my-channel.v2": FILE_CHANNEL, "UP": {}, "x_1": {"TrainingInputMode": "File"}}),
    "local mode of SDK v2": Tree(
        resources={**ONE_HOST, "current_host": "algo-1-w8w6m", "hosts": ["algo-1-w8w6m"],
                   "current_instance_type": "local"},
    ),
    "local mode of SDK v3": Tree(resources={**ONE_HOST, "network_interface_name": "ethwe"}),
    "a topology": Tree(resources={**HOMOGENEOUS, "topology": [{"hostName": "algo-1", "capacityUnitId": "1"}]}),
    "two hosts, the second": Tree(resources={**HOMOGENEOUS, "current_host": "algo-2"}),
    "groups without distribution": Tree(resources=MIXED),
    "groups with their mpi off": Tree(
        resources=MIXED,
        hyperparameters={"sagemaker_mpi_enabled": "false", "sagemaker_distribution_instance_groups": '["gpu"]'},
    ),
    "torch_distributed": Tree(
        resources=HOMOGENEOUS, starts=False,
        hyperparameters={**SDK_V2, "sagemaker_torch_distributed_enabled": "true",
                         "sagemaker_instance_type": '"ml.m5.xlarge"'},
    ),
    "torch_distributed on one of two groups": Tree(
        resources=MIXED, starts=False,
        hyperparameters={"sagemaker_torch_distributed_enabled": "true",
                         "sagemaker_distribution_instance_groups": '["gpu"]'},
    ),
    "a parameter server on an old tree": Tree(
        resources={**HOMOGENEOUS, "instance_groups": []}, starts=False,
        hyperparameters={"sagemaker_parameter_server_enabled": "true"},
    ),
    "smddp": Tree(
        resources=HOMOGENEOUS, starts=False,
        hyperparameters={"sagemaker_distributed_dataparallel_enabled": "true", "sagemaker_instance_type": "null",
                         "sagemaker_distributed_dataparallel_custom_mpi_options": '""'},
    ),
    "a script in a folder": Tree(program="src/dump.py", files={"src/dump.py": (DUMP, 0o644)}),
    "a shell script": Tree(
        program="train.sh", hyperparameters={"a": "it's", "msg": "two words; $HOME"},
        files={"dump.py": (DUMP, 0o644), "train.sh": ("#!/bin/bash\n" + SHELL, 0o644)},
    ),
    "a shell script without a first line": Tree(
        program="bin/run.sh", files={"bin/dump.py": (DUMP, 0o644), "bin/run.sh": (SHELL, 0o644)},
    ),
    "a program of another kind": Tree(
        program="start", hyperparameters={"lr": "0.1"},
        files={"dump.py": (DUMP, 0o644), "start": ("#!/bin/sh\n" + SHELL, 0o755)},
    ),
    "a program of another kind that nothing marks as one": Tree(
        program="start", files={"dump.py": (DUMP, 0o644), "start": (SHELL, 0o644)},
    ),
    "a package": Tree(hyperparameters={"x": "1"}, files={"dump.py": (DUMP, 0o644), "setup.py": (SETUP, 0o644)}),
    "a package's module": Tree(program="dump", files={"dump.py": (DUMP, 0o644), "setup.py": (SETUP, 0o644)}),
    "a source directory elsewhere": Tree(
        files={}, source={"dump.py": (DUMP, 0o644), "lib/part.py": ("", 0o644)},
        hyperparameters={"sagemaker_submit_directory": "{sources}"},
    ),
    "one file as source": Tree(
        files={}, source={"dump.py": (DUMP, 0o644)},
        hyperparameters={"sagemaker_submit_directory": "{sources}/dump.py"},
    ),
    "requirements": Tree(files={"dump.py": (DUMP, 0o644), "requirements.txt": ("x\n", 0o644)}, pip=True),
    "requirements beside a program of another kind": Tree(
        program="start", pip=True,
        files={"dump.py": (DUMP, 0o644), "start": ("#!/bin/sh\n" + SHELL, 0o755), "requirements.txt": ("x\n", 0o644)},
    ),
    "a package beside a shell script": Tree(
        program="train.sh", pip=True,
        files={"dump.py": (DUMP, 0o644), "train.sh": (SHELL, 0o644), "setup.py": (SETUP, 0o644)},
    ),
    "code that is there already": Tree(hyperparameters={"sagemaker_submit_directory": '"s3://bucket/key"'}),
}  # fmt: skip

NAMES = ("lr", "batch-size", "epochs", "x", "Model.Name", "weight_decay", "layers", "q", "verbose", "data_path")
VALUES = (
    1, -2.5, 1e-8, 10**20, "text", "two words", "", True, False, None, [1, 2], ["a", None], {"k": "v", "a": 1.0}, {},
    "s3://bucket/key", "--flag", "a=b,c=d", "\u00fc",
)  # fmt: skip


def generated(seed: int) -> Tree:
    """A tree with random hyperparameters (JSON, or raw as SDK v3 sends strings), channels and resource keys."""
    pick = random.Random(seed)
    hyperparameters = {}
    for name in pick.sample(NAMES, pick.randint(0, len(NAMES))):
        value = pick.choice(VALUES)
        hyperparameters[name] = value if isinstance(value, str) and pick.random() < 0.5 else json.dumps(value)
    optional = {key: HOMOGENEOUS[key] for key in HOMOGENEOUS if key not in ("current_host", "hosts")}
    kept = pick.sample(sorted(optional), pick.randint(0, len(optional)))
    if "instance_groups" in kept:
        kept += ["current_instance_type", "current_group_name"]
    return Tree(
        hyperparameters={**hyperparameters, **(SDK_V2 if pick.random() < 0.5 else {})},
        inputs=dict.fromkeys(pick.sample(("train", "test", "a-b", "c.d"), pick.randint(0, 4)), FILE_CHANNEL),
        resources={"current_host": "algo-2", "hosts": ["algo-1", "algo-2"], **{key: optional[key] for key in kept}},
    )


TREES.update({f"generated {seed}": generated(seed) for seed in range(8)})


class Seen(NamedTuple):
    """What the user's program saw."""

    argv: list[str]
    cwd: str
    variables: dict[str, str]


def write(tree: Tree, base: Path) -> None:
    """Makes the tree anew, so that neither side sees what the other left."""
    shutil.rmtree(base, ignore_errors=True)
    sources = base.parent / "sources"
    shutil.rmtree(sources, ignore_errors=True)
    config = base / "input" / "config"
    for folder in (config, base / "code", base / "model", base / "output" / "data", sources):
        folder.mkdir(parents=True)
    for name in tree.folders:
        (base / name).mkdir(parents=True)
    given = {"sagemaker_program": json.dumps(tree.program), **tree.hyperparameters}
    place = str(base.parent / "sourcedir.tar.gz" if tree.packed else sources)
    hyperparameters = {
        name: value.replace("{sources}", place) if isinstance(value, str) else value for name, value in given.items()
    }
    (config / "hyperparameters.json").write_text(json.dumps(hyperparameters))
    (config / "inputdataconfig.json").write_text(json.dumps(tree.inputs))
    (config / "resourceconfig.json").write_text(json.dumps(tree.resources))
    for root, files in ((base / "code", tree.files), (sources, tree.source)):
        for name, (content, mode) in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
            (root / name).chmod(mode)
    if tree.packed:
        with tarfile.open(place, "w:gz") as made:
            for name in sorted(os.listdir(sources)):
                made.add(sources / name, name)


def asked_of_pip(calls: Path) -> list[Any]:
    """Each call's words and directory; ``.`` stands for the directory of a package."""
    found = [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
    calls.unlink(missing_ok=True)
    return found


def run_theirs(their_train: Theirs, environ: dict[str, str], dump: Path) -> Seen:
    dump.unlink(missing_ok=True)
    output = dump.with_name("their output")
    assert their_train({**environ, "DUMP": str(dump)}, output) == 0, output.read_text()
    return seen(dump)


def run(command: list[str], environ: dict[str, str], dump: Path, cwd: str = "/") -> Seen:
    dump.unlink(missing_ok=True)
    done = subprocess.run(
        command, env={**environ, "DUMP": str(dump)}, capture_output=True, text=True, timeout=500, check=False, cwd=cwd
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return seen(dump)


def run_ours(tree: Tree, environ: dict[str, str], base: Path, dump: Path) -> Seen:
    """Our ``train`` on the tree's host, and on all others of the job beside it, which meet as on the platform."""
    command, hosts = [sys.executable, "-m", "musterpoint.cli.train"], tree.resources["hosts"]
    if len(hosts) == 1:
        return run(command, environ, dump)
    names = base.parent / "hosts"
    names.write_text("".join(f"127.0.0.{20 + at} {host}\n" for at, host in enumerate(hosts)))
    environ = {**environ, "MUSTER_HOSTS_FILE": str(names), "MUSTER_ROLLCALL_PORT": str(free_port())}
    others = []
    for host in hosts:
        if host != tree.resources["current_host"]:
            folder = base.parent / host
            write(tree._replace(resources=seen_by(host, tree.resources)), folder / "ml")
            own = {"SAGEMAKER_BASE_DIR": folder / "ml", "DUMP": folder / "dump.json", "PIP_CALLS": folder / "calls"}
            variables = {**environ, **{name: str(path) for name, path in own.items()}}
            others.append(subprocess.Popen(command, env=variables, cwd="/"))
    try:
        return run(command, environ, dump)
    finally:
        for other in others:
            assert other.wait(500) == 0


def seen_by(host: str, resources: dict[str, Any]) -> dict[str, Any]:
    """The job's hosts as the platform describes them to ``host``."""
    found = {**resources, "current_host": host}
    for group in resources.get("instance_groups", ()):
        if host in group["hosts"]:
            found.update(current_group_name=group["instance_group_name"], current_instance_type=group["instance_type"])
    return found


def seen(dump: Path) -> Seen:
    found = json.loads(dump.read_text())
    return Seen(found["argv"], found["cwd"], found["environ"])


def run_alone(environ: dict[str, str], dump: Path) -> Seen:
    """The program as the rooms ``job`` and ``code`` prepare it, without a launcher around it."""
    job = read_job(environ, Settings())
    workspace = Code(job, environ, sys.executable).workspace(job, sys.executable)
    exports = sagemaker_exports(job, environ, Machine(cpus=os.cpu_count() or 1))
    return run(list(workspace.argv), {**environ, **dict(exports)}, dump, workspace.cwd)


@pytest.mark.parametrize("name", TREES)
def test_the_program_sees_the_same(
    name: str, their_train: Theirs, our_path: str, both_environ: dict[str, str], tmp_path: Path
) -> None:
    tree, base, dump = TREES[name], tmp_path / "ml", tmp_path / "dump.json"
    environ = {**both_environ, **tree.environ}
    calls = tmp_path / "calls"
    if tree.pip:
        environ["PIP_CALLS"] = str(calls)
    write(tree, base)
    theirs = run_theirs(their_train, environ, dump)
    their_pip = asked_of_pip(calls)
    write(tree, base)
    our_environ = {**environ, "PYTHONPATH": our_path}
    ours = run_ours(tree, our_environ, base, dump) if tree.starts else run_alone(environ, dump)
    assert asked_of_pip(calls) == their_pip
    own = 1 if tree.program.endswith((".py", "dump")) else 2  # a shell script hands its $0 on
    assert ours.argv[:own] == theirs.argv[:own]
    assert pairs(ours.argv[own:]) == pairs(theirs.argv[own:])
    assert ours.cwd == theirs.cwd
    needed = compare(ours.variables, theirs.variables, environ)
    assert tree.shows <= needed


def test_every_row_of_the_differences_is_checked() -> None:
    assert {row.where for row in DIFFERENCES} == {*CHECKS, *ELSEWHERE}
    shown = set[str]().union(*(tree.shows for tree in TREES.values()))
    assert shown == {*CHECKS}


PROGRAM = """
import importlib.metadata, json, os, sys
import mp_peer, mp_needed
print(json.dumps([__name__, sys.argv[1:], os.getcwd(), mp_peer.BUILT, mp_needed.VERSION]))
print(importlib.metadata.version("mp-peer"))
"""


@pytest.fixture
def own_environment(peer: Path, tmp_path: Path) -> Path:
    """A virtual environment to install into, in which the peer's packages are found, too."""
    folder = tmp_path / "own"
    subprocess.run([peer / "python", "-m", "venv", folder], check=True, timeout=500)
    theirs = next(peer.parent.glob("lib/python3*/site-packages"))
    (next(folder.glob("lib/python3*/site-packages")) / "theirs.pth").write_text(f"{theirs}\n")
    return folder / "bin"


def test_a_packaged_job_with_requirements_really_installed(
    own_environment: Path, tmp_path: Path, both_environ: dict[str, str], environ: dict[str, str]
) -> None:
    """Both install the same package and requirements with the real pip, each into a Python of its own, and run it."""
    index = Index(backend(), wheel("mp-needed", "1.5"))
    source = {
        "setup.py": "", "pyproject.toml": PYPROJECT.replace("NAME", "mp-peer"), "requirements.txt": "mp-needed<2\n",
        "train.py": PROGRAM,
    }  # fmt: skip
    tree = Tree(
        program="train.py", files={}, source={name: (text, 0o644) for name, text in source.items()}, packed=True,
        hyperparameters={"sagemaker_submit_directory": "{sources}", "lr": "0.1"},
    )  # fmt: skip
    base = tmp_path / "ml"
    more = {"PYTHONPATH": environ["PYTHONPATH"], "PIP_INDEX_URL": index.url, "PIP_CONFIG_FILE": os.devnull}
    environ = {**both_environ, **more, "PIP_NO_CACHE_DIR": "1"}
    said = []
    try:
        for command in (["sagemaker_training.cli.train"], ["musterpoint.cli.train"]):
            write(tree, base)
            python = own_environment / "python"
            subprocess.run([python, "-m", "pip", "uninstall", "-qy", "mp-peer", "mp-needed"], env=environ, check=True)
            done = subprocess.run(
                [python, "-c", f"import {command[0]} as train; train.main()", *command[1:]], env=environ,
                capture_output=True, text=True, timeout=500, check=False, cwd="/",
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            said.append([line for line in done.stdout.splitlines() if line.startswith(('["__main__', "1.0"))])
    finally:
        index.close()
    assert len(said[0]) == 2
    assert said[0] == said[1]
