"""torch.sagemaker in one process: whose it is, its parameters, and what it refuses; tests/…/test_sharded.py shards."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any, Callable

import pytest

from .conftest import Modules

pytestmark = pytest.mark.torch


@pytest.fixture
def second(modelparallel: Modules, monkeypatch: pytest.MonkeyPatch) -> Modules:
    """A module of ``torch.sagemaker`` by its name there."""
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", "/nowhere")
    return lambda name: importlib.import_module(f"torch.sagemaker{name}")


def test_ours_beside_any_torch_and_aws_s_before_it(python_says: Callable[..., str], tmp_path: Path) -> None:
    code = "import torch.sagemaker as tsm; print(tsm.__shim__, tsm.__version__.partition('+')[2][:11])"
    assert python_says(code) == "musterpoint musterpoint"
    theirs = "import torch; torch.__path__.append({!r}); import torch.sagemaker as tsm; print(tsm.WHO)"
    (tmp_path / "sagemaker").mkdir()
    (tmp_path / "sagemaker/__init__.py").write_text("WHO = 'AWS'")
    assert python_says(theirs.format(str(tmp_path))) == "AWS"


def test_parameters(second: Modules, tmp_path: Path) -> None:
    """The job's count more than the script's; each in its own type."""
    read = second(".config").read
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"hybrid_shard_degree": 4, "sm_activation_offloading": False, "strange": 1}))
    found = read({"SM_HP_MP_PARAMETERS": '{"hybrid_shard_degree": "2"}'}, [], str(path))
    assert (found.hybrid_shard_degree, found.sm_activation_offloading, found.random_seed) == (2, False, 12345)
    assert found.unknown == ("strange (tsm.init)",)
    assert found.shown("hybrid_shard_degree") == "hybrid_shard_degree=2 (SM_HP_MP_PARAMETERS)"
    assert read({}, []).hybrid_shard_degree == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"hybrid_shard_degree": -1}, "hybrid_shard_degree=-1 (tsm.init): expected a whole number, 0 or more"),
        ({"activation_loading_horizon": 0}, "activation_loading_horizon=0 (tsm.init): expected a whole number, 1"),
        ({"allow_empty_shards": "maybe"}, "allow_empty_shards='maybe' (tsm.init): expected true or false"),
        ("missing.json", "tsm.init('missing.json'): expected a dict or the path of a JSON file"),
        ({"expert_parallel_degree": "0"}, "expert_parallel_degree='0' (tsm.init): expected a whole number, 1 or more"),
    ],
)
def test_parameters_that_are_refused(second: Modules, given: Any, words: str) -> None:
    with pytest.raises((ValueError, NotImplementedError)) as caught:
        second(".config").read({}, [], given)
    assert str(caught.value).startswith(words)


def test_who_stands_where(second: Modules) -> None:
    """Every rank by its place in the copy, the shard and each degree; groups name each rank once."""
    read, layout_of = second(".config").read, second(".layout")
    for size, degrees, expected in (
        (8, {"tensor": 2, "shard": 2}, {5: (1, 0, 1, 0, 2), 6: (1, 1, 0, 0, 3)}),
        (8, {"tensor": 2, "context": 2}, {5: (0, 2, 1, 0, 1), 6: (0, 3, 0, 1, 1)}),
        (4, {"context": 4}, {3: (0, 3, 0, 3, 0)}),
        (4, {}, {3: (0, 3, 0, 0, 3)}),
    ):
        names = {"shard": "hybrid_shard_degree"} | {each: f"{each}_parallel_degree" for each in ("tensor", "context")}
        layout = layout_of.Layout.from_config(read({}, [], {names[key]: value for key, value in degrees.items()}), size)
        for rank, places in expected.items():
            asked = (layout.get_rep_rank, layout.get_shard_rank, layout.get_tp_rank, layout.get_cp_rank, layout.data_of)
            assert tuple(ask(rank) for ask in asked) == places, (degrees, rank)
        for groups in (layout.get_rep_groups(), layout.get_shard_groups(), layout.get_tp_groups()):
            assert sorted(rank for group in groups for rank in group) == list(range(size))
        assert layout.native is not bool(degrees)


@pytest.mark.parametrize(
    ("degrees", "words"),
    [
        ({"tensor_parallel_degree": 3}, "tensor_parallel_degree=3 (tsm.init) doesn't divide the job's world size 8:"),
        ({"hybrid_shard_degree": 3}, "hybrid_shard_degree=3 (tsm.init) doesn't divide the job's world size 8: start a"),
        (
            {"tensor_parallel_degree": 4, "hybrid_shard_degree": 4},
            "hybrid_shard_degree=4 (tsm.init) doesn't divide the job's world size 8 / tensor_parallel_degree=4 (tsm",
        ),
        (
            {"context_parallel_degree": 4, "hybrid_shard_degree": 2},
            "context_parallel_degree=4 (tsm.init) doesn't divide the 2 ranks that shard one copy of the model",
        ),
        (
            {"expert_parallel_degree": 2, "tensor_parallel_degree": 2},
            "expert_parallel_degree=2 (tsm.init) beside tensor_parallel_degree=2 (tsm.init): AWS's library takes one",
        ),
    ],
)
def test_degrees_that_don_t_fit(second: Modules, degrees: dict[str, int], words: str) -> None:
    cfg = second(".config").read({}, [], degrees)
    with pytest.raises(ValueError) as caught:
        second(".layout").Layout.from_config(cfg, 8)
    assert str(caught.value).startswith(words)


def test_parts_of_sequences(second: Modules) -> None:
    torch, own_part = importlib.import_module("torch"), second(".context_parallel").own_part
    whole = torch.arange(8).expand(2, 8)
    assert [own_part(whole, rank, 2)[1].tolist() for rank in range(2)] == [[0, 1, 6, 7], [2, 3, 4, 5]]
    with pytest.raises(ValueError, match="a sequence of length 8 can't be divided into 6 equal parts"):
        own_part(whole, 0, 3)


def test_what_needs_init_or_is_aws_s_own(second: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, tsm = importlib.import_module("torch"), second("")
    monkeypatch.setattr(tsm.state, "_world", None)
    model = torch.nn.Linear(2, 2)
    for needs in (lambda: tsm.state.hybrid_shard_degree, lambda: tsm.transform(model)):
        with pytest.raises(RuntimeError, match=r"call tsm\.init\(\) first"):
            needs()
    assert not tsm.is_initialized()
    layout = second(".layout").Layout(1, 1)
    monkeypatch.setattr(tsm.state, "_world", second(".state").World(None, layout, None, None, {}))
    assert tsm.transform(model, dtype=torch.float64).weight.dtype == torch.float64
    with pytest.raises(NotImplementedError, match="has no routing of its own; leave config out"):
        tsm.transform(model, config=second(".moe.moe_config").MoEConfig())
    own = second(".moe.moe_config").MoEConfig(moe_load_balancing="none")
    assert tsm.transform(model, config=own) is model
    with pytest.raises(NotImplementedError, match="writes to file systems; save to a path"):
        tsm.distributed.checkpoint.state_dict_saver.save({}, checkpoint_id="s3://bucket/a")


def test_delayed_parameters(second: Modules) -> None:
    """By the modules' own reset_parameters, or by the script; what neither knows is named."""
    torch = importlib.import_module("torch")
    nn, initer_of = torch.nn, second(".delayed_param").DelayedParamIniter
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    initer = initer_of(model)
    unchecked = initer.validate_params_and_buffers_inited()
    with pytest.raises(AssertionError, match=r"7 parameters or buffers are still on the meta device, 0\.w"), unchecked:
        pass
    with initer.validate_params_and_buffers_inited():
        model.apply(initer.get_param_init_fn())
    assert model[1].running_var.tolist() == [1, 1, 1]
    assert initer.initialized == 4
    with torch.device("meta"):
        strange = nn.Module()
        strange.own = nn.Parameter(torch.ones(2))
    with pytest.raises(NotImplementedError, match=r"\(Module\) has no reset_parameters, so nobody knows the values"):
        initer_of(strange).get_param_init_fn()(strange)

    def own(module: Any) -> None:
        second(".utils.module_utils").empty_module_params(module)
        module.own.data.fill_(3)

    initer_of(strange, init_method_using_config=own).get_param_init_fn()(strange)
    assert strange.own.tolist() == [3, 3]


