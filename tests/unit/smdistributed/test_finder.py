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


def ran(environ: dict[str, str], code: str, *path: str | Path, options: tuple[str, ...] = ()) -> list[str]:
    """The lines that ``code`` prints with ``path`` in front of the interpreter's own."""
    more = {"PYTHONPATH": os.pathsep.join(map(str, path))} if path else {}
    done = subprocess.run(
        [sys.executable, *options, "-c", code], env={**environ, **more}, capture_output=True, text=True, check=False
    )
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """The one-file launcher."""
    (tmp_path / "launcher.zip").write_bytes(archive(str(SMDISTRIBUTED.parent)))
    return tmp_path / "launcher.zip"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder with a sitecustomize of the user's."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("print('theirs')\n")
    return tmp_path / "theirs"


@pytest.fixture
def pth(root: Path, tmp_path: Path) -> Path:
    """A folder of packages with our .pth file."""
    (tmp_path / "smdistributed.pth").write_text((root / "container" / "smdistributed.pth").read_text())
    return tmp_path


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
    assert ran(environ, code) == ["smdistributed.dataparallel musterpoint"]


def test_switched_on_by_a_pth_file(environ: dict[str, str], pth: Path) -> None:
    code = f"import site; site.addsitedir({str(pth)!r}); import smdistributed.dataparallel as d; print(d.__shim__)"
    assert ran(environ, code) == ["musterpoint"]


def test_switched_on_out_of_the_one_file_launcher(environ: dict[str, str], packed: Path) -> None:
    code = "import smdistributed.dataparallel.exceptions as e; print(e.__file__, e.SMDDPError.__mro__[1].__name__)"
    place = packed / "musterpoint_smdistributed"
    assert ran(environ, code, place / "startup") == [f"{place}/dataparallel/exceptions.py Exception"]


def test_what_it_adds_to_the_one_file_launcher() -> None:
    """As docs/smdistributed.md says it."""
    with zipfile.ZipFile(io.BytesIO(archive(str(SMDISTRIBUTED.parent)))) as packed:
        sizes = [entry.compress_size for entry in packed.infolist() if "smdistributed" in entry.filename]
    assert sum(sizes) * 4 / 3 < 380 * 1024


@pytest.mark.parametrize("other_first", [True, False])
def test_a_sitecustomize_of_the_users_runs_as_well(
    environ: dict[str, str], their_sitecustomize: str, other_first: bool
) -> None:
    """Also one that calls all others itself, before this one or after it."""
    paths = [their_sitecustomize, STARTUP] if other_first else [STARTUP, their_sitecustomize]
    code = "import smdistributed.dataparallel as d; print(d.__shim__)"
    assert ran(environ, code, *paths) == ["theirs", "musterpoint"]


def test_a_sitecustomize_of_the_users_runs_beside_a_pth_file(environ: dict[str, str], pth: Path, theirs: Path) -> None:
    """Python reads .pth files first, so the finder is there before this directory's sitecustomize runs."""
    code = (
        f"import site; site.addsitedir({str(pth)!r}); site.execsitecustomize()\n"
        "import sys; print([finder.__name__ for finder in sys.meta_path[-2:]])"
    )
    said = ran(environ, code, STARTUP, theirs, SMDISTRIBUTED.parent, options=("-S",))
    assert said == ["theirs", "['PackageFinder', 'TopFinder']"]


def test_a_launcher_inside_of_a_job_hides_no_sitecustomize(environ: dict[str, str], packed: Path, theirs: Path) -> None:
    """As the one-file launcher that a job starts: its directory stands before that of the job's own musterpoint."""
    code = "import sys; print([getattr(finder, '__name__', '') for finder in sys.meta_path].count('TopFinder'))"
    assert ran(environ, code, packed / "musterpoint_smdistributed/startup", STARTUP, theirs) == ["theirs", "1"]


def test_two_sitecustomizes_that_call_each_other_end_while_it_is_switched_off(
    environ: dict[str, str], theirs: Path
) -> None:
    (theirs / "sitecustomize.py").write_text(
        f"print('theirs')\nimport runpy\nrunpy.run_path({STARTUP!r} + '/sitecustomize.py')\n"
    )
    assert ran({**environ, "SMDISTRIBUTED_SHIM": "0"}, "", STARTUP, theirs) == ["theirs"]


def test_the_patches_of_local_jobs_call_what_lies_behind_them(environ: dict[str, str], theirs: Path) -> None:
    code = "import sys; print('muster_gloo_exit' in sys.modules, sys.meta_path[-1].__name__)"
    assert ran(environ, code, STARTUP, PATCHES, theirs) == ["theirs", "True TopFinder"]


@pytest.mark.parametrize("package", ["dataparallel", "modelparallel", "shared"])
def test_it_has_one_name(environ: dict[str, str], package: str) -> None:
    said = ran(environ, f"import musterpoint_smdistributed.{package}")
    assert said[-1].startswith(f"ImportError: import it as smdistributed.{package}")


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
