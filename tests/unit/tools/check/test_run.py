"""``muster check`` on this host, alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.core.runtime import Request
from musterpoint.tools.check import run
from musterpoint.tools.check.findings import finding


def test_no_finding_quotes_a_password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a variable, or of another host's, which is known by its shape alone."""
    quoted = "http_proxy is http://user:hunter2@proxy:3128, and postgres://me:correct-horse@db"
    monkeypatch.setattr(run, "host_findings", lambda facts: [finding("looked-at", "ok", "a", quoted, quoted)])
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SAGEMAKER_BASE_DIR": str(tmp_path)}
    (found,) = run.check_hosts(Request(environ, {}, "check")).findings
    assert found.found == "http_proxy is http://user:***@proxy:3128, and postgres://me:***@db" == found.expected
