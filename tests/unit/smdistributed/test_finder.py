"""Whose ``smdistributed`` a program imports: AWS's, package by package, where it is installed, and else ours."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Callable

import pytest

import musterpoint
from musterpoint.cli.bundle import archive
from musterpoint.local.host_environment import PATCHES

from .conftest import SMDISTRIBUTED, STARTUP

Says = Callable[..., str]

WHO = """
import importlib
for name in ("dataparallel", "modelparallel"):
    try:
        module = importlib.import_module("smdistributed." + name)
        print(getattr(module, "WHO", "") or module.__shim__)
    except ImportError as error:
        print(error)
"""
EDITABLE = """
import sys
from importlib.util import spec_from_file_location
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "smdistributed":
            return spec_from_file_location(name, {place!r} + "/__init__.py", submodule_search_locations=[{place!r}])
sys.meta_path.insert(3, Finder)
"""


def aws(folder: Path, *packages: str, regular: bool = True) -> Path:
    """A folder of installed packages that has these of AWS's; the top package a regular one or a namespace."""
    top = folder / "smdistributed"
    for package in packages:
        (top / package).mkdir(parents=True)
        (top / package / "__init__.py").write_text(f"WHO = 'AWS {package}'\n")
    if regular:
        (top / "__init__.py").touch()
    return folder


def test_nothing_installed(python_says: Says) -> None:
    assert python_says(WHO).splitlines() == ["musterpoint", "musterpoint"]


@pytest.mark.parametrize("regular", [True, False], ids=["regular", "namespace"])
def test_both_installed(python_says: Says, tmp_path: Path, regular: bool) -> None:
    place = aws(tmp_path / "site", "dataparallel", "modelparallel", regular=regular)
    assert python_says(WHO, place).splitlines() == ["AWS dataparallel", "AWS modelparallel"]


@pytest.mark.parametrize("regular", [True, False], ids=["regular", "namespace"])
def test_each_package_is_a_matter_of_its_own(python_says: Says, tmp_path: Path, regular: bool) -> None:
    place = aws(tmp_path / "data", "dataparallel", regular=regular)
    assert python_says(WHO, place).splitlines() == ["AWS dataparallel", "musterpoint"]
    code = "import smdistributed.dataparallel, smdistributed.shared.rank_environment as of_both; print(of_both.PORT)"
    assert python_says(code, place) == "7777"
    place = aws(tmp_path / "model", "modelparallel", regular=regular)
    assert python_says(WHO, place).splitlines() == ["musterpoint", "AWS modelparallel"]


def test_what_another_finder_finds_comes_first(python_says: Says, tmp_path: Path) -> None:
    place = str(aws(tmp_path / "site", "dataparallel") / "smdistributed")
    assert python_says(EDITABLE.format(place=place) + WHO).splitlines()[0] == "AWS dataparallel"


def test_the_finders_are_the_last(python_says: Says) -> None:
    code = "import sys; print([finder.__name__ for finder in sys.meta_path[-2:]])"
    assert python_says(code) == "['PackageFinder', 'TopFinder']"


def test_a_program_that_only_looks_finds_it(python_says: Says) -> None:
    """As transformers and accelerate look."""
    code = (
        "import sys; from importlib.util import find_spec\n"
        "print(find_spec('smdistributed') is not None, 'torch' in sys.modules)"
    )
    assert python_says(code) == "True False"


def test_switched_off(python_says: Says, tmp_path: Path) -> None:
    said = python_says("import smdistributed", SMDISTRIBUTED_SHIM="0")
    assert said == "ModuleNotFoundError: No module named 'smdistributed'"


def test_forced(python_says: Says, tmp_path: Path) -> None:
    place = aws(tmp_path / "site", "dataparallel", "modelparallel")
    assert python_says(WHO, place, SMDISTRIBUTED_SHIM="1").splitlines() == ["musterpoint", "musterpoint"]


def test_another_value_of_the_switch_is_an_error(python_says: Says) -> None:
    said = python_says(
        "import musterpoint_smdistributed", Path(musterpoint.__file__).parents[1], SMDISTRIBUTED_SHIM="no"
    )
    assert said == "ValueError: SMDISTRIBUTED_SHIM='no': expected 0 (never musterpoint's smdistributed) or 1 (always)"


def test_switched_on_by_an_import(environ: dict[str, str]) -> None:
    code = "import musterpoint_smdistributed, smdistributed.dataparallel as d; print(d.__name__, d.__shim__)"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == "smdistributed.dataparallel musterpoint\n", done.stderr


def test_switched_on_by_a_pth_file(root: Path, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "smdistributed.pth").write_text((root / "container" / "smdistributed.pth").read_text())
    code = f"import site; site.addsitedir({str(tmp_path)!r}); import smdistributed.dataparallel as d; print(d.__shim__)"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == "musterpoint\n", done.stderr


