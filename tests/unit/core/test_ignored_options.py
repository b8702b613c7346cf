"""What has no effect is named: variables that nobody reads, and options that the launcher doesn't read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.settings import LOCAL, Settings
from musterpoint.base.spellings import Typed
from musterpoint.core.ignored_options import INTERNAL, ignored_options, unknown_variables, without_effect
from musterpoint.core.job.model import Distribution, EntryPoint, Job, Paths
from musterpoint.core.launch.choose import Choice

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
    stale = INTERNAL - names - {"MUSTER_CACHE"}  # scripts/environments.py has it
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


JOB = Job("sagemaker", "j", ("algo-1", "algo-2"), "algo-1", ("algo-1", "algo-2"), EntryPoint("t.py"))
OTHER = JOB._replace(current_host="algo-2")
TORCHRUN = Choice("torchrun", 1, "2 hosts")
EXAMPLE = Path(__file__).parents[3] / "examples" / "smdistributed" / "model_parallel.py"
SAID: list[tuple[str, Job, Settings, dict[str, str], Choice, bool, str]] = [
    # what, the job, options, variables, the choice, whether a person typed the program, words that are said
    ("a local job without a distribution", JOB, Settings(), {LOCAL: "1"}, TORCHRUN, False,
     "launcher torchrun, since neither --launcher nor --distribution was given; SageMaker starts it only for a job "),
    ("with one", JOB._replace(distribution=Distribution("mpi")), Settings(), {LOCAL: "1"}, TORCHRUN, False, ""),
    ("with a launcher", JOB, Settings(launcher="torchrun"), {LOCAL: "1"}, TORCHRUN, False, ""),
    ("on the platform", JOB, Settings(), {}, Choice("script", 1, ""), False, ""),
    ("another host", OTHER, Settings(), {LOCAL: "1", "MUSTER_RAY_OPTIONS": "--x"}, TORCHRUN, False, ""),
    ("another host's own variable", OTHER, Settings(), {"MUSTER_XYZZY": "1"}, TORCHRUN, False, "MUSTER_XYZZY"),
    ("slots for a launcher of the user's", JOB._replace(arguments=("--train-script", "t.py")), Settings(slots=2),
     {"MUSTER_SLOTS": "2"}, Choice("script", 1, ""), False, ""),
    ("a library that the job doesn't ask for", JOB._replace(entry_point=EntryPoint(str(EXAMPLE))),
     Settings(), {}, Choice("script", 1, ""), False, "imports smdistributed.modelparallel, and the job names no"),
    ("options behind the program", JOB._replace(arguments=("--slots=2",), entry_point=EntryPoint("/bin/sh")),
     Settings(), {}, TORCHRUN, True, "--slots behind sh goes to the program"),
    ("far more ranks than processors", JOB, Settings(), {}, Choice("ranks", 100_000, ""), True,
     "warning: 100000 ranks share this host's "),
    ("in a local job, which says it itself", JOB._replace(arguments=("--slots=2",)), Settings(launcher="torchrun"),
     {LOCAL: "1"}, TORCHRUN, True, ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("job", "options", "environ", "choice", "typed", "words"), [row[1:] for row in SAID], ids=[row[0] for row in SAID]
)
def test_what_is_said(
    job: Job, options: Settings, environ: dict[str, str], choice: Choice, typed: bool, words: str
) -> None:
    line = Typed("muster launch", (), "t.py", {}) if typed else None
    said = ignored_options(job, options, environ, {}, choice, typed, line)
    assert len(said) == bool(words)
    assert words in "".join(said)


@pytest.mark.parametrize(
    ("platform", "options", "said"),
    [("plain", {}, 1), ("plain", {"installer": "none"}, 0), ("sagemaker", {}, 0), ("plain", {"requirements": "r"}, 0)],
)
def test_requirements_that_nobody_installs(platform: Any, options: dict[str, Any], said: int, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").touch()
    job = JOB._replace(platform=platform, paths=Paths(code=str(tmp_path)))
    assert len(ignored_options(job, Settings(**options), {}, {}, TORCHRUN, typed=True)) == said
