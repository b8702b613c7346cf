"""Files of parts and of whole models: their names, what is in them, and what doesn't fit together."""

from __future__ import annotations

import os
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import pytest

from .conftest import Modules

pytestmark = pytest.mark.torch

AsRank = Callable[..., None]


@pytest.fixture
def checkpoint(modelparallel: Modules, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = modelparallel("torch.checkpoint")
    monkeypatch.setattr(module, "barrier", lambda group: None)
    monkeypatch.setattr(module.state, "model", None)
    monkeypatch.setattr(module.state, "optimizer", None)
    return module


@pytest.fixture
def as_rank(modelparallel: Modules, monkeypatch: pytest.MonkeyPatch) -> AsRank:
    """Makes this process one rank of a pipeline."""
    state = modelparallel("torch.state")

    def become(rank: int, parts: int = 2, replica: int = 0, tensor: tuple[int, int] = (0, 1)) -> None:
        def group(rank: int, size: int) -> Any:
            return state.Group(tuple(range(size)), rank, None)

        groups = {
            "pp": group(rank, parts), "tp": group(*tensor), "rdp": group(replica, 2),
            "mp": group(rank * tensor[1] + tensor[0], parts * tensor[1]),
        }  # fmt: skip
        cfg = SimpleNamespace(sharded_data_parallel_degree=1)
        monkeypatch.setattr(state.state, "_world", SimpleNamespace(groups=groups, rank=rank, cfg=cfg))

    become(0)
    return become


class Script:
    """A model or an optimizer of a script, with a value on each rank."""

    def __init__(self, torch: Any, rank: int) -> None:
        self.whole = OrderedDict((f"w{each}", torch.full((2,), float(each))) for each in range(2))
        self.rank = rank
        self.loaded: Any = None

    sharded = False

    def local_state_dict(self, gather_if_shard: bool = True) -> Any:
        return OrderedDict([(f"w{self.rank}", self.whole[f"w{self.rank}"]), ("_smp_is_partial", True)])

    def state_dict(self) -> Any:
        return self.whole

    def load_state_dict(self, values: Any, strict: bool = True) -> None:
        self.loaded = values


def test_a_file_for_each_part(checkpoint: Any, as_rank: AsRank, torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "new" / "ck.pt"
    for rank in range(2):
        as_rank(rank)
        checkpoint.save({"model_state_dict": Script(torch, rank).local_state_dict(), "epoch": rank}, str(path))
    assert sorted(os.listdir(path.parent)) == ["ck.pt_0", "ck.pt_1"]
    loaded = torch.load(f"{path}_1", weights_only=True)  # by plain torch, as it was given
    assert set(loaded) == {"model_state_dict", "epoch"}
    found = checkpoint.load(path)
    assert found["epoch"] == 1
    assert found["model_state_dict"]["_smp_is_partial"] is True
    assert found["model_state_dict"]["w1"].tolist() == [1.0, 1.0]


def test_names_with_tensor_parallelism_and_for_each_replica(checkpoint: Any, as_rank: AsRank, tmp_path: Path) -> None:
    as_rank(1, tensor=(1, 2), replica=1)
    checkpoint.save([1], tmp_path / "a")
    checkpoint.save([2], tmp_path / "b", v3=True)
    assert sorted(os.listdir(tmp_path)) == ["a_1_1", "b_1_1_1"]
    assert (checkpoint.load(tmp_path / "a"), checkpoint.load(tmp_path / "b")) == ([1], [2])


def test_a_whole_file_is_plain_torchs(checkpoint: Any, as_rank: AsRank, torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    given = {"model_state_dict": OrderedDict(w=torch.ones(2), _smp_is_partial=False), "_smp_is_partial": False}
    as_rank(1)
    checkpoint.save(given, path, partial=False)
    assert not path.exists()
    as_rank(0)
    checkpoint.save(given, path, partial=False)
    assert os.listdir(tmp_path) == ["model.pt"]
    plain = torch.load(path, weights_only=True)
    assert list(plain) == ["model_state_dict"]
    assert list(plain["model_state_dict"]) == ["w"]
    as_rank(1, parts=4)  # fits any number
    assert checkpoint.load(path, partial=False)["model_state_dict"]["w"].tolist() == [1.0, 1.0]
    assert list(given["model_state_dict"]) == ["w", "_smp_is_partial"]


def test_a_part_is_never_the_whole(checkpoint: Any, as_rank: AsRank, torch: Any, tmp_path: Path, caplog: Any) -> None:
    for rank in range(2):
        as_rank(rank)
        checkpoint.save({"model": Script(torch, rank).local_state_dict()}, tmp_path / "ck", partial=False)
    assert sorted(os.listdir(tmp_path)) == ["ck_0", "ck_1"]
    assert "'model' is this rank's part only (local_state_dict), so it goes to" in caplog.text


def test_a_file_is_there_whole_or_not_at_all(checkpoint: Any, as_rank: AsRank, tmp_path: Path) -> None:
    checkpoint.save({"a": 1}, tmp_path / "ck")
    with pytest.raises(Exception, match="pickle"):
        checkpoint.save({"a": lambda: None}, tmp_path / "ck")
    assert os.listdir(tmp_path) == ["ck_0"]
    assert checkpoint.load(tmp_path / "ck") == {"a": 1}


@pytest.mark.parametrize("f", [3, None, b"x", open])
def test_only_names_of_files(checkpoint: Any, as_rank: AsRank, f: Any) -> None:
    with pytest.raises(TypeError, match="expected the name of a file"):
        checkpoint.save({}, f)


def test_parts_of_another_division(checkpoint: Any, as_rank: AsRank, tmp_path: Path) -> None:
    path = tmp_path / "ck"

    def refused(words: str, **load: Any) -> None:
        with pytest.raises(checkpoint.SMPCheckpointError) as caught:
            checkpoint.load(path, **load)
        assert words in str(caught.value)

    refused(f"{path}_0 doesn't exist")
    refused(f"{path} doesn't exist", partial=False)
    for rank in range(2):
        as_rank(rank)
        checkpoint.save(rank, path)
    (tmp_path / "ck_notes").touch()
    refused("but parts of it do: load it with partial=True", partial=False)
    as_rank(0, parts=1)
    refused(f"{path} was saved with pipeline_parallel_degree 2, and this job has 1")
    as_rank(3, parts=4)
    refused("_3 doesn't exist, but 2 other parts of it: this job has pipeline_parallel_degree 4; resume with the")
    checkpoint.save(0, path, partial=False)
    as_rank(0)
    checkpoint.save(0, path, partial=False)
    os.unlink(f"{path}_0")
    refused(f"{path}_0 doesn't exist, but {path} does: load it with partial=False")


def test_parts_of_plain_torch_are_taken_as_they_are(
    checkpoint: Any, as_rank: AsRank, torch: Any, tmp_path: Path
) -> None:
    torch.save({"a": 1}, f"{tmp_path}/new_0")
    torch.save({"a": 2}, f"{tmp_path}/old_0", _use_new_zipfile_serialization=False)
    assert [checkpoint.load(tmp_path / name)["a"] for name in ("new", "old")] == [1, 2]


def saved(checkpoint: Any, as_rank: AsRank, torch: Any, folder: Path, *tags: str, **more: Any) -> None:
    for tag in tags:
        for replica in range(2):
            for rank in (1, 0):
                as_rank(rank, replica=replica)
                model, optimizer = Script(torch, rank), Script(torch, rank)
                checkpoint.save_checkpoint(folder, tag, model=model, optimizer=optimizer, **more)


def test_checkpoints_by_tag(checkpoint: Any, as_rank: AsRank, torch: Any, tmp_path: Path) -> None:
    saved(checkpoint, as_rank, torch, tmp_path, "s1", "s2", user_content={"lr": 0.1})
    assert sorted(os.listdir(tmp_path)) == ["newest", "s1_partial", "s2_partial"]
    assert sorted(os.listdir(tmp_path / "s2_partial")) == [
        "model_0_0_0.pt", "model_1_0_0.pt", "optimizer_0_0_0.pt", "optimizer_1_0_0.pt", "user_content.pt",
    ]  # fmt: skip
    as_rank(1, replica=1)
    checkpoint.state.model, checkpoint.state.optimizer = Script(torch, 1), Script(torch, 1)
    assert checkpoint.resume_from_checkpoint(tmp_path) == {"lr": 0.1}
    assert list(checkpoint.state.model.loaded) == list(checkpoint.state.optimizer.loaded) == ["w1", "_smp_is_partial"]
    checkpoint.state.optimizer = Script(torch, 1)
    checkpoint.resume_from_checkpoint(tmp_path, "s1", load_optimizer=False)
    assert checkpoint.state.optimizer.loaded is None


def test_a_whole_model_by_tag(checkpoint: Any, as_rank: AsRank, torch: Any, tmp_path: Path) -> None:
    saved(checkpoint, as_rank, torch, tmp_path, "p1")
    saved(checkpoint, as_rank, torch, tmp_path, "full.pt", partial=False)
    names = ["full.pt", "newest", "optimizer_full.pt", "p1_partial"]
    assert sorted(os.listdir(tmp_path)) == names
    assert list(torch.load(tmp_path / "full.pt", weights_only=True)) == ["w0", "w1"]
    as_rank(2, parts=4)
    (tmp_path / "user_content_full.pt").touch()  # as transformers does
    checkpoint.state.model = Script(torch, 0)
    for tag in (None, "full.pt"):
        assert checkpoint.resume_from_checkpoint(tmp_path, tag, partial=False) is None
        assert list(checkpoint.state.model.loaded) == ["w0", "w1"]
    checkpoint.resume_from_checkpoint(tmp_path, partial=False, translate_function=lambda values: [*values])
    assert checkpoint.state.model.loaded == ["w0", "w1"]
    as_rank(0)
    checkpoint.resume_from_checkpoint(tmp_path)  # the newest is a whole one
    assert list(checkpoint.state.model.loaded) == ["w0", "_smp_is_partial"]


def test_as_many_as_are_kept(checkpoint: Any, as_rank: AsRank, torch: Any, tmp_path: Path) -> None:
    saved(checkpoint, as_rank, torch, tmp_path, "s1")
    (tmp_path / "s1_partial" / "notes.txt").touch()
    saved(checkpoint, as_rank, torch, tmp_path, "s2", "s3", "s4", num_kept_partial_checkpoints=2)
    assert sorted(os.listdir(tmp_path)) == ["newest", "s1_partial", "s3_partial", "s4_partial"]
    assert os.listdir(tmp_path / "s1_partial") == ["notes.txt"]
    with pytest.raises(ValueError, match="num_kept_partial_checkpoints=0: expected 1 or more, or None"):
        checkpoint.save_checkpoint(tmp_path, "s5", num_kept_partial_checkpoints=0)


def test_nothing_to_resume_from(checkpoint: Any, as_rank: AsRank, torch: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"make the smp\.DistributedModel first"):
        checkpoint.resume_from_checkpoint(tmp_path)
    checkpoint.state.model = Script(torch, 0)

    def refused(words: str, *args: Any, **named: Any) -> None:
        with pytest.raises(checkpoint.SMPCheckpointError) as caught:
            checkpoint.resume_from_checkpoint(tmp_path, *args, **named)
        assert words in str(caught.value)

    refused("has no file 'newest', so no checkpoint, unless you pass its tag")
    saved(checkpoint, as_rank, torch, tmp_path, "s1")
    refused("names no full checkpoint: pass its tag, or partial=True", partial=False)
    refused("doesn't exist, but parts of it do: load it with partial=True", "s1", partial=False)
    refused("s9_partial/model_0_0_0.pt doesn't exist", "s9")
    as_rank(0, parts=4)
    refused("s1_partial was saved with pipeline_parallel_degree 2, and this job has 4")
    as_rank(3, parts=4)
    refused("doesn't exist, but 2 other parts of it")


class Payload:
    """Runs something when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_checkpoint_may_be_anybodys(checkpoint: Any, as_rank: AsRank, torch: Any, tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    content = {"lr": numpy.float64(0.1), "seen": numpy.arange(3), "args": Namespace(lr=1), "path": Path("a")}
    saved(checkpoint, as_rank, torch, tmp_path, "full.pt", partial=False, user_content=content)
    as_rank(0)
    checkpoint.state.model, checkpoint.state.optimizer = Script(torch, 0), Script(torch, 0)
    found = checkpoint.resume_from_checkpoint(tmp_path, partial=False)
    assert found["seen"].tolist() == [0, 1, 2] and found["args"].lr == 1 and found["path"] == Path("a")
    run = tmp_path / "run"
    for name in ("full.pt", "optimizer_full.pt", "user_content_full.pt"):
        before = (tmp_path / name).read_bytes()
        torch.save({"state": {}, "more": Payload(run)}, tmp_path / name)
        with pytest.raises(checkpoint.SMPCheckpointError, match=r"posix\.mkdir.*may run code") as caught:
            checkpoint.resume_from_checkpoint(tmp_path, "full.pt", partial=False)
        assert str(tmp_path / name) in str(caught.value) and "add_safe_globals" in str(caught.value)
        assert ("trust_user_content=True" in str(caught.value)) == (name == "user_content_full.pt")
        assert not run.exists()
        if name != "user_content_full.pt":
            (tmp_path / name).write_bytes(before)
    checkpoint.resume_from_checkpoint(tmp_path, "full.pt", partial=False, trust_user_content=True)
    assert run.exists()


def test_a_rank_is_killed_while_a_checkpoint_is_saved(run_ranks: Callable[..., Any]) -> None:
    """At every moment of it: what is resumed with is one whole checkpoint, and the next job saves as ever."""
    [seen] = run_ranks("smp_killed.py", 1)
    assert {name: found["wrong"] for name, found in seen.items() if found["wrong"]} == {}
    assert len(seen) == 5
    assert min(found["moments"][0] for found in seen.values()) >= 8
    assert min(found["moments"][1] for name, found in seen.items() if "partial" in name or "kept" in name) >= 9