def test_switched_on_out_of_the_one_file_launcher(environ: dict[str, str], tmp_path: Path) -> None:
    packed = tmp_path / "launcher.zip"
    packed.write_bytes(archive(str(SMDISTRIBUTED.parent)))
    environ["PYTHONPATH"] = f"{packed}/musterpoint_smdistributed/startup"
    code = "import smdistributed.dataparallel.exceptions as e; print(e.__file__, e.SMDDPError.__mro__[1].__name__)"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    place = f"{packed}/musterpoint_smdistributed/dataparallel/exceptions.py"
    assert done.stdout == f"{place} Exception\n", done.stderr


def test_what_it_adds_to_the_one_file_launcher() -> None:
    """As docs/smdistributed.md says it."""
    with zipfile.ZipFile(io.BytesIO(archive(str(SMDISTRIBUTED.parent)))) as packed:
        sizes = [entry.compress_size for entry in packed.infolist() if "smdistributed" in entry.filename]
    assert sum(sizes) * 4 / 3 < 360 * 1024


@pytest.mark.parametrize("other_first", [True, False])
def test_a_sitecustomize_of_the_users_runs_as_well(
    environ: dict[str, str], their_sitecustomize: str, other_first: bool
) -> None:
    """Also one that calls all others itself, before this one or after it."""
    paths = [their_sitecustomize, STARTUP] if other_first else [STARTUP, their_sitecustomize]
    environ["PYTHONPATH"] = os.pathsep.join(paths)
    code = "import smdistributed.dataparallel as d; print(d.__shim__)"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["theirs", "musterpoint"], done.stderr


def test_a_sitecustomize_of_the_users_runs_beside_a_pth_file(
    root: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    """Python reads .pth files first, so the finder is there before this directory's sitecustomize runs."""
    (tmp_path / "smdistributed.pth").write_text((root / "container" / "smdistributed.pth").read_text())
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    environ["PYTHONPATH"] = os.pathsep.join([STARTUP, str(tmp_path), str(SMDISTRIBUTED.parent)])
    code = (
        f"import site; site.addsitedir({str(tmp_path)!r}); site.execsitecustomize()\n"
        "import sys; print([finder.__name__ for finder in sys.meta_path[-2:]])"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["theirs", "['PackageFinder', 'TopFinder']"], done.stderr


def test_a_launcher_inside_of_a_job_hides_no_sitecustomize(environ: dict[str, str], tmp_path: Path) -> None:
    """As the one-file launcher that a job starts: its directory stands before that of the job's own musterpoint."""
    packed = tmp_path / "launcher.zip"
    packed.write_bytes(archive(str(SMDISTRIBUTED.parent)))
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    inner = f"{packed}/musterpoint_smdistributed/startup"
    environ["PYTHONPATH"] = os.pathsep.join([inner, STARTUP, str(tmp_path)])
    code = "import sys; print([getattr(finder, '__name__', '') for finder in sys.meta_path].count('TopFinder'))"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["theirs", "1"], done.stderr


def test_two_sitecustomizes_that_call_each_other_end_while_it_is_switched_off(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"print('theirs')\nimport runpy\nrunpy.run_path({STARTUP!r} + '/sitecustomize.py')\n"
    )
    environ |= {"PYTHONPATH": os.pathsep.join([STARTUP, str(tmp_path)]), "SMDISTRIBUTED_SHIM": "0"}
    done = subprocess.run([sys.executable, "-c", ""], env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("theirs\n", "")


def test_the_patches_of_local_jobs_call_what_lies_behind_them(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    environ["PYTHONPATH"] = os.pathsep.join([STARTUP, PATCHES, str(tmp_path)])
    code = "import sys; print('muster_gloo_exit' in sys.modules, sys.meta_path[-1].__name__)"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["theirs", "True TopFinder"], done.stderr


@pytest.mark.parametrize("package", ["dataparallel", "modelparallel", "shared"])
def test_it_has_one_name(environ: dict[str, str], package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import musterpoint_smdistributed.{package}"], env=environ, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert f"ImportError: import it as smdistributed.{package}" in done.stderr


def test_versions(python_says: Says) -> None:
    code = (
        "import smdistributed.dataparallel as d, smdistributed.modelparallel as m; print(d.__version__, m.__version__)"
    )
    ours = musterpoint.__version__
    assert python_says(code) == f"1.8.0+musterpoint.{ours} 1.15.0+musterpoint.{ours}"


@pytest.mark.parametrize("package", ["dataparallel", "modelparallel"])
def test_tensorflow_is_missing_by_its_own_name(python_says: Says, package: str) -> None:
    said = python_says(f"import smdistributed.{package}.tensorflow as sdp")
    assert said.startswith(f"ImportError: smdistributed.{package}.tensorflow needs TensorFlow 2, which this Python")
    assert f"smdistributed.{package}.torch" in said
