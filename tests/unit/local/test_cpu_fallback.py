"""What a CUDA-only script calls, in an interpreter that has the patches on its path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.local.host_environment import PATCHES

from ..running import result_of

pytestmark = pytest.mark.torch


def run(code: str, environ: dict[str, str], *paths: str) -> subprocess.CompletedProcess[str]:
    environ = {**environ, "MUSTER_CPU_FALLBACK": "1", "PYTHONPATH": os.pathsep.join([PATCHES, *paths])}
    return subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)


DEVICES = """
import torch
device = torch.device("cuda", 0)
for chosen in ("0", 0, device, "cuda:0"):
    torch.cuda.set_device(chosen)
assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0
tensors = [
    torch.zeros(2, device=device), torch.ones(2, device="cuda:0"), torch.ones(2).cuda(), torch.ones(2).to(0),
    torch.tensor([1.0, 2.0], device=0), torch.ones(2).to("cuda", torch.float32), torch.ones(2).to(device=device),
    torch.ones(2).cuda(0, non_blocking=True).pin_memory(), torch.ones(2).new_zeros(2, device="cuda"),
    torch.nn.Parameter(torch.ones(2, device="cuda")), torch.cuda.FloatTensor([1, 2]),
    torch.ones(2).type("torch.cuda.FloatTensor"), torch.ones(2).to(torch.zeros(1, device="cuda")),
]
with torch.device("cuda"):
    tensors.append(torch.zeros(2))
assert {tensor.device.type for tensor in tensors} == {"cpu"}
assert isinstance(device, torch.device) and device.type == "cuda"
model = torch.nn.Linear(2, 2, device="cuda").to(0).cuda().to(device)
model(tensors[0]).sum().backward()
generator = torch.Generator(device="cuda")
generator.manual_seed(1)
torch.randn(2, generator=generator, device="cuda")
torch.set_default_device("cuda")
assert torch.zeros(1).device.type == "cpu"
"""
PRECISION = """
import torch, warnings
warnings.simplefilter("ignore", FutureWarning)
model, x = torch.nn.Linear(2, 2).cuda(), torch.ones(2).cuda()
for context in (torch.cuda.amp.autocast(), torch.autocast("cuda", dtype=torch.float16), torch.amp.autocast("cuda")):
    with context:
        assert model(x).dtype == torch.float32
for scaler in (torch.cuda.amp.GradScaler(), torch.amp.GradScaler("cuda")):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler.scale(model(x).sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
"""
CUDA = """
import torch
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream), torch.cuda.device(0):
    torch.ones(1).cuda().record_stream(stream)
end.record()
torch.cuda.synchronize()
assert start.elapsed_time(end) >= 0
for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
    assert getattr(torch.cuda, name)() == 0
torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats(); torch.cuda.manual_seed(1); torch.cuda.manual_seed_all(1)
torch.cuda.set_rng_state(torch.cuda.get_rng_state()); torch.cuda.random.set_rng_state(torch.cuda.random.get_rng_state())
torch.cuda.nvtx.range_push("x"); torch.cuda.nvtx.range_pop()
assert "CPU" in torch.cuda.get_device_name(0) and torch.cuda.get_device_properties(0).total_memory > 0
"""
LOADING = """
import io, pickle, torch
from torch.utils.data import DataLoader, TensorDataset
stored = io.BytesIO()
torch.save({"w": torch.ones(2)}, stored)
for place in (None, "cuda:0", torch.device("cuda"), {"cuda:0": "cuda:1"}, lambda storage, location: storage):
    stored.seek(0)
    assert torch.load(stored, map_location=place)["w"].device.type == "cpu"
device = torch.device("cuda")
assert pickle.loads(pickle.dumps(device)) == device
import warnings
warnings.simplefilter("error")
for batch, in DataLoader(TensorDataset(torch.ones(4, 2)), 2, pin_memory=True, num_workers=1):
    batch.cuda(non_blocking=True)
"""
DISTRIBUTED = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
dist.init_process_group("nccl", device_id=torch.device("cuda", 0), store=dist.HashStore(), rank=0, world_size=1)
assert dist.get_backend() == "gloo" and dist.is_nccl_available()
dist.barrier(device_ids=[0])
group = dist.new_group([0], backend="nccl")
value = torch.tensor([4.0]).cuda()
dist.all_reduce(value, op=dist.ReduceOp.AVG, group=group)
dist.all_reduce(value, op=dist.ReduceOp.AVG, async_op=True).wait()
assert value.item() == 4.0
layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(layers)
model = DistributedDataParallel(model.cuda(), device_ids=[0], output_device=0)
model(torch.ones(2, 2).cuda()).sum().backward()
model.eval()
model(torch.ones(2, 2))
assert model.require_forward_param_sync
dist.destroy_process_group()
"""


DATA_PARALLEL = """
import torch, torch.nn as nn
model = nn.DataParallel(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))).cuda()
several = nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=list(range(torch.cuda.device_count())), output_device=0)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
nn.CrossEntropyLoss().cuda(0)(model(torch.ones(4, 1, 4, 4).cuda(0)), torch.zeros(4, dtype=torch.long).cuda()).backward()
optimizer.step()
assert list(model.state_dict())[0] == "module.0.weight" and isinstance(several.module, nn.Linear)
assert nn.parallel.data_parallel(several.module, torch.ones(2, 2), [0]).shape == several(torch.ones(2, 2)).shape
"""


