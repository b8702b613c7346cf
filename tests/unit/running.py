"""Programs that tests run to their end."""

from __future__ import annotations

import subprocess
from typing import Any, Mapping, Sequence


def result_of(words: Sequence[Any], environ: Mapping[str, str], **more: Any) -> subprocess.CompletedProcess[str]:
    """How a program ended, be it well or not, and what it printed, as text."""
    return subprocess.run(words, env=environ, capture_output=True, text=True, timeout=500, check=False, **more)
