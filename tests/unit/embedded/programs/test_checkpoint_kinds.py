"""What counts as a whole checkpoint, kind by kind: by its own mark, and by nothing else."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Callable

import pytest

from musterpoint.embedded.programs import checkpoint_restore
from musterpoint.embedded.programs.checkpoint_kinds import newest_of, units_of
from musterpoint.embedded.programs.checkpoint_look import World, look_at


def write(root: Path, name: str, data: bytes = b"x") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith((".pt", ".pth", ".ckpt", ".distcp")) and data == b"x":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("data", "x" * 1000)
    else:
        path.write_bytes(data)


def half(root: Path, name: str) -> None:
    path = root / name
    path.write_bytes(path.read_bytes()[:-30])


def whole(root: Path, world: World = World(), **more: object) -> set[str]:  # noqa: B008
    """The names of those that are whole."""
    return {unit.name for unit in newest_of(units_of(look_at(str(root), world, **more)))}  # type: ignore[arg-type]


def torch_dcp(root: Path) -> None:
    for rank in range(2):
        write(root, f"step-2/__{rank}_0.distcp")
    write(root, "step-2/.metadata", pickle.dumps({"storage": [f"__{rank}_0.distcp" for rank in range(2)]}))


def trainer(root: Path) -> None:
    write(root, "checkpoint-500/model.safetensors", _safetensors())
    write(root, "checkpoint-500/training_args.bin")
    for rank in range(2):
        write(root, f"checkpoint-500/rng_state_{rank}.pth")
    write(root, "checkpoint-500/trainer_state.json", b"{}")


def accelerate(root: Path) -> None:
    write(root, "epoch_1/model.safetensors", _safetensors())
    for rank in range(2):
        write(root, f"epoch_1/random_states_{rank}.pkl")


def deepspeed(root: Path) -> None:
    write(root, "global_step5/mp_rank_00_model_states.pt")
    for rank in range(2):
        write(root, f"global_step5/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    write(root, "zero_to_fp32.py")
    write(root, "latest", b"global_step5")


def orbax(root: Path) -> None:
    write(root, "7/_CHECKPOINT_METADATA", b"{}")
    write(root, "7/d/array")


def tensorflow(root: Path) -> None:
    for shard in range(2):
        write(root, f"ckpt-3.data-{shard:05d}-of-00002")
    write(root, "ckpt-3.index")
    write(root, "checkpoint", b'model_checkpoint_path: "ckpt-3"')


def lightning(root: Path) -> None:
    write(root, "logs/version_0/hparams.yaml")
    write(root, "logs/version_0/checkpoints/epoch=1.ckpt")


def smdistributed(root: Path) -> None:
    write(root, "tag-1_partial/model_0_0.pt")
    write(root, "newest", b"tag-1_partial\n")


def _safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return len(header).to_bytes(8, "little") + header + b"\0" * 8


KINDS: dict[str, tuple[Callable[[Path], None], str, tuple[str, ...], tuple[str, ...]]] = {
    "torch": (torch_dcp, "step-2", ("step-2/.metadata", "step-2/__1_0.distcp"), ("step-2/__0_0.distcp",)),
    "trainer": (trainer, "checkpoint-500", ("checkpoint-500/trainer_state.json", "checkpoint-500/rng_state_1.pth"),
     ("checkpoint-500/model.safetensors", "checkpoint-500/rng_state_0.pth")),
    "accelerate": (accelerate, "epoch_1", ("epoch_1/random_states_1.pkl",), ("epoch_1/model.safetensors",)),
    "deepspeed": (deepspeed, "global_step5", ("latest", "global_step5/zero_pp_rank_1_mp_rank_00_optim_states.pt"),
     ("global_step5/mp_rank_00_model_states.pt",)),
    "orbax": (orbax, "7", (), ()),
    "tensorflow": (tensorflow, "ckpt-3", ("ckpt-3.index", "ckpt-3.data-00001-of-00002"), ()),
    "lightning": (lightning, "logs/version_0/checkpoints/*.ckpt", ("logs/version_0/checkpoints/epoch=1.ckpt",),
     ("logs/version_0/checkpoints/epoch=1.ckpt",)),
    "smdistributed": (smdistributed, "tag-1_partial", ("newest",), ("tag-1_partial/model_0_0.pt",)),
}  # fmt: skip
"""What makes one, its name, the files without which it isn't whole, and those that tell when they are half."""
TWO = World(2, 0, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_and_not(kind: str, tmp_path: Path) -> None:
    make, name, needed, tells = KINDS[kind]
    make(tmp_path)
    assert name in whole(tmp_path, TWO)
    for missing in needed:
        (tmp_path / missing).rename(tmp_path.parent / "away")
        assert name not in whole(tmp_path, TWO), missing
        (tmp_path.parent / "away").rename(tmp_path / missing)
    for each in tells:
        data = (tmp_path / each).read_bytes()
        half(tmp_path, each)
        assert name not in whole(tmp_path, TWO), each
        (tmp_path / each).write_bytes(data)
    assert name in whole(tmp_path, TWO)


MARKS = {
    "torch": "step-2/.metadata", "trainer": "checkpoint-500/trainer_state.json", "deepspeed": "latest",
    "tensorflow": "ckpt-3.index", "smdistributed": "newest",
}  # fmt: skip
"""What only one host may have of each kind."""


@pytest.mark.parametrize("kind", MARKS)
def test_another_hosts_mark_says_nothing_about_files_that_are_here(kind: str, tmp_path: Path) -> None:
    make, name, _, tells = KINDS[kind]
    make(tmp_path)
    (tmp_path / MARKS[kind]).unlink()

    def is_unmarked() -> bool:
        [unit] = [unit for unit in units_of(look_at(str(tmp_path), TWO)) if unit.name == name]
        assert not unit.is_whole and not unit.marked
        return unit.is_unmarked

    assert is_unmarked()
    for each in tells:
        data = (tmp_path / each).read_bytes()
        half(tmp_path, each)
        assert not is_unmarked(), each
        (tmp_path / each).write_bytes(data)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".py"]
    with open(files[0], "ab"):
        assert not is_unmarked()