SCRIPTS = {
    "devices": DEVICES, "precision": PRECISION, "cuda": CUDA, "loading": LOADING, "distributed": DISTRIBUTED,
    "data parallel": DATA_PARALLEL,
}  # fmt: skip
ONE_AFTER_THE_OTHER = f"""
import os, sys, traceback
import torch
for name, code in {SCRIPTS!r}.items():
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        try:
            exec(compile(code, name, "exec"), {{"__name__": "__main__"}})
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        print("failed:", name, flush=True)
"""


def test_cuda_scripts_run_on_the_cpu(environ: dict[str, str]) -> None:
    """Each in a process of its own, all of which find torch imported: that takes longer than they do."""
    done = run(ONE_AFTER_THE_OTHER, environ)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.lane("hosts")
def test_a_look_at_torch_before_it_is_imported(environ: dict[str, str]) -> None:
    """Many packages look whether there is one, such as transformers."""
    look = "import importlib.util; importlib.util.find_spec('torch'); importlib.util.find_spec('torch.nn')\n"
    done = run(
        look * 2 + "import torch; print(torch.cuda.is_available(), torch.ones(1, device='cuda').device)", environ
    )
    assert done.stdout == "True cpu\n", done.stderr


@pytest.mark.lane("hosts")
def test_more_slots_are_more_devices(environ: dict[str, str]) -> None:
    asks = (
        "torch.cuda.set_device(%d)", "torch.ones(1).to(torch.device('cuda', %d))", "torch.ones(1, device='cuda:%d')",
        "torch.ones(1).cuda(%d)", "torch.nn.Linear(1, 1).to(%d)",
    )  # fmt: skip
    tries = "".join(f"{ask % 3}\ntry: {ask % 4}\nexcept RuntimeError as error: print(error)\n" for ask in asks)
    done = run("import torch\n" + tries, {**environ, "LOCAL_WORLD_SIZE": "4"})
    assert done.stdout == "CUDA error: invalid device ordinal 4: this host has 4 slots\n" * len(asks), done.stderr


def test_the_users_own_sitecustomize_runs_too(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    done = run(
        "import sitecustomize, sys; print(sitecustomize.__file__, 'torch' in sys.modules)", environ, str(tmp_path)
    )
    assert done.stdout == f"mine\n{tmp_path / 'sitecustomize.py'} False\n"


@pytest.mark.lane("hosts")
def test_without_the_word_nothing_is_patched(environ: dict[str, str]) -> None:
    done = run("import torch; print(torch.cuda.is_available.__module__)", {**environ})
    assert "muster" in done.stdout
    code = "import sys, torch; print('muster_cpu_fallback' in sys.modules)"
    plain = result_of([sys.executable, "-c", code], {**environ, "PYTHONPATH": PATCHES})
    assert (plain.returncode, plain.stdout) == (0, "False\n"), plain.stderr


ENGINE = """
import transformer_engine
from transformer_engine.common.recipe import DelayedScaling, Format
import transformer_engine.pytorch as te
assert not hasattr(transformer_engine, "unknown") and issubclass(te.Linear, object)
try:
    DelayedScaling(fp8_format=None)
except RuntimeError as error:
    print(error)
"""
ATTENTION = """
import transformers.modeling_utils as utils
for name in ("flash_attention_2", "eager", None):
    print(utils.PreTrainedModel()._check_and_adjust_attn_implementation(name, is_init_check=True))
"""


FLASH = """
import importlib.util
import torch
from flash_attn.flash_attention import FlashAttention
torch.manual_seed(0)
qkv = torch.randn(2, 5, 3, 4, 8, requires_grad=True)
query, key, value = qkv.unbind(2)
counts = torch.ones(2, 5, dtype=torch.bool)
counts[1, 3:] = False
for causal, given in ((True, None), (False, None), (False, counts), (True, counts)):
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * 0.25
    if given is not None:
        scores = scores.masked_fill(~given[:, None, None], -torch.inf)
    if causal:
        scores = scores.masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), -torch.inf)
    expected = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), value)
    found, weights = FlashAttention(softmax_scale=0.25)(qkv, given, causal)
    assert weights is None
    torch.testing.assert_close(found, expected)
print("the same")
"""


@pytest.mark.lane("hosts")
def test_packages_for_gpus_only(environ: dict[str, str], tmp_path: Path) -> None:
    done = run(ENGINE, environ)
    assert done.stdout.startswith("transformer_engine: DelayedScaling needs a GPU. Under --cpu-fallback"), done.stderr
    done = run(FLASH, environ)
    assert done.stdout == "the same\n", done.stderr
    (tmp_path / "transformer_engine").mkdir()
    (tmp_path / "transformer_engine/__init__.py").write_text("WHO = 'NVIDIA'")
    assert run("import transformer_engine as te; print(te.WHO)", environ, str(tmp_path)).stdout == "NVIDIA\n"


@pytest.mark.lane("hosts")
def test_attention_of_transformers(environ: dict[str, str], tmp_path: Path) -> None:
    """Torch's own, which computes the same; tests/hosts/stacks has the real package."""
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers/__init__.py").touch()
    (tmp_path / "transformers/modeling_utils.py").write_text(
        "class PreTrainedModel:\n"
        "    def _check_and_adjust_attn_implementation(self, attn_implementation, is_init_check=False):\n"
        "        return attn_implementation\n"
    )
    assert run(ATTENTION, environ, str(tmp_path)).stdout.split() == ["sdpa", "eager", "None"]
