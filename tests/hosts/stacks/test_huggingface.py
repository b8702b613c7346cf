"""accelerate and Hugging Face's Trainer on two hosts: one world under every launcher, and what would make several.

Without what is set here, accelerate 1.15 makes each rank on CPUs a world of its own, which ends with 0.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.core.fabric.accelerate_config import ask_accelerate

from ...ports import free_port
from ..conftest import survivors, together
from ..test_launch import HOSTS, Hosts
from .conftest import shown, trained
from .generated_degrees import drawn, exact, once_wrong, refused

pytestmark = pytest.mark.netns
PROGRAMS = Path(__file__).parent / "programs"

TWO = ("--hosts", "2", "--backend", "netns")
CONFIG = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_state_dict_type: SHARDED_STATE_DICT}
mixed_precision: bf16
num_machines: 4
num_processes: 32
machine_rank: 0
main_training_function: main
use_cpu: false
"""


@pytest.fixture
def hugging(local, stack, tmp_path: Path):  # type: ignore[no-untyped-def]
    """``muster local`` whose programs have accelerate and transformers, in a home without settings."""
    local.environ |= {"MUSTER_PYTHON": str(stack("huggingface") / "python"), "HF_HOME": str(tmp_path / "hugging")}
    local.environ["MUSTER_STALL_TIMEOUT"] = "60"  # a hang says where it is
    return local


