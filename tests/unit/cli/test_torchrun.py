"""What torchrun's flags and variables become; the real parser is compared in tests/hosts."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.cli.main import main
from musterpoint.cli.torchrun import translate
from musterpoint.cli.torchrun_flags import Said, ignored_line, read_command_line

OWN = {"--muster-stop-grace": True, "--muster-plan": False}


def options(*words: str, **environ: str) -> dict[str, Any]:
    return translate(read_command_line((*words, "train.py"), environ, OWN).said, environ, {}).given


TWO = ("--nnodes", "2")
COMMANDS = [
    ((), {"slots": 1}),
    (("--nproc-per-node", "4"), {"slots": 4}),
    (("--nproc_per_node=4",), {"slots": 4}),
    (("--nproc", "4"), {"slots": 4}),
    (("--standalone", "--nproc-per-node=4", "--rdzv-endpoint", "h:0"), {"slots": 4, "nnodes": 1, "master_port": 0}),
    (("--standalone", "--master-port", "29500"), {"slots": 1, "nnodes": 1, "master_port": 0}),
    (("--nnodes=1:1", "--node-rank=0"), {"nnodes": 1, "node_rank": 0}),
    ((*TWO, "--rdzv-backend", "c10d", "--rdzv-endpoint", "h:123"), {"nnodes": 2, "rollcall_leader": "h:123"}),
    ((*TWO, "--rdzv-backend=c10d", "--rdzv-endpoint=h"), {"nnodes": 2, "rollcall_leader": "h:29400"}),
    ((*TWO, "--rdzv-backend=c10d", "--rdzv-endpoint=[fd::1]:5"), {"nnodes": 2, "rollcall_leader": "[fd::1]:5"}),
    ((*TWO, "--rdzv-backend=c10d", "--node-rank=1", "--rdzv-endpoint=h:1"), {"nnodes": 2, "rollcall_leader": "h:1"}),
    ((*TWO, "--node-rank", "1", "--master-addr", "h", "--master-port", "29500"),
     {"nnodes": 2, "node_rank": 1, "rollcall_leader": "h", "master_port": 29500}),
    ((*TWO, "--node-rank", "0", "--rdzv-endpoint", "h:123"),
     {"nnodes": 2, "node_rank": 0, "rollcall_leader": "h", "master_port": 123}),
    (("--max-restarts=0", "--max_restarts", "3"), {"max_restarts": 3, "restart_on": "user"}),
    (("-t3", "--log_dir", "logs"), {"log_prefix": "rank", "log_dir": "logs"}),
    (("-r", "0:1,1:2", "--tee", "0"), {}),
    (("--local-ranks-filter", "0,1"), {"log_ranks": "local:0,1"}),
    (("--rdzv-conf", "join_timeout=77,read_timeout=60"), {"rollcall_timeout": 77.0}),
    (("--rdzv-id", "run 7"), {"job_name": "run 7"}),
    (("--shutdown-timeout", "90"), {"stop_grace": 90.0}),
    (("--numa-binding", "node"), {"numa_binding": "node"}),
    (("--use_env", "--run-path", "--no-python"), {}),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), COMMANDS)
def test_what_flags_become(words: tuple[str, ...], expected: dict[str, Any]) -> None:
    assert options(*words) == {"launcher": "torchrun", "slots": 1, **expected}


def test_a_variable_counts_where_its_flag_is_not_given() -> None:
    environ = {
        "PET_NNODES": "3", "PET_NPROC_PER_NODE": "8", "PET_NODE_RANK": "2", "PET_ROLE": "w", "PET_TEE": "",
        "PET_MASTER_ADDR": "tj-node-0-0.tj", "PET_MASTER_PORT": "29500", "PET_STANDALONE": "0",
    }  # fmt: skip
    assert options("--nproc-per-node", "2", **environ) == {
        "launcher": "torchrun", "slots": 2, "nnodes": 3, "node_rank": 2, "rollcall_leader": "tj-node-0-0.tj",
        "master_port": 29500,
    }  # fmt: skip


def test_what_the_agent_gets_and_what_it_does_not() -> None:
    kept = {"PET_ROLE": "w", "PET_NNODES": "1", "HOME": "/root"}
    environ = {**kept, "PET_TEE": "3", "PET_MAX_RESTARTS": "0"}
    line = read_command_line(["--monitor-interval", "0.5", "--virtual-local-rank", "x"], environ, OWN)
    given = translate(line.said, environ, {}).environ
    assert given == {**kept, "PET_MONITOR_INTERVAL": "0.5", "PET_VIRTUAL_LOCAL_RANK": "1"}


def test_what_a_muster_variable_says_is_not_replaced_by_a_default() -> None:
    assert "slots" not in options(MUSTER_SLOTS="4")
    assert "launcher" not in options(MUSTER_LAUNCHER="ranks")
    given = translate({}, {"PYTHON_EXEC": "/py"}, {"slots": 3}).given
    assert given == {"launcher": "torchrun", "slots": 3, "python": "/py"}


@pytest.mark.parametrize(
    ("words", "own", "program", "arguments"),
    [
        (["t.py", "--nnodes", "2", "--", "-m"], (), "t.py", ("--nnodes", "2", "--", "-m")),
        (["--", "t.py", "-h"], (), "t.py", ("-h",)),
        (["-m", "pkg.train", "-m"], (), "pkg.train", ("-m",)),
        (["--muster-stop-grace", "6", "--role=a", "--muster-plan", "t.py"],
         ("--muster-stop-grace", "6", "--muster-plan"), "t.py", ()),
        (["t.py", "--help"], (), "t.py", ("--help",)),
        (["--muster-stop-grace=6", "t.py"], ("--muster-stop-grace=6",), "t.py", ()),
        ([], (), "", ()),
    ],
)  # fmt: skip
def test_where_the_program_begins(
    words: list[str], own: tuple[str, ...], program: str, arguments: tuple[str, ...]
) -> None:
    line = read_command_line(words, {}, OWN)
    assert (line.own, line.program, line.arguments) == (own, program, arguments)


REFUSED = [
    (("--nnodes", "1:4"), "--nnodes='1:4': expected one number: hosts can't come and go while the job runs"),
    (("--nnodes=two",), "--nnodes='two': expected a whole number, 1 to 131072"),
    (("--nnodes", "9" * 5000), "expected a whole number, 1 to 131072"),
    (("--max-restarts", "9" * 5000), "expected a whole number, 0 (never) to 999999"),
    (("--nproc-per-node", "9" * 5000), "--nproc-per-node='999"),
    (("--max-restarts", "-1"), "--max-restarts='-1': expected a whole number, 0 (never)"),
    (("--rdzv-backend", "etcd"), "--rdzv-backend='etcd': expected static or c10d"),
    (("--logs-specs", "mine"), "--logs-specs is not followed: output doesn't go through torchrun: use --log-dir"),
    (("--duplicate-stdout-filters=x",), "--duplicate-stdout-filters is not followed"),
    (("--standalone", *TWO), "--standalone is for one host, and --nnodes says 2"),
    (("-m", "--no-python"), "--module and --no-python exclude each other"),
    (("--nproc-per-node", "xpu"), "--nproc-per-node='xpu': expected a number, 1 or more, or gpu, cpu or auto"),
    (("--nproc-per-node=0",), "--nproc-per-node='0': expected a whole number, 1 to 65536"),
    (("--start-method", "thread"), "--start-method='thread': expected spawn, fork or forkserver"),
    (("--numa-binding", "core"), "muster torchrun: --numa-binding='core': expected one of node, socket"),
    (("--tee", "4"), "--tee='4': expected 0 to 3, or local ranks with them"),
    (("--local-ranks-filter", "a"), "--local-ranks-filter='a': expected local ranks"),
    (("--rdzv-conf", "timeout"), "--rdzv-conf='timeout': expected KEY=VALUE,KEY=VALUE"),
    (("--master-port", "http"), "--master-port='http': expected a port number"),
    ((*TWO, "--rdzv-endpoint", "h:0"), "--rdzv-endpoint='h:0': expected HOST or HOST:PORT"),
    (("--nnode-rank", "2"), "unknown option --nnode-rank (did you mean --node-rank?)"),
    (("--slots", "2"), "unknown option --slots (it is --muster-slots here, before PROGRAM)"),
    (("--quiet-please",), "unknown option --quiet-please (musterpoint's own options are --muster-NAME here"),
    (("--rdzv", "2"), "--rdzv is ambiguous: it could be --rdzv-backend, --rdzv-endpoint, --rdzv-id, --rdzv-conf"),
    (("--role", "--tee"), "--role needs a value"),
    (("torchrun", "--nproc-per-node", "2"), "leave it out: muster torchrun --nproc-per-node 2 train.py"),
    (
        ("--nnodes", "1", "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        "PROGRAM is torch.distributed.run, which starts ranks itself: leave it out: muster torchrun --nnodes 1 --nproc",
    ),
    (("mpirun", "-np", "2"), "launch --launcher mpi SCRIPT` starts a script as mpirun would"),
    (("--standalone=1",), "--standalone takes no value, and '1' is given"),
]


VARIABLES = [
    ("PET_NNODES=2:3", "PET_NNODES='2:3': expected one number"),
    ("PET_STANDALONE=yes", "PET_STANDALONE='yes': expected 1 or 0"),
    ("PET_MAX_RESTARTS=1.5", "PET_MAX_RESTARTS='1.5': expected a whole number"),
]


@pytest.mark.parametrize(("words", "sentence"), [*REFUSED, *VARIABLES])
def test_what_is_refused_says_what_to_do(
    words: tuple[str, ...] | str, sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    environ = dict([words.split("=")]) if isinstance(words, str) else {}
    assert main(["torchrun", *(() if environ else words), "train.py"], environ) == 64
    text = capfd.readouterr().err
    assert sentence in text
    assert text.count("\n") == 1


def test_what_is_not_followed_is_said() -> None:
    said = read_command_line(
        ["--run-path", "--node-rank", "1", "--rdzv-backend", "c10d", "--rdzv-conf", "is_host=1", "-r", "3", "x"],
        {"PET_LOCAL_ADDR": "10.0.0.1"},
        OWN,
    ).said
    made = translate(said, {}, {})
    assert ignored_line(made.ignored) == (
        "warning: not followed here: --run-path (the script is started by Python, as without this flag); "
        "PET_LOCAL_ADDR (the roll call finds every host's address); "
        "--node-rank (with c10d places go by arrival, as in torchrun); "
        "is_host of --rdzv-conf (the roll call has its own options)",
    )
    assert ignored_line(()) == ()
    assert made.notes == (
        "--redirects: no file is written, since --log-dir names no directory",
        "--redirects: the output is shown all the same",
    )


def test_auto_counts_what_this_host_has() -> None:
    assert translate({"nproc_per_node": Said("cpu", "")}, {}, {}).given["slots"] >= 1
    assert translate({"nproc_per_node": Said("auto", "")}, {"CUDA_VISIBLE_DEVICES": ""}, {}).given["slots"] >= 1
