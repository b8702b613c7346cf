"""``muster launch`` on several hosts that something else started: the job is known from SM_* variables alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Mapping

import pytest

from .by_hand import Processes, leaving_none, meeting
from .conftest import together

HOSTS = ("algo-1", "algo-2")
FOUR = {"algo-1": "127.0.0.21", "algo-2": "127.0.0.22"}
SIX = dict.fromkeys(HOSTS, "::1")
NOTHING: dict[str, dict[str, str]] = {}
NAMES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES", "NPROC_PER_NODE",
    "SM_HOSTS", "MUSTER_SECRET",
)  # fmt: skip
SHOW = f"""
import json, os, sys
facts = {{name: os.environ[name] for name in {NAMES!r} if name in os.environ}}
os.write(1, b"SHOW" + json.dumps({{"arguments": sys.argv[1:], **facts}}).encode() + b"\\n")
"""
MEET = (
    SHOW
    + """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
os.write(1, b"MET %d\\n" % int(total.item()))
dist.destroy_process_group()
"""
)


class Hosts(Processes):
    """Two processes that take themselves for two containers; :attr:`codes` and :attr:`logs` by host after a run."""

    def __init__(self, python: str, environ: dict[str, str], folder: Path) -> None:
        super().__init__(python, {**environ, "SM_HOSTS": json.dumps(HOSTS)}, folder)
        self.places = dict.fromkeys(HOSTS, folder)
        self.codes: dict[str, int] = {}
        self.logs: dict[str, str] = {}

    def program(self, text: str) -> None:
        (self.folder / "train.py").write_text(text)

    def run(
        self,
        *words: str,
        addresses: dict[str, str] = FOUR,
        only: Mapping[str, dict[str, str]] = NOTHING,
        **environ: str,
    ) -> None:  # fmt: skip
        """``only`` are variables of one host alone, ``environ`` those of both."""
        told = {**meeting(self.folder / "names", addresses), **environ}
        codes, logs = together([
            self.popen(
                self.python, "-m", "musterpoint", "launch", *words, cwd=self.places[host],
                environ={**told, "SM_CURRENT_HOST": host, "SAGEMAKER_BASE_DIR": str(self.folder / host),
                         **only.get(host, {})},
            )
            for host in HOSTS
        ])  # fmt: skip
        self.codes, self.logs = dict(zip(HOSTS, codes)), dict(zip(HOSTS, logs))

    def shown(self, host: str) -> list[dict[str, Any]]:
        """What the program's ranks on ``host`` showed, in order."""
        lines = [line.partition("SHOW") for line in self.logs[host].splitlines()]
        found: list[dict[str, Any]] = [json.loads(text) for _, mark, text in lines if mark]
        return sorted(found, key=lambda facts: int(facts.get("RANK", 0)))

    def left(self, host: str, name: str) -> str:
        return (self.folder / host / "output" / name).read_text()


hosts = leaving_none(Hosts)


@pytest.mark.lane("suite")
def test_script_gives_a_program_what_it_needs_to_start_its_own_ranks(hosts: Hosts) -> None:
    hosts.program(SHOW)
    hosts.run("--launcher", "script", "--slots", "3", "train.py", "--lr", "0.1")
    assert hosts.codes == dict.fromkeys(HOSTS, 0), hosts.logs
    (first,), (second,) = hosts.shown("algo-1"), hosts.shown("algo-2")
    assert [facts["NODE_RANK"] for facts in (first, second)] == ["0", "1"]
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    for facts in (first, second):
        assert facts["arguments"] == ["--lr", "0.1"]
        assert (facts["MASTER_ADDR"], facts["NNODES"], facts["NPROC_PER_NODE"]) == ("127.0.0.21", "2", "3")
        # Lightning takes any of these as a sign that somebody else started the ranks
        assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MUSTER_SECRET"} & set(facts)


@pytest.mark.lane("suite")
def test_every_rank_is_started_with_its_place(hosts: Hosts) -> None:
    hosts.program(SHOW)
    hosts.run(
        "--launcher", "ranks", "train.py", only={"algo-1": {"MUSTER_SLOTS": "1"}, "algo-2": {"MUSTER_SLOTS": "2"}}
    )
    assert hosts.codes == dict.fromkeys(HOSTS, 0), hosts.logs
    seen = [
        (facts["RANK"], facts["LOCAL_RANK"], facts["WORLD_SIZE"], facts["NODE_RANK"])
        for host in HOSTS
        for facts in hosts.shown(host)
    ]
    assert seen == [("0", "0", "3", "0"), ("1", "0", "3", "1"), ("2", "1", "3", "1")]


