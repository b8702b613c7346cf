"""Jobs that go well: one rank and several on a GPU, the packages for AWS's scripts, launchers, JAX."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

from gpus.machine import FACTS, PROGRAMS, Machine, NotHere, Wrong, close

SHIM = {"SMDISTRIBUTED_SHIM": "1"}
LOOPBACK = ("--nproc-per-node", "1", "--local-addr", "127.0.0.1")
"""Without an address torchrun's worker looks for its host's name, which not every machine can resolve."""
EXACT = 1e-11
"""The largest relative difference in float64 of several ranks from one process."""


def _computed(machine: Machine, program: str, *arguments: str, slots: int = 2) -> dict[str, Any]:
    """What the ranks of a job on one host have computed. Torchrun itself would import torch, which takes seconds."""
    return machine.job(program, *arguments, slots=slots, launcher="ranks", environ=SHIM).expect(0).facts()


def as_platform(machine: Machine) -> dict[str, Any]:
    """``train``, as SageMaker starts it: one rank, NCCL."""
    base = machine.folder / "ml"
    (base / "input/config").mkdir(parents=True)
    shutil.copytree(PROGRAMS, base / "code")
    settings = {
        "hyperparameters": {"sagemaker_program": '"run.py"'},
        "resourceconfig": {"current_host": "algo-1", "hosts": ["algo-1"]},
        "inputdataconfig": {},
    }
    for name, content in settings.items():
        (base / f"input/config/{name}.json").write_text(json.dumps(content))
    (base / "code/run.py").write_text("import sys\nsys.argv = ['ddp.py', 'auto', '5']\nimport ddp\n")
    done = machine.run(
        ["-m", "musterpoint.cli.train"], SAGEMAKER_BASE_DIR=str(base), MUSTER_LAUNCHER="torchrun", MUSTER_SLOTS="1"
    )
    if done.returncode:
        raise Wrong(f"train ended with {done.returncode}: {done.stdout[-1500:]}")
    facts: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if FACTS in line)[len(FACTS) :])
    close("one rank", facts, "difference", EXACT)
    return facts


def one_rank(machine: Machine) -> dict[str, Any]:
    """``muster local`` with one rank: NCCL where there is a GPU."""
    facts = machine.job("ddp.py", "auto", "5").expect(0).facts()
    close("one rank", facts, "difference", EXACT)
    if not machine.dry and "nccl" not in str(facts["backend"]):
        raise Wrong(f"the backend is {facts['backend']}, expected nccl")
    return facts


def sharing(machine: Machine) -> dict[str, Any]:
    """Two and four ranks on one GPU: Gloo with tensors on the GPU."""
    found = machine.found
    for ranks in (2,) if machine.quick else (2, 4):
        facts = _computed(machine, "ddp.py", "gloo", "5", slots=ranks)
        close(f"{ranks} ranks", facts, "difference", EXACT)
        found[f"difference_{ranks}"] = facts["difference"]
    return found


def smddp(machine: Machine) -> dict[str, Any]:
    """The composite backend: right results for tensors of both devices beside kernels, and as fast as NCCL."""
    facts = _computed(machine, "collectives.py", "smddp", slots=1)
    if any(value for key, value in facts.items() if key.startswith("wrong")):
        raise Wrong(f"wrong results: {facts}")
    rounds = "4" if machine.quick else "12"
    paces = _computed(machine, "paces.py", "nccl", "smddp", rounds, slots=1)
    ratio = paces["smddp_step"] / paces["nccl_step"]
    found = {"backend": facts["backend"], **paces, "ratio": ratio}
    if not machine.dry:
        close("smddp beside nccl", found, "ratio", 1.05)  # the goal is 1.01; a short run is not that exact
    return found


def partitions(machine: Machine) -> dict[str, Any]:
    """Version 1 with 2 and 4 partitions that share the GPU: no deadlock, and exact."""
    found = machine.found
    for ranks in (2,) if machine.quick else (2, 4):
        facts = _computed(machine, "pipeline.py", str(ranks), "exact", "3", slots=ranks)
        close(f"{ranks} partitions", facts, "difference", EXACT)
        found[f"difference_{ranks}"] = facts["difference"]
    return found


def half(machine: Machine) -> dict[str, Any]:
    """fp16 with a loss scale and bf16, beside one process in float32."""
    found = machine.found
    kinds = (("half", 2e-2), ("bfloat", 1e-1))
    for kind, most in kinds[:1] if machine.brief else kinds:
        facts = _computed(machine, "pipeline.py", "2", kind, "3")
        close(kind, facts, "loss_difference", most)
        found[kind] = facts["loss_difference"]
    return found


def offload(machine: Machine) -> dict[str, Any]:
    """Activations go to the CPU and come back ahead of their use: the same result with less of the GPU's memory."""
    found = machine.found
    if not machine.brief:  # the CPU's memory isn't counted
        found["peak_bytes"] = _computed(machine, "pipeline.py", "2", "exact", "2")["peak_bytes"]
    moved = _computed(machine, "pipeline.py", "2", "offload", "2")
    close("with offloading", moved, "loss_difference", 1e-4)
    return {"peak_bytes_offloaded": moved["peak_bytes"]}


