"""``muster check`` on this host alone: the table, JSON, the list, its codes; wrong options."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from musterpoint.cli.main import main
from musterpoint.tools.check import show
from musterpoint.tools.check.findings import CODES, finding
from musterpoint.tools.check.machine import System
from musterpoint.tools.check.steps import Checked

SMALL = finding("shm-small", "fail", "algo-2", "/dev/shm has 32 MiB", "1 GiB or more")
FINE = finding("looked-at", "ok", "algo-1", "all of it")
DIFFER = finding("versions-differ", "warn", "", "torch: 2.1 on algo-2, algo-3", "2.2, as on all others")


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of this machine don't count."""
    monkeypatch.setattr(System, "limit", lambda system, name: -1)


def run(words: list[str], environ: dict[str, str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["check", *words], environ)
    said = capfd.readouterr()
    return code, said.out, said.err


@pytest.mark.usefixtures("sound")
def test_this_host(environ: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(["--slots", "1"], environ, capfd)
    assert "looked-at" in out and re.search(r"\n1 host: .*1 ok\n$", out), (out, err)
    assert code in (0, 78)
    code, out, _ = run(["--slots", "1", "--json"], environ, capfd)
    document: dict[str, Any] = json.loads(out)
    assert set(document) == {"severity", "hosts", "findings"}
    assert all(
        set(each) == {"code", "severity", "host", "found", "expected", "advice"} for each in document["findings"]
    )
    assert (code == 78) == (document["severity"] == "fail")


@pytest.mark.usefixtures("sound")
def test_strictly_a_warning_fails(environ: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--slots", "60000", "--json"]  # more ranks than processors
    lenient, out, _ = run(words, environ, capfd)
    assert "cpus-few" in {each["code"] for each in json.loads(out)["findings"]}
    assert lenient == (78 if json.loads(out)["severity"] == "fail" else 0)
    assert run([*words, "--strict"], environ, capfd)[0] == 78


def test_every_finding_is_listed(environ: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["--list"], environ, capfd)
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == list(CODES)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--port", "70000"], "--port='70000': expected a port number"),
        (["--port", "x"], "--port='x': expected a port number"),
        (["train.py"], "unexpected argument 'train.py'"),
        (["--stric"], "unknown option --stric (did you mean --strict?)"),
        (["--rollcall-check", "sometimes"], "--rollcall-check='sometimes'"),
    ],
)
def test_a_wrong_option_is_one_sentence(
    words: list[str], expected: str, environ: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(words, environ, capfd)
    assert (code, out, len(err.splitlines())) == (64, "", 1) and expected in err


def test_the_plain_table() -> None:
    out = io.StringIO()
    show.show(Checked(("algo-1", "algo-2"), (SMALL, DIFFER, FINE)), out)
    assert out.getvalue() == (
        "      code             host    found\n"
        "fail  shm-small        algo-2  /dev/shm has 32 MiB; expected 1 GiB or more\n"
        "warn  versions-differ  all     torch: 2.1 on algo-2, algo-3; expected 2.2, as on all others\n"
        "ok    looked-at        algo-1  all of it\n"
        f"  shm-small on algo-2: {SMALL.advice}\n"
        f"  versions-differ: {DIFFER.advice}\n"
        "2 hosts: 1 fail, 1 warn, 1 ok\n"
    )


def test_the_table_of_a_terminal_has_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    show.show(Checked(("algo-1", "algo-2"), (SMALL, DIFFER, FINE)), out)
    for each in (SMALL, DIFFER, FINE):
        assert each.code in out.getvalue() and each.found in out.getvalue()