def test_accelerate_trains_one_world_as_its_file_says(hugging, root: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """A SageMaker job. The file of `accelerate config` is followed where it is about more than the job's shape."""
    file = tmp_path / "hugging" / "accelerate" / "default_config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(CONFIG)
    line = shown(root, "huggingface.md", "examples/huggingface/accelerated.py")
    ran = hugging.run("--backend", "netns", *line, "--epochs", "2", "--batch-size", "128")
    assert ran.code == 0, ran.stderr + ran.stdout
    assert sorted(trained(ran.stdout)) == [0, 1, 2, 3]
    assert len(set(re.findall(r"rank \d weights (\S+)", ran.stdout))) == 1
    for rank in range(4):
        assert f"rank {rank} of 4 on cpu:0, bf16" in ran.stdout
    assert f"{file}: num_processes 32 isn't followed, it is 4 here" in ran.log("algo-2")
    assert f"warning: {file} asks for FSDP, but accelerate finds no accelerator on algo-2" in ran.log("algo-2")
    assert "none of the" not in ran.stderr


def test_the_trainer_trains_one_world(hugging, root: Path) -> None:  # type: ignore[no-untyped-def]
    line = shown(root, "huggingface.md", "examples/huggingface/trainer.py")
    ran = hugging.run("--backend", "netns", *line, "--max_steps", "4")
    assert ran.code == 0, ran.stderr + ran.stdout
    check_one_world(ran)


def check_one_world(ran) -> None:  # type: ignore[no-untyped-def]
    assert len(re.findall(r"rank \d of 2 on cpu:0", ran.stdout)) == 2, ran.stdout
    weights = re.findall(r"rank \d loss \S+ weights (\S+)", ran.stdout)
    assert len(weights) == 2
    assert len(set(weights)) == 1
    assert "none of the" not in ran.stderr


FAILS = """
import os
from accelerate import Accelerator
accelerator = Accelerator()
if accelerator.process_index == 1:
    raise LookupError("no such shard")
accelerator.wait_for_everyone()
"""


def test_a_failing_rank_of_accelerate_launch_is_the_reason(hugging) -> None:  # type: ignore[no-untyped-def]
    ran = hugging.run(*TWO, "accelerate", "launch", "--num_processes", "2", hugging.program(FAILS))
    assert ran.code == 1, ran.stderr
    assert ran.reason.startswith("LookupError: no such shard\nrank 1 (local rank 0) on algo-2, exit code 1")


ALONE = """
import torch
print("trains alone", flush=True)
"""


@pytest.mark.parametrize(("launcher", "code"), [("accelerate", 72), ("torchrun", 0)])
def test_ranks_that_never_meet(hugging, launcher: str, code: int) -> None:  # type: ignore[no-untyped-def]
    """Under accelerate that is a failure, elsewhere a warning. torchrun's own connections to the port don't count."""
    ran = hugging.run("--hosts", "1", "--slots", "2", "--launcher", launcher, hugging.program(ALONE))
    assert ran.code == code, ran.stderr
    said = r"none of the 2 ranks connected to port \d+ of algo-1, where they were to meet: each ran alone"
    if code:
        assert re.match(f"muster: {said}", ran.reason)
        assert "ACCELERATE_USE_CPU=true" in ran.reason
    else:
        assert re.search(f"warning: {said}", ran.log("algo-1"))


ADDS = """
import sys, time, torch
from accelerate import Accelerator
own = Accelerator()
total = own.reduce(torch.tensor(own.process_index))
print(f"rank {own.process_index} of {own.num_processes} on {own.device}, {own.mixed_precision}: {total} {sys.argv[1:]}")
time.sleep(0.2)  # destroying the group while gloo frees the last tensors may hang (torch)
own.end_training()
"""


def test_accelerate_launch_as_the_program(hugging, python: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """On hosts that another toolkit describes. By itself this line starts two worlds of one."""
    hosts = Hosts(python, hugging.environ, tmp_path)
    hosts.program(ADDS)
    path = f"{Path(hugging.environ['MUSTER_PYTHON']).parent}{os.pathsep}{hugging.environ['PATH']}"
    line = ("--cpu", "--num_processes", "4", "--num_machines", "2", "--machine_rank", "0", "--mixed_precision", "bf16")
    hosts.run("accelerate", "launch", *line, "train.py", "--lr", "1", PATH=path)
    assert hosts.codes == dict.fromkeys(HOSTS, 0), hosts.logs
    for rank in range(4):
        assert f"rank {rank} of 4 on cpu:0, bf16: 6 ['--lr', '1']" in hosts.logs[HOSTS[rank // 2]]
    assert "accelerate launch: machine_rank 0 isn't followed, it is 1 here" in hosts.logs[HOSTS[1]]
    assert survivors(hosts.token) == [], "processes of the job were left behind"


def test_what_accelerate_itself_says(hugging, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Its own parser and its reader of files, for what people type."""
    (tmp_path / "fsdp.yaml").write_text(CONFIG)
    environ = {**hugging.environ, "ACCELERATE_LOG_LEVEL": "info"}

    def ask(*words: str) -> Any:
        try:
            return ask_accelerate(environ["MUSTER_PYTHON"], words, "", str(tmp_path), environ)
        except UsageError as error:
            return str(error)

    lines = [
        ("--config_file", "fsdp.yaml", "--num_processes", "8", "--max_restarts", "3", "-m", "pkg.train", "--lr", "1"),
        ("--use_deepspeed", "--zero_stage", "2", "--num_cpu_threads_per_process", "3", "train.py"),
        ("--config_file", "none.yaml", "train.py"),
        ("--bogus", "1", "train.py"),
    ]
    with ThreadPoolExecutor(2) as threads:
        fsdp, deep, missing, bogus = threads.map(lambda words: ask(*words), lines)
    assert (fsdp.script, fsdp.module, fsdp.arguments) == ("pkg.train", True, ("--lr", "1"))
    assert (fsdp.kind, fsdp.on_cpus, fsdp.backend) == ("FSDP", True, "gloo")
    assert (fsdp.given("num_processes", "words"), fsdp.given("num_machines", "file")) == (8, 4)
    assert fsdp.unused == ("max_restarts",)
    names = {"ACCELERATE_MIXED_PRECISION": "bf16", "FSDP_VERSION": "2", "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT"}
    assert {name: fsdp.variables[name] for name in names} == names
    assert not {"MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "PYTHONPATH"} & fsdp.variables.keys()
    assert (deep.kind, deep.variables["ACCELERATE_DEEPSPEED_ZERO_STAGE"]) == ("deepspeed", "2")
    assert "ACCELERATE_USE_CPU" not in deep.variables, "it would leave DeepSpeed out"
    assert f"{tmp_path}/none.yaml` does not exist" in missing
    assert bogus == "accelerate launch: unrecognized arguments: --bogus"


SHARED = [
    [{"tensor_parallel_degree": 2, "partitions": 2, "microbatches": 2}, ["gptneo", "bert", "gptneox", "t5"]],
    [{"tensor_parallel_degree": 2, "prescaled_batch": True, "microbatches": 2},
     ["roberta", "gptneox-behind", "gpt2-classes"]],
    [{"tensor_parallel_degree": 4, "optimize": "speed"}, ["gpt2", "gptj"]],
    [{"tensor_parallel_degree": 1, "partitions": 2}, ["gpt2"]],
]  # fmt: skip
"""How four ranks divide models of transformers: the configuration, and which."""


def ranks_of_smdistributed(root: Path) -> dict[str, str]:
    """The environment of ranks that no launcher of ours starts."""
    return {
        **os.environ, "PYTHONPATH": str(root / "src/musterpoint_smdistributed/startup"), "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
    }  # fmt: skip


def found_by(root: Path, *words: object) -> Any:
    """What a program that forks its ranks printed last."""
    command = list(map(str, words))
    done = subprocess.run(
        command, env=ranks_of_smdistributed(root), capture_output=True, text=True, timeout=850, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def said_by_ranks(words: list[Any], count: int, root: Path, folder: Path) -> list[Any]:
    """The JSON that each of so many ranks of a program prints last."""
    environ = {**ranks_of_smdistributed(root), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    codes, said = together([
        subprocess.Popen(words, env={**environ, "RANK": str(rank), "LOCAL_RANK": str(rank)}, cwd=folder, text=True,
                         stdout=subprocess.PIPE, stderr=None)
        for rank in range(count)
    ])  # fmt: skip
    assert codes == [0] * count, said
    return [json.loads(out.splitlines()[-1]) for out in said]


def test_models_of_transformers_in_shares(stack, root: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """What they compute and how they train is what they do in one process, as smp.nn's transformers and otherwise.

    Of GPT-J, GPT-Neo and GPT-NeoX transformers computes scores or angles in single precision, whatever the model's type
    is; where the same code has double precision, the differences are those of the others.
    """
    words = [stack("huggingface") / "python", PROGRAMS / "smp_translations.py", json.dumps(SHARED)]
    for found in said_by_ranks(words, 4, root, tmp_path):
        assert len(found) == 10
        for name, each in found.items():
            exact = each.get("wide", each["as_is"])
            assert max(exact) <= 1e-12, (name, each)
            assert max(each["as_is"]) <= 1e-5, (name, each)
            ours = {"LanguageModel", "Encoder"} & {*each["kinds"]}
            assert len(ours) == (0 if name.startswith("t5") else 1), (name, each)
            if "partitions" not in name:  # what a rank has: its share, and layers' small parameters
                degree = 4 if "'tensor_parallel_degree': 4" in name else 2
                assert each["share"] < 1.1 / degree, (name, each)


@pytest.mark.parametrize(
    "model, captured", [("llama", 27), ("mixtral", 12), ("t5", 9), ("segformer", 0), ("vit", 0), ("swin", 0)]
)
def test_captured_outputs_of_two_ranks_are_those_of_one_process(
    stack: Any, root: Path, tmp_path: Path, model: str, captured: int
) -> None:
    """Transformers 5 captures hidden states and routers' logits with hooks that it registers in a call."""
    words = [stack("huggingface") / "python", PROGRAMS / "smp_captured.py", model]
    for found in said_by_ranks(words, 2, root, tmp_path):
        assert found["worst"] <= 1e-11 and found["captured"] == captured, found


def test_generated_models_and_degrees_compute_the_same(stack, root: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Always the same ones here; ``scripts/fuzz smdistributed`` draws others."""
    models = [*drawn(1, 15), *once_wrong()]
    file = tmp_path / "models.jsonl"
    file.write_text("\n".join(map(json.dumps, models)))
    found = found_by(root, stack("huggingface") / "python", PROGRAMS / "tsm_generated.py", file)
    assert len(found) == len(models)
    for errors, model in zip(found, models):
        assert exact(errors) or refused(errors), (errors, model)
    assert sum(map(refused, found)) <= 5, "most aren't refused"


def test_degrees_of_version_2_compute_the_same(stack, root: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Six models: weights, losses and norms of gradients, each rank's part of the parameters, files that are read at
    another degree, models without values, and what is refused."""
    models = ("llama", "mistral", "neox", "gemma", "qwen", "mixtral")
    example = root / "examples/smdistributed/version_2.py"
    found = found_by(root, stack("huggingface") / "python", PROGRAMS / "tsm_degrees.py", tmp_path, example, *models)
    for model, worlds in found["worst"].items():
        assert all(error <= 1e-12 for error, _ in worlds.values()), (model, worlds)
    kept = {name: elements for name, (_, elements) in found["worst"]["llama"].items()}
    whole = kept["fsdp 2 1 1 0, resumed"]
    for name, parts in (("none 4 1 1 1", 4), ("fully_shard 2 1 1 2", 4), ("fsdp 2 1 1 0", 4), ("fsdp 1 2 1 2", 2)):
        assert kept[name] <= 1.05 * whole / parts, kept
    assert (
        2 * found["worst"]["mixtral"]["fully_shard 1 1 2 4"][1] == found["worst"]["mixtral"]["fully_shard 1 1 2 2"][1]
    )
    assert found["delayed"] == found["full"] == [0, 0]
    assert found["in parts"] == [3, 1, 1, 0] * 2
    assert found["in own folders"] == [0] * 4
    assert found["example"] < 2
    refused = {"heads", "width", "plan", "attention", "kind", "experts", "count", "meta", "tied", "batch"}
    assert {what for what, words in found["refused"].items() if words} == refused


TRAINER = Path(__file__).parents[1] / "smdistributed/huggingface.py"
TRAINED = (
    "--per_device_eval_batch_size", "8", "--max_steps", "6", "--learning_rate", "0.005", "--logging_steps", "3",
    "--save_steps", "3", "--eval_strategy", "steps", "--eval_steps", "3", "--save_total_limit", "2",
    "--load_best_model_at_end", "true", "--report_to", "none", "--disable_tqdm", "true",
)  # fmt: skip
# What a Trainer has saved, in a program without smdistributed: the loss of the words, or of the classes.
PLAIN = """
import runpy, sys, torch, transformers
import musterpoint_smdistributed
program = runpy.run_path(sys.argv[1])
for name, folder in zip(sys.argv[2::2], sys.argv[3::2]):
    made, rows = program[name]()
    model, found = type(made).from_pretrained(folder, output_loading_info=True)
    assert not any(found.values()), found
    batch = {key: torch.stack([row[key] for row in rows[-40:]]) for key in rows[0]}
    print(float(model.eval()(**batch).loss))
"""


def test_the_trainer_with_smdistributed(  # type: ignore[no-untyped-def]
    hugging, stack, root: Path, tmp_path: Path
) -> None:
    """The last Trainer that has a branch for it, as it is: a pipeline, one that goes on with it, and shared tensors."""
    hugging.environ |= {"MUSTER_PYTHON": str(stack("huggingface-4") / "python")}
    pipeline = {"partitions": 2, "microbatches": 4, "ddp": True}
    added = ("--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "2")
    whole = _trained(hugging, tmp_path, "whole", "bert", pipeline, *added)
    assert sorted(path.name for path in (tmp_path / "whole").glob("checkpoint-*")) == ["checkpoint-3", "checkpoint-6"]
    shutil.copytree(tmp_path / "whole/checkpoint-3", tmp_path / "later/checkpoint-3")
    later = _trained(hugging, tmp_path, "later", "bert", pipeline, *added, "--resume", "true")
    for name in ("after", "accuracy", "digest", "trained"):
        assert later[name] == whole[name], name
    shared = {"partitions": 1, "tensor_parallel_degree": 2, "microbatches": 2, "ddp": True}
    words = _trained(hugging, tmp_path, "words", "gpt2", shared, "--per_device_train_batch_size", "8")
    assert words["after"] < words["before"] - 0.2
    saved = ("bert", tmp_path / "later", "gpt2", tmp_path / "words")
    done = subprocess.run(
        [hugging.environ["MUSTER_PYTHON"], "-c", PLAIN, TRAINER, *saved],
        env={**hugging.environ, "PYTHONPATH": str(root / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [float(line) for line in done.stdout.split()] == pytest.approx([later["after"], words["after"]], abs=1e-5)


def _trained(  # type: ignore[no-untyped-def]
    hugging, tmp_path: Path, folder: str, model: str, shape: dict[str, Any], *words: str
) -> dict[str, Any]:
    """What both ranks of a job on two hosts found, which is the same."""
    asked = {"smdistributed": {"modelparallel": {"enabled": True, "parameters": shape}},
             "mpi": {"enabled": True, "processes_per_host": 1}}  # fmt: skip
    hugging.output = tmp_path / f"output-{folder}"
    ran = hugging.run(
        "--hosts", "2", "--backend", "process", "--cpu-fallback", "--launcher", "torchrun", "--distribution",
        json.dumps(asked), TRAINER, "--name", model, "--output_dir", tmp_path / folder, *TRAINED, *words,
    )  # fmt: skip
    assert ran.code == 0, ran.stderr + ran.stdout
    found = [json.loads(line) for line in re.findall(r"found (\{.*\})", ran.stdout)]
    assert sorted(each.pop("rank") for each in found) == [0, 1], ran.stdout
    assert found[0] == found[1]
    first: dict[str, Any] = found[0]
    assert (first["steps"], first["count"], first["rows"]) == (6, 40, 40)
    return first
