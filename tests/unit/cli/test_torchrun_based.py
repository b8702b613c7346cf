"""Command lines of launchers made of torchrun's: each option is followed, ignored with a reason, or refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.cli import ft_launcher, hyperpodrun, torchrun, torchrun_based
from musterpoint.cli.main import main
from musterpoint.cli.torchrun_flags import BY_SPELLING

FT_FLAGS = """--nnodes --nproc-per-node --nproc_per_node --rdzv-backend --rdzv_backend --rdzv-endpoint --rdzv-id
--rdzv-conf --standalone --max-restarts --max_restarts --term-timeout --term_timeout --workers-stop-timeout
--workers_stop_timeout --monitor-interval --start-method --role --module --no-python --run-path --log-dir --redirects
--tee --local-ranks-filter --node-rank --master-addr --master-port --local-addr --logs-specs --ft-cfg-path --ft-cfg_path
--fault-tol-cfg-path --ft-workload-check-interval --ft-param-workload_check_interval
--ft-initial-rank-heartbeat-timeout --ft-initial_rank_heartbeat_timeout --ft-param-initial_rank_heartbeat_timeout
--ft-rank-heartbeat-timeout --ft-param-rank_heartbeat_timeout --ft-node-health-check-interval
--ft-param-node_health_check_interval --ft-safety-factor --ft-param-safety_factor --ft-rank-termination-signal
--ft-param-rank_termination_signal --ft-log-level --ft-param-log_level --ft-rank-out-of-section-timeout
--ft-param-rank_out_of_section_timeout --ft-rank-section-timeouts --ft-param-rank_section_timeouts
--ft-restart-check-interval --ft-param-restart_check_interval --ft-restart-policy --restart-policy --restart_policy
--ft-enable-nic-monitor --ft-param-enable-nic-monitor --ft_param_enable_nic_monitor --ft-pci-topo-file
--ft_param_pci_topo_file --ft-link-down-path-template --ft_param_link_down_path_template
--ignore-missing-fault-tol-cfg"""
"""Of the parser of nvidia-resiliency-ext 0.4.1."""
NEWER_FT_FLAGS = """--ft-enable-dist-storage-healthcheck --ft-storage-healthcheck-path --ft-skip-section-response
--ft-numa-bind-strict --ft-gpu-memory-reclaim-timeout --ft-gpu-memory-tolerance-mb --ft-gpu-memory-poll-interval
--ft-check-remaining-processes --ft-max-no-progress-restarts --ft-min-progress-iterations --ft-progress-update-interval
--ft-install-exception-hook --ft-num-warmup-iterations --ft-attrsvc-host --ft-attrsvc-port
--ft-log-leaf-max-queue-chunks --ft_log_server_graceful_shutdown_timeout --ft-attribution-endpoint
--ft-attribution-startup-timeout --ft-attribution-llm-api-key-file --ft-attribution-llm-base-url
--ft-attribution-llm-model --ft-attribution-analysis-backend --ft-attribution-compute-timeout
--ft-attribution-log-level --ft-attribution-export-url --ft-cycle-info-dir --ft-cycle-info-job-id --ft-segment"""
"""Of its cli_args.py and its documented FaultToleranceConfig, as of November 2026."""
HYPERPOD_FLAGS = """--shutdown-signal --shutdown-timeout --server-host --server-port --server-log-level
--server-shutdown-timeout --pre-train-script --pre-train-args --post-train-script --post-train-args
--inprocess-restart --inprocess-timeout"""
"""Of the public page of hyperpod-elastic-agent 1.1.3, beside torchrun's."""


def known(command: torchrun_based.Command) -> set[str]:
    return {f"--{name}" for added in command.added for name in (added.name, *added.others)} | {*BY_SPELLING}


@pytest.mark.parametrize(
    ("command", "flags"),
    [(ft_launcher.COMMAND, FT_FLAGS + " " + NEWER_FT_FLAGS), (hyperpodrun.COMMAND, HYPERPOD_FLAGS)],
)
def test_every_flag_is_known(command: torchrun_based.Command, flags: str) -> None:
    assert {flag for flag in flags.split() if flag.replace("_", "-") not in known(command)} == set()


def ft(*words: str) -> tuple[list[str], list[str]]:
    found = ft_launcher.translate(torchrun_based.split(ft_launcher.COMMAND, [*words, "train.py", "--ft-x", "1"]))
    return found.words, [option for option, _reason in found.ignored]


def pod(*words: str) -> tuple[list[str], list[str]]:
    found = hyperpodrun.translate(torchrun_based.split(hyperpodrun.COMMAND, [*words, "train.py", "--lr", "1"]))
    return found.words, found.notes


@pytest.mark.parametrize(
    ("words", "becomes"),
    [
        ((), []),
        (("--nproc-per-node", "8", "--max-restarts=5"), ["--nproc-per-node", "8", "--max-restarts=5"]),
        (("--ft-rank-heartbeat-timeout", "450"), ["--muster-stall-timeout", "450"]),
        (
            ("--ft-param-rank_heartbeat_timeout=450", "--ft-initial-rank_heartbeat_timeout", "1200"),
            ["--muster-stall-timeout", "1200"],
        ),
        (("--ft-rank-heartbeat-timeout", "null"), []),
        (("--term-timeout", "60"), ["--muster-stop-grace", "60"]),
        (("--restart-policy", "any-failed", "--ft-safety-factor", "4"), []),
        (("--rdzv-endpoint", "a:1"), ["--rdzv-backend", "c10d", "--rdzv-endpoint", "a:1"]),
        (("--rdzv_backend=static", "--rdzv-endpoint=a"), ["--rdzv_backend=static", "--rdzv-endpoint=a"]),
        (("--muster-plan", "-m"), ["--muster-plan", "-m"]),
    ],
)
def test_what_ft_launchers_options_become(words: tuple[str, ...], becomes: list[str]) -> None:
    assert ft(*words)[0] == [*becomes, "train.py", "--ft-x", "1"]