@pytest.mark.lane("suite")
@pytest.mark.torch
@pytest.mark.parametrize(
    ("launcher", "addresses"),
    [("auto", FOUR), pytest.param("auto", SIX, marks=pytest.mark.lane("hosts")), ("ranks", SIX)],
    ids=["IPv4", "IPv6", "ranks over IPv6"],
)
def test_ranks_meet(hosts: Hosts, launcher: str, addresses: dict[str, str]) -> None:
    if addresses is SIX and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    hosts.program(MEET)
    # torchrun's own variable, which would otherwise win over a flag that isn't given
    hosts.run("--launcher", launcher, "train.py", addresses=addresses, PET_NPROC_PER_NODE="5")
    assert hosts.codes == dict.fromkeys(HOSTS, 0), hosts.logs
    assert all("MET 2" in log for log in hosts.logs.values()), hosts.logs
    for index, host in enumerate(HOSTS):
        (facts,) = hosts.shown(host)
        assert (facts["NODE_RANK"], facts["WORLD_SIZE"]) == (str(index), "2")


@pytest.mark.torch
@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_torchruns_virtual_local_ranks(hosts: Hosts, rendezvous: str) -> None:
    """Every rank is told local rank 0 and one device; we know the slots all the same."""
    hosts.program(
        "import os, sys\n"
        "seen = 'SEES', os.environ['LOCAL_RANK'], os.environ['CUDA_VISIBLE_DEVICES']\n"
        "os.write(1, ' '.join(seen).encode() + b'\\n')\n"
        "sys.exit(5 if os.environ['SM_CURRENT_HOST'] + os.environ['CUDA_VISIBLE_DEVICES'] == sys.argv[1] else 0)\n"
    )
    words = ("--launcher", "torchrun", "--slots", "2", "--rendezvous", rendezvous, "train.py")
    hosts.run(*words, "nobody", PET_VIRTUAL_LOCAL_RANK="1")
    assert hosts.codes == dict.fromkeys(HOSTS, 0), hosts.logs
    for host in HOSTS:
        rows = [line for line in hosts.logs[host].splitlines() if line.startswith("SEES")]
        assert sorted(rows) == ["SEES 0 0", "SEES 0 1"]
    hosts.run(*words, "algo-21", PET_VIRTUAL_LOCAL_RANK="1")
    assert hosts.codes == dict.fromkeys(HOSTS, 5), hosts.logs
    assert "(local rank 1) on algo-2, exit code 5" in hosts.left("algo-1", "failure")


@pytest.mark.lane("suite")
def test_a_host_that_never_comes_is_in_the_table(hosts: Hosts) -> None:
    hosts.program(SHOW)
    hosts.environ["SM_HOSTS"] = json.dumps([*HOSTS, "algo-3"])
    addresses = {**FOUR, "algo-3": "127.0.0.23"}
    hosts.run("--launcher", "ranks", "--rollcall-timeout", "8", "train.py", addresses=addresses)
    assert hosts.codes == dict.fromkeys(HOSTS, 69), hosts.logs
    for host in HOSTS:
        rows = hosts.left(host, "failure").splitlines()
        assert any(row.startswith("algo-3 ") and "connect" in row for row in rows), rows


@pytest.mark.lane("suite")
@pytest.mark.torch
def test_a_host_that_lacks_torch_is_named_on_both(hosts: Hosts) -> None:
    without = hosts.folder / "python-without-torch"
    without.write_text(f'#!/bin/sh\nexec {hosts.python} -S "$@"\n')
    without.chmod(0o755)
    hosts.program(SHOW)
    hosts.run("--launcher", "torchrun", "train.py", only={"algo-2": {"MUSTER_PYTHON": str(without)}})
    assert hosts.codes == dict.fromkeys(HOSTS, 72), hosts.logs
    for host in HOSTS:
        assert "no module torch" in hosts.left(host, "failure")
        assert "on algo-2" in hosts.left(host, "failure")


@pytest.mark.parametrize("lacking", HOSTS)
def test_a_program_that_one_host_lacks_ends_both(hosts: Hosts, lacking: str) -> None:
    for host in HOSTS:
        hosts.places[host] = hosts.folder / f"code-{host}"
        hosts.places[host].mkdir()
        if host != lacking:
            (hosts.places[host] / "train.py").write_text(SHOW + "import time; time.sleep(60)\n")
    hosts.run("--launcher", "ranks", "train.py")
    assert hosts.codes == dict.fromkeys(HOSTS, 64), hosts.logs
    for host in HOSTS:
        assert "train.py" in hosts.left(host, "failure")
        assert f"on {lacking}" in hosts.left(host, "failure")
        assert json.loads(hosts.left(host, "outcome.json"))["host"] == lacking