def test_a_checkpoint_inside_may_have_its_mark_on_another_host(tmp_path: Path) -> None:
    """FSDP's inside of the Trainer's."""
    trainer(tmp_path)
    write(tmp_path, "checkpoint-500/pytorch_model_fsdp_0/__1_0.distcp")
    [unit] = units_of(look_at(str(tmp_path), TWO))
    assert unit.is_unmarked and not unit.is_whole
    half(tmp_path, "checkpoint-500/pytorch_model_fsdp_0/__1_0.distcp")
    [unit] = units_of(look_at(str(tmp_path), TWO))
    assert not unit.is_unmarked and not unit.is_whole


@pytest.mark.parametrize("folder", ["new-7.tmp", "tmp-7", "7.orbax-checkpoint-tmp-1", "7.tmp/model", "tmpb2k_1xy0"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_will_be_renamed_isnt_whole(kind: str, folder: str, tmp_path: Path) -> None:
    """Its program may be killed between the mark and the rename, and the temporary name stays."""
    make, name, _, _ = KINDS[kind]
    make(tmp_path / folder)
    for is_over in (False, True):
        assert not whole(tmp_path, TWO, is_over=is_over)
    assert not whole(tmp_path, TWO, marks=("*/trainer_state.json", "*/latest", "*.index", "*.ckpt"))
    assert {unit.why_not for unit in units_of(look_at(str(tmp_path), TWO)) if folder in unit.name}
    said = frozenset({f"{folder}/{name}".removesuffix("/*.ckpt")})
    if kind not in ("tensorflow", "lightning"):  # prefixes and patterns can't be said
        assert whole(tmp_path, TWO, said=said) == set(said)
    (tmp_path / folder.partition("/")[0]).rename(tmp_path / "run-7")
    assert any(each.endswith(name) for each in whole(tmp_path, TWO))


def test_shards_that_tensorflow_merges_arent_whole(tmp_path: Path) -> None:
    for folder in ("ckpt-3_temp", "ckpt-3_temp_0123456789abcdef0123456789abcdef"):
        write(tmp_path, f"{folder}/part-00000-of-00001.data-00000-of-00001")
        write(tmp_path, f"{folder}/part-00000-of-00001.index")
        assert not whole(tmp_path, TWO)


def test_a_file_that_is_open_for_writing_isnt_whole(tmp_path: Path) -> None:
    trainer(tmp_path)
    with open(tmp_path / "checkpoint-500/model.safetensors", "ab"):
        assert not whole(tmp_path, TWO)
    assert whole(tmp_path, TWO)


def test_a_folder_without_a_mark(tmp_path: Path) -> None:
    """It is whole since it was renamed, has a successor, was said to be, or all is over."""
    write(tmp_path, "step-1/state")
    assert not whole(tmp_path)
    assert whole(tmp_path, is_over=True) == {"step-1"}
    assert whole(tmp_path, said=frozenset({"step-1"})) == {"step-1"}
    write(tmp_path, "step-2/state")
    assert whole(tmp_path) == {"step-1"}
    write(tmp_path, "new/state")
    facts = os.stat(tmp_path / "new")
    while os.stat(tmp_path / "new").st_ctime_ns == facts.st_mtime_ns:  # the clock of file systems goes in steps
        os.rename(tmp_path / "new", tmp_path / "step-3")
        os.rename(tmp_path / "step-3", tmp_path / "new")
    os.rename(tmp_path / "new", tmp_path / "step-3")
    assert whole(tmp_path) == {"step-3"}


def test_marks_of_the_user_replace_the_known_ones(tmp_path: Path) -> None:
    trainer(tmp_path)
    write(tmp_path, "mine/state")
    assert not whole(tmp_path, TWO, marks=("*/DONE",))
    write(tmp_path, "mine/DONE")
    assert whole(tmp_path, TWO, marks=("*/DONE",)) == {"mine"}


def test_another_hosts_files_are_needed_not_looked_for_here(tmp_path: Path) -> None:
    torch_dcp(tmp_path)
    (tmp_path / "step-2/__1_0.distcp").unlink()
    [unit] = units_of(look_at(str(tmp_path), World(2, 0, 1)))
    assert unit.is_whole and set(unit.needs) - set(unit.files) == {"step-2/__1_0.distcp"}


def test_torchs_own(tmp_path: Path) -> None:
    """As torch writes them today."""
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    with pytest.warns(UserWarning, match="single process"):
        dcp.save({"weight": torch.ones(1000)}, checkpoint_id=str(tmp_path / "step-1"), no_dist=True)
    [unit] = units_of(look_at(str(tmp_path), World()))
    assert unit.is_whole and unit.needs and set(unit.needs) <= set(unit.files)
    half(tmp_path, unit.needs[0])
    assert not whole(tmp_path)
    torch.save({"weight": torch.ones(1000)}, tmp_path / "model.pt")
    assert whole(tmp_path) == {"."}
    half(tmp_path, "model.pt")
    assert not whole(tmp_path)


def test_an_empty_folder_does_not_stay(tmp_path: Path) -> None:
    """A trainer takes the folder with the highest number, and may find nothing in it."""
    ours, empty = tmp_path / "ck" / ".muster-part", tmp_path / "ck" / "checkpoint-2000" / "parts"
    for each in (ours / "said", empty):
        each.mkdir(parents=True)
    assert checkpoint_restore._move_away(str(tmp_path / "ck"), set(), set()) == 0
    assert [each.name for each in (tmp_path / "ck").iterdir()] == [ours.name]
    assert (ours / "said").is_dir()
