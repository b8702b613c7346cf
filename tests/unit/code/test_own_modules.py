from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import musterpoint

pytestmark = pytest.mark.timeout(60)

SCRIPT = """
import shutil, sys
from musterpoint.code import own_modules, resolver
from musterpoint.programs.registry import module_text
own_modules.keep(), own_modules.keep()
shutil.rmtree(sys.argv[1])
import musterpoint.launch.script, musterpoint.diagnosis.reason
for name in ("musterpoint.code.installer_output", "musterpoint.programs.rank_stub"):
    assert "import" in module_text(name)
try:
    import musterpoint.nothing
except ModuleNotFoundError as error:
    print(sum(type(finder).__name__ == "OwnModules" for finder in sys.meta_path), error.name)
"""


def test_what_is_gone_from_the_disk_can_still_be_imported(tmp_path: Path) -> None:
    shutil.copytree(Path(musterpoint.__file__).parent, tmp_path / "musterpoint")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path / "musterpoint"], env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "1 musterpoint.nothing\n"), done.stderr
