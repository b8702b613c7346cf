"""What has no effect is named: variables that nobody reads, and options that the launcher doesn't read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from musterpoint.unheeded import INTERNAL, unknown_variables, without_effect

STRANGE = [
    ({"MUSTER_LAUNCER": "ranks"}, "did you mean MUSTER_LAUNCHER?"),
    ({"MUSTER_ROLL_CALL_TIMEOUT": "9"}, "did you mean MUSTER_ROLLCALL_TIMEOUT?"),
    ({"MUSTER_XYZZY": "1"}, "docs/options.md"),
    ({"MUSTER_XYZZY_SERVICE_HOST_NAME": "1"}, "docs/options.md"),  # no Service: Kubernetes would give its host, too
]


@pytest.mark.parametrize(("environ", "hint"), STRANGE)
def test_an_unknown_variable_is_named_with_the_nearest_one(environ: dict[str, str], hint: str) -> None:
    (text,) = unknown_variables({**environ, "PATH": "/bin", "MUSTER_SLOTS": "2"})
    (name,) = environ
    assert text.startswith(f"warning: {name} is no variable of musterpoint")
    assert hint in text


def test_variables_that_kubernetes_makes_of_a_service_are_none_of_ours() -> None:
    """As the kubelet gives them for a Service ``muster-train`` with a named port."""
    service = {
        "MUSTER_TRAIN_SERVICE_HOST": "10.0.0.1", "MUSTER_TRAIN_SERVICE_PORT": "7776",
        "MUSTER_TRAIN_SERVICE_PORT_ROLLCALL": "7776", "MUSTER_TRAIN_PORT": "tcp://10.0.0.1:7776",
        "MUSTER_TRAIN_PORT_7776_TCP": "tcp://10.0.0.1:7776", "MUSTER_TRAIN_PORT_7776_TCP_PROTO": "tcp",
        "MUSTER_TRAIN_PORT_7776_TCP_PORT": "7776", "MUSTER_TRAIN_PORT_7776_TCP_ADDR": "10.0.0.1",
    }  # fmt: skip
    assert unknown_variables(service) == []


def test_no_variable_of_ours_is_strange(root: Path) -> None:
    """Every ``MUSTER_*`` name in the package and in what images set."""
    files = [path for folder in ("src", "examples") for path in (root / folder).rglob("*") if path.is_file()]
    texts = [path.read_text(errors="replace") for path in files if path.suffix != ".pyc"]
    names = {name for text in texts for name in re.findall(r"\bMUSTER_[A-Z0-9_]*[A-Z0-9]\b", text)}
    assert len(names) > 40
    assert unknown_variables(dict.fromkeys(names - {"MUSTER_USER"}, "x")) == []
    stale = INTERNAL - names
    assert not stale, "nothing reads them any more"


def test_an_option_that_the_launcher_does_not_read_is_named() -> None:
    given = {"slots": 2, "log_prefix": "rank"}
    environ = {"MUSTER_RAY_OPTIONS": "--verbose", "MUSTER_TF_PORT": "0"}
    said = list(without_effect(environ, given, "script", "--launcher script was given"))
    assert said == [
        "warning: --slots 2 (MUSTER_SLOTS) has no effect: launcher script (--launcher script was given) starts the "
        "program once per host; --launcher torchrun or --launcher ranks starts one rank per slot",
        "warning: --ray-options --verbose (MUSTER_RAY_OPTIONS) has no effect: launcher script (--launcher script was "
        "given) doesn't read it; launcher ray does",
    ]
    assert len(list(without_effect(environ, given, "ray", ""))) == 0