def checkpoints(machine: Machine) -> dict[str, Any]:
    """A checkpoint of partitions on the GPU, saved and loaded."""
    facts = _computed(machine, "pipeline.py", "2", "checkpoint", "2")
    close("after loading", facts, "difference", EXACT)
    return facts


def shards(machine: Machine) -> dict[str, Any]:
    """``torch.sagemaker``: a model in shards, without and with offloaded activations."""
    found = machine.found
    for how in ("offload",) if machine.brief else ("plain", "offload"):
        facts = _computed(machine, "shards.py", "2", how, "3")
        found[how] = [facts[f"difference_{rank}"] for rank in range(2)]
        for rank in range(2):
            close(f"{how}, rank {rank}", facts, f"difference_{rank}", EXACT)
    return found


def launchers(machine: Machine) -> dict[str, Any]:
    """Samples per second under each launcher that this Python has, beside plain torchrun in turns."""
    steps = "10" if machine.dry else "200"
    found = machine.found
    plain = found["torchrun_samples_per_second"] = []
    names = ["torchrun", "ranks", "script"]
    if shutil.which("mpirun", path=machine.environ.get("PATH")):
        names.append("mpi")
    for name in names:
        done = machine.run(["-m", "torch.distributed.run", "--standalone", *LOOPBACK, PROGRAMS / "pace.py", steps])
        if done.returncode:
            raise Wrong(f"plain torchrun ended with {done.returncode}: {done.stdout[-800:]}")
        line = next(line for line in done.stdout.splitlines() if FACTS in line)
        plain.append(json.loads(line.partition(FACTS)[2])["samples_per_second"])
        more = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": "0", "WORLD_SIZE": "1"}
        job = machine.job("pace.py", steps, launcher=name, environ=more if name == "script" else {}).expect(0)
        found[name] = job.facts()["samples_per_second"] / plain[-1]
    return found


def with_jax(machine: Machine) -> dict[str, Any]:
    """JAX on the GPU, as one process of the job."""
    if machine.run(["-c", "import jax"]).returncode:
        raise NotHere("this Python has no JAX")
    facts = machine.job("with_jax.py", launcher="jax").expect(0).facts()
    if facts["sum"] != 499500.0 or (not machine.dry and facts["platforms"] == ["cpu"]):
        raise Wrong(f"JAX found {facts}")
    return facts


def triton(machine: Machine) -> dict[str, Any]:
    """``torch.compile`` (Triton on a GPU) works in silence for a while: no false alarm of a stall."""
    words = ("--stall-timeout", "3")
    folder = os.path.join(machine.folder, "inductor")
    steps = "1" if machine.brief else "4" if machine.quick else "16"
    job = machine.job("waits.py", "compile", steps, words=words, environ={"TORCHINDUCTOR_CACHE_DIR": folder})
    if job.code and "compiler" in job.reason.lower() and "not" in job.reason.lower():
        raise NotHere(f"torch.compile can't compile here: {job.reason[:200]}")
    return job.expect(0).facts()
