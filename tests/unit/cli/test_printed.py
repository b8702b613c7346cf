"""What others made is never printed raw: no escape sequence and no forged line, whatever field of a job it is in."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from musterpoint.cli.main import main
from musterpoint.tools.check.findings import Finding
from musterpoint.tools.check.show import show
from musterpoint.tools.check.steps import Checked

from ...examples import examples

FORGED = "musterpoint: forged"
EVIL = (
    "\x1b[2J", "\x1b]0;title\x07", f"a\n{FORGED}", f"a\r\n{FORGED}", f"a\u2028{FORGED}", "\x9b31m", "\u202eabc",
    "\x08\x08", "\0", "\x7f", "\ud800", "\udcff", f"\x0b{FORGED}", "it's\x1b", "plain",
)  # fmt: skip
texts = st.sampled_from(EVIL) | st.builds("{}{}".format, st.sampled_from(EVIL), st.sampled_from(EVIL))
SLOW = settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))


def run(words: list[str], environ: Mapping[str, str]) -> str:
    """What a command prints, on both streams; it ends with an error of one sentence, or well."""
    out, kept = io.StringIO(), os.dup(2)
    with contextlib.redirect_stdout(out), tempfile.TemporaryFile() as err:
        os.dup2(err.fileno(), 2)  # which Console writes to
        try:
            code = main(words, {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", **environ})
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        err.seek(0)
        said = out.getvalue() + err.read().decode("utf-8", "surrogateescape")
    assert code != 70, said
    return said


def check(said: str) -> None:
    for line in said.split("\n"):
        assert line.isprintable(), line
        assert not line.startswith(FORGED), said


def tree(base: Path, fields: Mapping[str, str]) -> None:
    config = base / "input" / "config"
    config.mkdir(parents=True, exist_ok=True)
    (base / "code").mkdir(exist_ok=True)
    (base / "code" / "train.py").write_text("")
    value = fields.get
    hyperparameters = {
        "epochs": value("value", "3"), value("name", "lr"): "0.1", "sagemaker_program": '"train.py"',
        "sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": json.dumps(value("options", "")),
        "sagemaker_job_name": json.dumps(value("job", "job")), "nested": json.dumps({"a": [value("nested", "b")]}),
        "sagemaker_submit_directory": value("submitted", ""),
    }  # fmt: skip
    hosts = ["algo-1", value("host", "algo-2")]
    resources = {
        "current_host": "algo-1", "hosts": hosts, "network_interface_name": value("interface", "eth0"),
        "current_instance_type": value("type", "local"), "current_group_name": value("group", ""),
    }  # fmt: skip
    for name, content in (
        ("hyperparameters", hyperparameters),
        ("resourceconfig", resources),
        ("inputdataconfig", {value("channel", "train"): {"TrainingInputMode": value("mode", "File")}}),
    ):
        (config / f"{name}.json").write_text(json.dumps(content))


FIELDS = (
    "value", "name", "options", "job", "nested", "submitted", "host", "interface", "type", "group", "channel", "mode",
)  # fmt: skip


@pytest.mark.parametrize("command", [["plan"], ["plan", "--all"], ["env"]])
@SLOW
@given(st.sampled_from(FIELDS), texts)
def test_every_field_of_a_job(command: list[str], field: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "ml"
        tree(base, {field: text})
        check(run(command, {"SAGEMAKER_BASE_DIR": str(base)}))


VARIABLES = (
    "MUSTER_SLOTS", "MUSTER_LAUNCHER", "MUSTER_PLATFORM", "MUSTER_LOG_RANKS", "MUSTER_HOSTS_FILE", "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST", "MASTER_ADDR", "PET_NNODES", "MUSTER_JOB_NAME", "TF_CONFIG", "AZUREML_RUN_ID",
    "SM_HOSTS", "SM_HPS", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS",
)  # fmt: skip


@SLOW
@given(st.sampled_from(VARIABLES), texts.filter(lambda text: "\0" not in text and "\ud800" not in text), texts)
def test_every_variable_and_argument(name: str, text: str, argument: str) -> None:
    environ = {"SM_CURRENT_HOST": "algo-1", "SM_HOSTS": '["algo-1"]', name: text}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "train.py")
        program.write_text("")
        argument = argument.replace("\0", "").replace("\ud800", "")
        check(run(["plan", "--launcher", "ranks", "--slots", "2", str(program), argument], environ))


@SLOW
@given(
    st.sampled_from(["host", "event", "of", "reason", "why", "key", "name", "outcome", "job", "launcher"]), texts,
    st.sampled_from(["host-here", "rollcall-failed", "hello-refused", "job-failed", "rank-ended", "failure-seen"]),
)  # fmt: skip
def test_what_a_job_left(field: str, text: str, event: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows: list[dict[str, Any]] = [
            {"host": "algo-1", "at": float(at), "event": name, "of": "algo-2", "reason": "r", "rank": 0}
            for at, name in enumerate(("entry-point-started", "host-here", event, "job-ended"))
        ]
        if field not in ("key", "name", "outcome", "job"):
            rows[2][field] = text
        elif field == "key":
            rows[2][text] = text
        outcome = {"code": 1, "reason": text if field == "outcome" else "r", "host": text if field == "name" else "h"}
        Path(folder, "timeline.json").write_text(json.dumps(rows))
        Path(folder, "outcome.json").write_text(json.dumps(outcome))
        Path(folder, "job.json").write_text(json.dumps({"TrainingJobName": text if field == "job" else "j"}))
        check(run(["report", folder], {}))
        check(run(["report", "--all", folder], {}))


@SLOW
@given(texts.filter(lambda text: "\n" not in text), st.sampled_from(["found", "expected", "host", "advice"]))
def test_what_a_check_found(text: str, field: str) -> None:
    words = {"host": "algo-1", "found": "f", "expected": "e", "advice": "a", field: text}
    out = io.StringIO()
    show(Checked(("algo-1",), (Finding("disk", "warn", **words),)), out)
    check(out.getvalue())


NASTY_NUMBERS = ("9" * 400, "-" + "9" * 400, "1e999", "NaN", "-Infinity", "1e300", "9" * 5000)


@pytest.mark.parametrize("number", NASTY_NUMBERS)
def test_times_that_are_none(tmp_path: Path, number: str) -> None:
    (tmp_path / "timeline.json").write_text(f'[{{"host": "a", "at": {number}, "event": "x"}}]')
    assert "musterpoint: " in run(["report", str(tmp_path)], {})


@pytest.mark.parametrize("name", ["timeline.json", "outcome.json", "job.json"])
def test_no_reader_waits_at_a_pipe(tmp_path: Path, name: str) -> None:
    (tmp_path / "timeline.json").write_text('[{"host": "a", "at": 1, "event": "x"}]')
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    run(["report", str(tmp_path)], {})
    run(["plan", "-f", str(tmp_path / name)], {})


@pytest.mark.parametrize("name", ["job.toml", "job.json"])
@pytest.mark.parametrize("opened", ["[", '{"a":', "{a=", "x=" + "["])
def test_deep_nesting(tmp_path: Path, name: str, opened: str) -> None:
    path = tmp_path / name
    path.write_text(opened * 100_000)
    check(run(["plan", "-f", str(path)], {}))
    assert len(run(["local", "-f", str(path)], {})) < 5000


HUGE = ("18446744073709551616", "9" * 400, "131073")


@pytest.mark.parametrize("count", HUGE)
@pytest.mark.parametrize("option", ["--hosts", "--slots", "--nnodes", "--group-size", "--spares"])
def test_every_count_has_an_upper_bound(tmp_path: Path, option: str, count: str) -> None:
    """Refused in a moment, before anything is made of that size."""
    (tmp_path / "train.py").write_text("")
    said = run(["plan", option, count, str(tmp_path / "train.py")], {})
    assert "expected" in said or "not a" in said or "unknown" in said or "no option" in said, said
    assert len(said) < 4000


@pytest.mark.parametrize("count", HUGE)
def test_counts_of_variables_and_files(tmp_path: Path, count: str) -> None:
    (tmp_path / "job.toml").write_text(f'program = "train.py"\nhosts = {count}\n')
    (tmp_path / "train.py").write_text("")
    said = run(["plan", "-f", str(tmp_path / "job.toml")], {})
    assert f"-f {tmp_path / 'job.toml'}: " in said
    for name in ("MUSTER_SLOTS", "PET_NPROC_PER_NODE"):
        assert len(run(["plan", "--launcher", "ranks", str(tmp_path / "train.py")], {name: count})) < 20_000
