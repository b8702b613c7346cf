"""What lies here when an attempt ends is that attempt's, whenever it is seen or marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.embedded.programs import checkpoint_sights
from musterpoint.embedded.programs.checkpoint_kinds import Unit
from musterpoint.embedded.programs.checkpoint_look import Facts
from musterpoint.embedded.programs.checkpoint_sights import Sights


def saved(step: int, inode: int = 1, *, is_whole: bool = False) -> Unit:
    """A host's part of a checkpoint, which says by itself that it is whole, or does not."""
    name = f"checkpoint-{step}"
    files = {f"{name}/rng_state_1.pth": Facts(10, 5, 5, inode)}
    return Unit(name, files, unmarked="" if is_whole else "no mark", family="checkpoint-#")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "attempts")


@pytest.fixture
def sights(path: str) -> Sights:
    return Sights(path, "run", 0)


@pytest.mark.parametrize("anew", [False, True], ids=["the-same-keeper", "another-keeper"])
def test_a_mark_may_come_after_its_attempt(path: str, sights: Sights, anew: bool) -> None:
    sights.begin(1, [saved(1), saved(2)])
    if anew:
        sights = Sights(path, "run", 1)
    sights.mark("checkpoint-2", 0)
    assert sights.newest([saved(1), saved(2)]) == [saved(2)]
    assert sights.attempt_of(saved(2)) == 0


def test_a_mark_before_any_look_counts(sights: Sights) -> None:
    sights.mark("checkpoint-1", 0)
    sights.begin(1, [saved(1)])
    assert sights.newest([saved(1)]) == [saved(1)]


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_mark_counts_only_for_what_its_attempt_saved(sights: Sights, attempt: int) -> None:
    sights.begin(1, [saved(1)])
    sights.mark("checkpoint-1", attempt)
    old, new = saved(1), saved(1, inode=2)
    assert [bool(sights.newest([each])) for each in (old, new)] == [attempt == 0, attempt == 1]
    assert (sights.attempt_of(old), sights.attempt_of(new)) == (0, 1)


def test_a_mark_makes_no_half_file_whole(sights: Sights) -> None:
    """It counts when the file has got its end."""
    sights.mark("checkpoint-1", 0)
    assert not sights.newest([saved(1)._replace(lacks="rng_state_1.pth ends too early")])
    assert sights.newest([saved(1)]) == [saved(1)]


def test_what_lies_here_over_two_attempts_is_the_firsts(sights: Sights) -> None:
    sights.begin(1, [saved(1)])
    sights.begin(2, [saved(1), saved(2)])
    assert [sights.attempt_of(each) for each in (saved(1), saved(2), saved(3))] == [0, 1, 2]


def test_the_order_outlives_a_keeper(path: str, sights: Sights) -> None:
    """A later attempt that begins from an earlier step saves lower numbers last."""
    first, second = saved(7, is_whole=True), saved(3, is_whole=True)
    sights.newest([first])
    sights.newest([second, first])
    sights.begin(1, [second, first])
    assert Sights(path, "run", 1).newest([second, first]) == [second]


@pytest.mark.parametrize("anew", [False, True], ids=["the-same-keeper", "another-keeper"])
def test_what_an_attempt_left_is_older_than_what_the_next_one_saves(path: str, sights: Sights, anew: bool) -> None:
    """Whenever it becomes whole, and whatever its number is: at the end, or by a mark that came late."""
    sights.begin(1, [saved(2), saved(3)])
    if anew:
        sights = Sights(path, "run", 1)
    assert sights.newest([saved(1, 9, is_whole=True), saved(2), saved(3)]) == [saved(1, 9, is_whole=True)]
    sights.mark("checkpoint-2", 0)
    left = [saved(2), saved(3, is_whole=True)]
    assert sights.newest([saved(1, 9, is_whole=True), *left]) == [saved(1, 9, is_whole=True)]
    assert sights.newest(left) == [saved(3, is_whole=True)]


def test_another_runs_file_is_not_read(path: str) -> None:
    Sights(path, "run", 0).begin(1, [saved(1)])
    sights = Sights(path, "another", 1)
    assert sights.attempt_of(saved(1)) == 1


def trained(weights: int, state: int, *more: str) -> Unit:
    """A checkpoint of transformers; the inodes of its weights and of its mark."""
    names = {"model.bin": weights, "trainer_state.json": state, **dict.fromkeys(more, 1)}
    files = {f"checkpoint-1/{name}": Facts(10, 5, 5, inode) for name, inode in names.items() if inode}
    return Unit("checkpoint-1", files, mark="checkpoint-1/trainer_state.json")


def test_what_is_written_over_under_its_old_mark_is_not_whole(path: str, sights: Sights) -> None:
    """An attempt saves a step of the one before again, or removes it."""
    assert sights.newest([trained(1, 1)]) and sights.newest([trained(1, 1, "README.md")])
    half, removed, again = trained(2, 1, "README.md"), trained(0, 1, "README.md"), trained(2, 2, "README.md")
    assert not sights.newest([half]) and not sights.newest([removed])
    assert not Sights(path, "run", 0).newest([half]), "another keeper knows it, too"
    assert sights.newest([half], is_over=True) == [half]
    assert sights.newest([again]) == [again]


@pytest.mark.parametrize("anew", [False, True], ids=["the-same-keeper", "another-keeper"])
def test_a_file_of_another_rank_may_be_written_over_after_the_mark(path: str, sights: Sights, anew: bool) -> None:
    early, late, next_one = trained(2, 2), trained(2, 2), trained(2, 2)
    for unit, inode in ((early, 1), (late, 2), (next_one, 3)):
        unit.files["checkpoint-1/rng_state_1.pth"] = Facts(10, 5, 5, inode)
    first = trained(1, 1)
    first.files["checkpoint-1/rng_state_1.pth"] = Facts(10, 5, 5, 1)
    assert sights.newest([first]) and sights.newest([early])
    if anew:
        sights = Sights(path, "run", 0)
    assert sights.newest([late]) == [late]
    assert not sights.newest([next_one]), "this is the next time that the step is saved"
    alone = Sights(f"{path}-alone", "run", 0, several=False)
    assert alone.newest([first]) and alone.newest([early]) and not alone.newest([late])


def several(name: str, **inodes: int) -> Unit:
    return Unit(name, {f"step-1/{each}": Facts(10, 5, 5, inode) for each, inode in inodes.items()})


def test_a_folder_that_is_being_removed_is_not_saved_again(sights: Sights) -> None:
    assert sights.newest([several("step-1", a=1, b=1)])
    assert not sights.newest([several("step-1", a=2, b=1)]), "half of it is of another attempt"
    assert not sights.newest([several("step-1", a=1)])


def test_files_that_are_saved_one_by_one_come_and_go_and_none_is_missed(
    sights: Sights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Lightning's do, and ``model.pt`` and ``optim.pt``."""
    assert sights.newest([several("step-1/*.ckpt", best1=1, last=1)])
    assert sights.newest([several("step-1/*.ckpt", best1=1, last=2)])
    assert sights.newest([several("step-1/*.ckpt", best2=1, last=2)]), "another best one is there"
    assert not sights.newest([several("step-1/*.ckpt", best3=1)]), "the last one is being written"
    assert sights.newest([several("step-1/*.ckpt", best3=1, last=3)])
    monkeypatch.setattr(checkpoint_sights, "GONE", 0.0)
    assert sights.newest([several("step-1/*.ckpt", best3=1)]), "it was removed for good"
