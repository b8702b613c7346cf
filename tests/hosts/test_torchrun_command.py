"""``muster torchrun`` beside the real torchrun: the same flags, the same values, and hosts that only know each other's
number and the leader's address.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Iterator
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from musterpoint.cli.torchrun_flags import FLAGS, Flag, read_command_line

from .conftest import eventually
from .network import WITH_NAME, Network, Process, usable

pytestmark = [pytest.mark.torch]

VALUES = {
    "max_restarts": "0",
    "node_rank": "1",
    "master_port": "29501",
    "monitor_interval": "0.5",
    "shutdown_timeout": "7",
    "start_method": "fork",
    "numa_binding": "node",
}


def real_parser(environ: dict[str, str]) -> Any:
    from torch.distributed import launch

    taken: list[Any] = []

    def parse_args(parser: Any, _args: Any) -> None:
        taken.append(parser)

    with mock.patch.dict(os.environ, environ), mock.patch("argparse.ArgumentParser.parse_args", parse_args):
        launch.parse_args([])
    return taken[0]


def test_every_flag_of_the_real_parser_is_in_the_table_and_no_other() -> None:
    from torch.distributed.argparse_util import check_env, env

    real = {}
    for action in real_parser({})._actions:
        if action.option_strings and action.dest != "help":
            variable = isinstance(action, (env, check_env))
            real[action.dest] = (frozenset(action.option_strings), action.nargs != 0, variable)
    ours = {flag.dest: (frozenset(flag.spellings), bool(flag.metavar), flag.variable) for flag in FLAGS}
    assert ours == real


def words_of(flag: Flag, spelling: int, joined: bool, text: str) -> list[str]:
    name = flag.spellings[spelling % len(flag.spellings)]
    if not flag.metavar:
        return [name]
    return [f"{name}={text}"] if joined and name.startswith("--") else [name, text]


TEXTS = st.sampled_from(["1", "abc", "a=b,c=d"])
GIVEN = st.lists(st.tuples(st.sampled_from(FLAGS), st.integers(0, 2), st.booleans(), TEXTS), max_size=6)


REST = st.lists(st.sampled_from(["--nnodes", "9", "-m", "x", "--role=a"]), max_size=4)
"""Without ``--``: whether argparse takes the first one out depends on Python's version; here none is."""


@given(flags=GIVEN, variables=GIVEN, rest=REST)
@hypothesis_settings(max_examples=30, deadline=None)
def test_the_real_parser_reads_the_same(
    flags: list[tuple[Flag, int, bool, str]], variables: list[tuple[Flag, int, bool, str]], rest: list[str]
) -> None:
    words = [
        word
        for flag, spelling, joined, text in flags
        for word in words_of(flag, spelling, joined, VALUES.get(flag.dest, text))
    ]
    words += ["train.py", *rest]
    environ = {
        f"PET_{flag.dest.upper()}": VALUES.get(flag.dest, text) if flag.metavar else str(int(joined))
        for flag, _, joined, text in variables
    }
    parser = real_parser(environ)
    real = vars(parser.parse_args(words))
    default = {action.dest: action.default for action in real_parser({})._actions}
    ours = read_command_line(words, environ, {})
    assert (ours.program, list(ours.arguments)) == (real.pop("training_script"), real.pop("training_script_args"))
    read_here = {dest: said.text for dest, said in ours.said.items()}
    for dest, value in real.items():
        text = ",".join(value) if isinstance(value, list) else str(int(value) if isinstance(value, bool) else value)
        if dest in read_here:
            assert type(value)(read_here[dest]) == value if isinstance(value, (int, float)) else read_here[dest] == text
        else:
            assert value == default[dest], dest


def needs_network(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.netns(pytest.mark.skipif(not usable(), reason="can't make network namespaces here")(test))


TRAIN = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "MASTER_ADDR", "SM_HOSTS", "SM_CURRENT_HOST")
facts = {"what": "rank", "arguments": sys.argv[1:], **{name: os.environ[name] for name in names}}
if "torch" in sys.argv:
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(total)
    facts["total"] = total.item()
    dist.destroy_process_group()
print(json.dumps(facts), flush=True)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """``start(number, *words)`` runs ``muster torchrun`` on that host of three, which has a name of its own."""
    net = Network(3)
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    kept = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH")
    environ = {name: value for name, value in os.environ.items() if name in kept}

    def begin(number: int, *words: str, **variables: str) -> Process:
        name = f"node-{'abc'[number - 1]}"
        net.know_itself(f"algo-{number}", name)
        said = [str(script) if word == "train.py" else word for word in words]
        with mock.patch.dict(os.environ, {**environ, "OMP_NUM_THREADS": "1", **variables}, clear=True):
            return net.run(f"algo-{number}", "-c", WITH_NAME, name, "torchrun", *said)

    yield begin
    net.close()


def said(process: Process, text: str) -> bool:
    return any(text in str(line["what"]) for line in process.lines)


def ranks(process: Process, count: int) -> list[dict[str, Any]]:
    eventually(lambda: len(process.heard("rank")) == count)
    return process.heard("rank")


@needs_network
def test_the_command_line_of_a_cluster_that_starts_one_agent_per_host(start: Callable[..., Process]) -> None:
    words = ("--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint")
    words += ("10.78.0.1:29400", "train.py", "torch", "--nnodes", "7")
    worker, leader = start(2, *words), start(1, *words)
    found = [*ranks(leader, 2), *ranks(worker, 2)]
    assert sorted(int(rank["RANK"]) for rank in found) == [0, 1, 2, 3]
    assert {rank["total"] for rank in found} == {6.0}
    assert {rank["MASTER_ADDR"] for rank in found} == {"10.78.0.1"}
    assert {rank["SM_HOSTS"] for rank in found} == {'["node-a","node-b"]'}
    assert [rank["SM_CURRENT_HOST"] for rank in found] == ["node-a"] * 2 + ["node-b"] * 2
    assert found[0]["arguments"] == ["torch", "--nnodes", "7"]
    assert (leader.code(), worker.code()) == (0, 0)
    assert said(leader, "set MUSTER_SECRET") and not said(worker, "set MUSTER_SECRET")


@needs_network
def test_places_by_node_rank_from_flags_and_variables(start: Callable[..., Process]) -> None:
    secret = {"MUSTER_SECRET": "an example of a secret"}
    flags = ("--nnodes=3", "--master_addr=10.78.0.1", "--muster-launcher", "ranks", "train.py")
    early = start(3, "--node-rank", "1", *flags, **secret)
    eventually(lambda: said(early, "waiting for 10.78.0.1: 10.78.0.1 port 7776: connection refused"))
    hosts = [
        early,
        start(1, "--node-rank", "0", *flags, **secret),
        start(2, *flags[2:], **secret, PET_NNODES="3", PET_NODE_RANK="2", PET_MASTER_ADDR="10.78.0.1"),
    ]
    found = [ranks(host, 1)[0] for host in hosts]
    assert [rank["RANK"] for rank in found] == ["1", "0", "2"]
    assert {rank["SM_HOSTS"] for rank in found} == {'["node-a","node-c","node-b"]'}
    assert [host.code() for host in hosts] == [0, 0, 0]
    assert not any(said(host, "set MUSTER_SECRET") for host in hosts)