def test_ft_launchers_file_is_read_and_options_go_before(tmp_path: Path) -> None:
    path = tmp_path / "ft.yaml"
    path.write_text(
        "other: 1\nfault_tolerance:  # as documented\n  initial_rank_heartbeat_timeout: 360\n"
        "  rank_heartbeat_timeout: null\n  restart_policy: any-failed\n  safety_factor: 4\n  rank_section_timeouts:\n"
        "    step: 10\nmodel:\n  rank_heartbeat_timeout: 9\n"
    )
    words, notes = ft("--ft-cfg-path", str(path))
    assert words[:2] == ["--muster-stall-timeout", "360"]
    assert [note.partition(" of ")[0] for note in notes] == ["safety_factor", "step"]
    assert ft("--ft-cfg-path", str(path), "--ft-initial-rank-heartbeat-timeout", "5")[0][1] == "5"
    path.write_text("a: 1\n")
    with pytest.raises(UsageError, match="expected a YAML file with a section fault_tolerance"):
        ft("--fault-tol-cfg-path", str(path))


@pytest.mark.parametrize(
    ("words", "becomes"),
    [
        (("--rdzv-backend", "hyperpod", "--nnodes=2"), ["--nnodes=2"]),
        (("--rdzv_backend=hyperpod",), []),
        (("--rdzv-backend", "c10d"), ["--rdzv-backend", "c10d"]),
        (("--shutdown-signal", "SIGKILL"), ["--muster-stop-grace", "0"]),
        (("--shutdown-timeout", "15", "--server-port", "8080"), ["--shutdown-timeout", "15"]),
        (("--pre-train-script", "pre.sh", "--pre-train-args", "1 2", "--tee", "3"), ["--tee", "3"]),
    ],
)
def test_what_hyperpodruns_options_become(words: tuple[str, ...], becomes: list[str]) -> None:
    assert pod(*words)[0] == [*becomes, "train.py", "--lr", "1"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("ft_launcher", "--ft-restart-policy", "min-healthy"),
            "muster ft_launcher: --ft-restart-policy='min-healthy'",
        ),
        (("ft_launcher", "--ft-segment", "4"), "muster ft_launcher: --ft-segment is not followed"),
        (("ft_launcher", "--term-timeout", "x"), "--term-timeout='x': expected a number of seconds"),
        (("ft_launcher", "--nnodes", "2:4"), "muster ft_launcher: --nnodes='2:4': expected one number"),
        (("ft_launcher", "--ft-unheard-of", "4"), "muster ft_launcher: unknown option --ft-unheard-of"),
        (("hyperpodrun", "--inprocess-restart"), "muster hyperpodrun: --inprocess-restart is not followed"),
        (("hyperpodrun", "--inprocess-restart=1"), "--inprocess-restart takes no value"),
        (("hyperpodrun", "--shutdown-signal", "INT"), "expected SIGTERM or SIGKILL"),
    ],
)
def test_what_is_refused_names_command_and_option(
    words: tuple[str, ...], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "train.py"], {}) == 64
    assert sentence in capfd.readouterr().err


@pytest.mark.torch
def test_an_absent_script_is_refused_when_the_job_has_been_planned(
    tmp_path: Path, python: str, environ: dict[str, str]
) -> None:
    (tmp_path / "train.py").touch()
    words = [python, "-m", "musterpoint", "hyperpodrun", "--pre-train-script", "absent", "train.py"]
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, "absent is no file" in done.stderr) == (64, True), done.stderr


def test_one_warning_names_all_that_is_ignored(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both tables: those of one reason together, and before the job as well as in its plan."""
    monkeypatch.setattr(torchrun.job, "run", lambda _request: 0)
    (tmp_path / "train.py").touch()
    words = ["--server-host", "::", "--server-port=8080", "--run-path", "--muster-launcher", "script"]
    environ = {"PATH": "/usr/bin:/bin", "SAGEMAKER_BASE_DIR": str(tmp_path)}
    for more in (["--muster-plan"], []):
        assert main(["hyperpodrun", *words, *more, str(tmp_path / "train.py")], environ) == 0
        said = capfd.readouterr()
        (line,) = (line for line in (said.out + said.err).splitlines() if "not followed" in line)
        assert line.partition("warning: ")[2] == (
            "not followed here: --server-host, --server-port (no operator is spoken to here, so no server is started); "
            "--run-path (the script is started by Python, as without this flag)"
        )


@pytest.mark.parametrize("name", ["ft_launcher", "hyperpodrun"])
def test_the_help_tells_of_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"], {})
    text = capsys.readouterr().out
    command = {"ft_launcher": ft_launcher, "hyperpodrun": hyperpodrun}[name].COMMAND
    assert [added.name for added in command.added if f"--{added.name}" not in text] == []


def test_a_script_beside_training_has_its_words_and_its_code(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    environ: dict[str, Any] = {"PATH": "/usr/bin:/bin", "X": "y"}
    (tmp_path / "pre.sh").write_text('echo "$#" "$2" "$X"; exit 3\n')
    assert hyperpodrun.run_script(str(tmp_path / "pre.sh"), "a 'b c'", environ) == 3
    (tmp_path / "post.py").write_text("import sys\nsys.exit(7)\n")
    assert hyperpodrun.run_script(str(tmp_path / "post.py"), "", environ) == 7
    assert capfd.readouterr().out == "2 b c y\n"
