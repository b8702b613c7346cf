"""Who owns what a job left, where a person made its input."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.core.job.model import Paths
from musterpoint.core.job.opt_ml import paths_of
from musterpoint.core.report.output_directory import give_back

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
PERSON = 54321


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A tree whose input a person made, and in which root has written."""
    made = paths_of(str(tmp_path / "ml"))
    for folder in (made.input_config, made.model, made.output_data, made.code, str(tmp_path / "ml" / "shared")):
        os.makedirs(folder)
    os.chown(made.input_config, PERSON, PERSON)
    (Path(made.model) / "weights").touch()
    (Path(made.code) / "__pycache__").mkdir()
    return made


def owner(path: str | Path) -> int:
    return os.stat(path, follow_symlinks=False).st_uid


def test_what_root_left_is_the_persons(paths: Paths) -> None:
    theirs = Path(paths.output_data) / "theirs"
    theirs.touch()
    os.chown(theirs, 7, 7)
    assert give_back(paths) == 7
    assert owner(paths.model) == owner(Path(paths.model) / "weights") == PERSON
    assert owner(Path(paths.code) / "__pycache__") == PERSON
    assert owner(theirs) == 7
    assert give_back(paths) == 0


def test_a_link_leads_nowhere(paths: Paths, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").touch()
    (Path(paths.model) / "link").symlink_to(outside)
    os.rmdir(paths.output_data)
    os.symlink(outside, paths.output_data)
    give_back(paths._replace(checkpoints=str(Path(paths.model) / "link")))
    assert owner(outside) == owner(outside / "secret") == 0
    assert owner(Path(paths.model) / "link") == PERSON


def test_only_the_platforms_own_directory(paths: Paths, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    give_back(paths._replace(checkpoints=str(state), code=str(tmp_path)))
    assert owner(state) == owner(tmp_path) == 0


def test_a_platform_that_makes_the_input_as_root(paths: Paths) -> None:
    os.chown(paths.input_config, 0, 0)
    assert give_back(paths) == 0
    assert give_back(Paths()) == 0


def test_a_directory_that_hands_its_group_down_is_given_back(paths: Paths) -> None:
    shared = Path(paths.model) / "shared"
    shared.mkdir()
    shared.chmod(0o2755)
    granting = Path(paths.model) / "granting"
    granting.touch()
    granting.chmod(0o4755)
    give_back(paths)
    assert (owner(shared), owner(granting)) == (PERSON, 0)


@pytest.mark.parametrize("place", ["{model}/link/inner", "{base}/../outside", "{base}/model/../../outside"])
def test_a_checkpoint_path_leads_nowhere_else(paths: Paths, tmp_path: Path, place: str) -> None:
    inner = tmp_path / "outside" / "inner"
    inner.mkdir(parents=True)
    (Path(paths.model) / "link").symlink_to(tmp_path / "outside")
    give_back(paths._replace(checkpoints=place.format(model=paths.model, base=paths.base)))
    assert owner(inner) == owner(inner.parent) == 0
