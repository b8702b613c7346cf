"""What each rank of a test with ``@pytest.mark.muster`` runs: pytest, on that test alone.

The test's error is told once more at the end, as Python tells of one: so it is the reason with which the job ends.
"""

import os
import sys
import traceback
from typing import Any

import pytest

_OF_PYTEST = tuple(os.path.dirname(sys.modules[name].__file__ or name) + os.sep for name in ("_pytest", "pluggy"))


class Told:
    """Keeps the last error, as the lines that tell of it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def pytest_exception_interact(self, call: pytest.CallInfo[Any], report: pytest.TestReport) -> None:
        assert call.excinfo is not None
        error, frames = call.excinfo.value, call.excinfo.tb
        words = [line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith("E ")]
        if type(error).__module__.startswith("_pytest.fixtures"):
            # it has no frames of the test, and no text of its own
            self.lines = [f"{type(error).__name__}: {words[0] if words else error}\n"]
            return
        inner: Any = frames
        while inner is not None and inner.tb_frame.f_code.co_filename.startswith(_OF_PYTEST):
            inner = inner.tb_next
        self.lines = traceback.format_exception(type(error), error, inner or frames)


if __name__ == "__main__":
    told = Told()
    code = pytest.main(sys.argv[1:], [told])
    sys.stdout.flush()
    sys.stderr.write("".join(told.lines))
    sys.exit(code)