def test_attention(second: Modules) -> None:
    torch, attn = importlib.import_module("torch"), second(".nn.attn")
    attend = torch.nn.functional.scaled_dot_product_attention
    query, key, value = torch.randn(3, 2, 4, 5, 8).double()  # batch, heads, length, size
    expected = attend(query, key, value, is_causal=True)
    own = attn.FlashSelfAttention()
    torch.testing.assert_close(own(torch.cat([query, key, value], 1), causal=True), expected)
    turned = tuple(each.transpose(1, 2) for each in (query, key, value))
    torch.testing.assert_close(own(turned, causal=True, layout="b s h d"), expected)
    shared = attn.FlashGroupedQueryAttention()(query, (key[:, :2], value[:, :2]), layout="b h s d")
    many = [each[:, :2].repeat_interleave(2, 1) for each in (key, value)]
    torch.testing.assert_close(shared, attend(query, *many))
    with pytest.raises(ValueError, match="layout='s b h d': expected"):
        own(turned, layout="s b h d")


def test_the_newest_checkpoints_stay(second: Modules, tmp_path: Path) -> None:
    utils = second(".checkpoint.utils")
    for name in ("m-900steps", "m-1000steps", "m-80steps", "notes"):
        (tmp_path / name).mkdir()
    limit = (str(tmp_path), 2, utils.SORT_BY_LAST_INT, r"^.*\d+steps$")
    assert utils.limit_num_subdirs(*limit, log=False) == []
    assert utils.limit_num_subdirs(*limit) == ["m-80steps"]
    assert sorted(os.listdir(tmp_path)) == ["m-1000steps", "m-900steps", "notes"]
    for name in ("m-950steps", "m-2000steps"):  # a job died while it wrote them
        (tmp_path / name).mkdir()
        (tmp_path / name / "__0_0.distcp").touch()
    assert utils.limit_num_subdirs(*limit) == []
    (tmp_path / "m-1100steps").mkdir()
    assert utils.limit_num_subdirs(*limit) == ["m-900steps", "m-950steps"]
    assert sorted(os.listdir(tmp_path)) == ["m-1000steps", "m-1100steps", "m-2000steps", "notes"]
    with pytest.raises(ValueError, match="m-2000steps has parts of a checkpoint that wasn't written to its end"):
        second(".distributed.checkpoint.state_dict_loader").load({}, checkpoint_id=tmp_path / "m-2000steps")


