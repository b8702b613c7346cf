"""What stands in for AWS's package: to whom it yields, and what it says of what it hasn't got."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.core.launch.inputs import STANDINS

REAL = "WHO = 'the real one'\n"


def run(code: str, *path: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **environ}
    return subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)


def package(folder: Path, text: str = REAL) -> Path:
    (folder / "sagemaker_training").mkdir(parents=True)
    (folder / "sagemaker_training" / "__init__.py").write_text(text)
    (folder / "sagemaker_training" / "environment.py").write_text(REAL)
    return folder


WHO = "from sagemaker_training import environment; print(environment.WHO)"
EDITABLE = """
import sys
from importlib.util import spec_from_file_location
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "sagemaker_training":
            return spec_from_file_location(name, {place!r} + "/__init__.py", submodule_search_locations=[{place!r}])
sys.meta_path.append(Finder)
"""


def test_a_package_behind_it_takes_its_place(tmp_path: Path) -> None:
    done = run(WHO, STANDINS, package(tmp_path))
    assert done.stdout == "the real one\n", done.stderr
    done = run("import sagemaker_training.environment as e, sagemaker_training as s; print(e.WHO, s.__file__)",
               STANDINS, tmp_path)  # fmt: skip
    assert done.stdout == f"the real one {tmp_path}/sagemaker_training/__init__.py\n", done.stderr


def test_so_does_one_that_another_finder_knows(tmp_path: Path) -> None:
    place = str(package(tmp_path) / "sagemaker_training")
    done = run(EDITABLE.format(place=place) + WHO, STANDINS)
    assert done.stdout == "the real one\n", done.stderr


def test_a_broken_one_breaks_as_it_would(tmp_path: Path) -> None:
    done = run(WHO, STANDINS, package(tmp_path, "import a_package_that_it_lacks\n"))
    assert "No module named 'a_package_that_it_lacks'" in done.stderr


def test_two_of_them_do_not_yield_to_each_other(tmp_path: Path) -> None:
    """A launcher below a ``train`` adds its own."""
    other = tmp_path / "musterpoint" / "embedded" / "standins"
    other.parent.mkdir(parents=True)
    other.symlink_to(STANDINS)
    done = run("from sagemaker_training import environment; print(environment.Environment().num_gpus)",
               STANDINS, other, SM_TRAINING_ENV='{"num_gpus": 3}')  # fmt: skip
    assert done.stdout == "3\n", done.stderr


def test_it_is_a_mapping_too() -> None:
    code = (
        "from sagemaker_training.environment import Environment; env = Environment()\n"
        "print(env['hosts'], env.get('x'), len(env), dict(env) == {**env}, str(env), 'hosts' in dir(env), env.hosts)\n"
        "print(env.properties(), hasattr(env, 'x'))"
    )
    done = run(code, STANDINS, SM_TRAINING_ENV=json.dumps({"hosts": ["a"]}))
    assert done.stdout == "['a'] None 1 True {'hosts': ['a']} True ['a']\n['hosts'] False\n", done.stderr


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("from sagemaker_training import entry_point", "Error: sagemaker_training.entry_point: this image has"),
        ("import sagemaker_training.entry_point", "Error: sagemaker_training.entry_point: this image has"),
        ("from sagemaker_training.encoders import decode", "Error: sagemaker_training.encoders: this image has"),
        ("from sagemaker_training import entry_point", "pip install sagemaker-training"),
        ("from sagemaker_training import environment; environment.Environment()", "RuntimeError: sagemaker_training"),
        ("from sagemaker_training import environment; environment.Environment()", "SM_TRAINING_ENV isn't set"),
        ("import copy, sagemaker_training as s; s.__wrapped__", "AttributeError"),
    ],
)
def test_what_it_has_not_got(code: str, words: str) -> None:
    environ = {"SM_TRAINING_ENV": ""}
    assert words in run(code, STANDINS, **environ).stderr


def test_copies_of_it_are_whole() -> None:
    code = "import copy, pickle; from sagemaker_training.environment import Environment; env = Environment()\n"
    code += "print(copy.deepcopy(env).a, pickle.loads(pickle.dumps(env)).a)"
    done = run(code, STANDINS, SM_TRAINING_ENV='{"a": 1}')
    assert done.stdout == "1 1\n", done.stderr
