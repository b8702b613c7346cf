"""60 failures as users of other tools have reported them, each as a program of its own."""

from __future__ import annotations

from benchmarks.reported import endings, errors, shown, together
from benchmarks.reported.row import Reported

ROWS: tuple[Reported, ...] = (*errors.ROWS, *shown.ROWS, *endings.ROWS, *together.ROWS)