@pytest.mark.parametrize("horizon", [1, 2, 3, 9])
def test_activations_are_fetched_ahead(second: Modules, monkeypatch: pytest.MonkeyPatch, horizon: int) -> None:
    """As AWS documents it: the inputs of as many checkpointed layers as the horizon says are there at the same time."""
    torch = importlib.import_module("torch")
    wrappers = importlib.import_module("torch.distributed.algorithms._checkpoint.checkpoint_wrapper")
    offload = importlib.import_module("smdistributed.shared.offload")
    for wrapper in (wrappers.CheckpointWrapper, wrappers.OffloadWrapper):
        monkeypatch.setattr(wrapper, "forward", wrapper.forward)
    layers = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).double() for _ in range(5)]
    plain = torch.nn.Sequential(*layers)
    inputs = torch.randn(3, 4, dtype=torch.float64)
    wanted = torch.autograd.grad(plain(inputs).sum(), list(plain.parameters()))
    second(".offloading").install(horizon, "cpu")
    there: list[Any] = []
    most: list[int] = []
    load, take = offload.Kept.load, offload.Kept.take

    def loads(self: Any) -> None:
        if self.back is None and self not in there:
            there.append(self)
        load(self)

    def takes(self: Any) -> Any:
        found = take(self)
        most.append(len(there))
        there.remove(self)
        return found

    monkeypatch.setattr(offload.Kept, "load", loads)
    monkeypatch.setattr(offload.Kept, "take", takes)
    model = wrappers.offload_wrapper(torch.nn.Sequential(*map(wrappers.checkpoint_wrapper, layers)))
    found = torch.autograd.grad(model(inputs).sum(), list(plain.parameters()))
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert most == [min(horizon, 5 - place) for place in range(5)]
    assert there == []
