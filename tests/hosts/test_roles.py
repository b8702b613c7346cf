"""Jobs with roles: the examples under every launcher, and how a job ends when one of its programs does."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ..ports import free_port

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "roles"
STOPPED = 143


def example(folder: Path, name: str, *arguments: str, launcher: str = "torchrun") -> Path:
    """A job's file of the examples, in a copy of their directory, with ports of the test's own."""
    shutil.copytree(EXAMPLES, folder / "roles")
    file = folder / "roles" / f"{name}.toml"
    first, second = free_port(), free_port()
    text = file.read_text().replace("8000", str(first)).replace("8001", str(second))
    text = text.replace('"torchrun"', f'"{launcher}"')
    if launcher == "script":
        text = "\n".join(line for line in text.splitlines() if not line.startswith("slots"))
    ports = ["--data-port", first] if name == "groups" else ["--policy-port", first, "--reward-port", second]
    file.write_text(f"arguments = {json.dumps([*map(str, ports), *arguments])}\n{text}")
    return file


def models(ran: Any) -> list[str]:
    with tarfile.open(ran.output / "model.tar.gz") as archive:
        return [Path(name).name for name in archive.getnames() if name != "."]


@pytest.mark.netns
@pytest.mark.lane("suite")
def test_the_policy_server_has_a_host_of_its_own(local: Any, tmp_path: Path) -> None:
    file = example(tmp_path, "two-hosts", "--steps", "3")
    ran = local.run("--backend", "netns", "-f", file)
    assert ran.code == 0, ran.stderr + ran.stdout
    assert "rollouts of version 0;" in ran.stdout
    assert models(ran) == ["policy.pt"]
    assert "leave-due" not in [event["event"] for event in ran.events("algo-1")], "torchrun isn't waited for"
    assert {host["Host"]: host["Role"] for host in ran.job["Hosts"]} == {"algo-1": "trainer", "algo-2": "policy"}
    assert ran.outcome("algo-2")["roles"] == {"trainer": ["algo-1"], "policy": ["algo-2"], "reward": ["algo-1"]}


@pytest.mark.parametrize("launcher", ["torchrun", "ranks", "script"])
@pytest.mark.parametrize("name", ["one-host", "two-hosts"])
def test_the_trainer_runs_under_each_launcher(local: Any, tmp_path: Path, name: str, launcher: str) -> None:
    ran = local.run("--backend", "process", "-f", example(tmp_path, name, "--steps", "3", launcher=launcher))
    assert ran.code == 0, ran.stderr + ran.stdout
    assert models(ran) == ["policy.pt"]


@pytest.mark.netns
def test_a_stopped_trainer_saves_with_its_servers_help(local: Any, tmp_path: Path) -> None:
    file = example(tmp_path, "two-hosts", "--steps", "1000000")
    ran = local.stop("--backend", "netns", "-f", file, when="step=1;", lines=1)
    assert ran.code == STOPPED, ran.stderr + ran.stdout
    assert models(ran) == ["policy.pt"]


@pytest.mark.netns
@pytest.mark.parametrize("words", [("--groups", "data:2,train:2")], ids=" ".join)
def test_each_instance_group_has_a_role(local: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Its hosts come in the order of the groups, and the leader is the trainer's first."""
    ran = local.run("--backend", "netns", *words, "-f", example(tmp_path, "groups", "--steps", "3"))
    assert ran.code == 0, ran.stderr + ran.stdout
    assert models(ran) == ["model.pt"]
    assert [host["Role"] for host in ran.job["Hosts"]] == ["data", "data", "trainer", "trainer"]


PROGRAM = """
import os, signal, socket, sys

role, moment, ports = os.environ["MUSTER_ROLE"], sys.argv[1], [int(port) for port in sys.argv[2:]]
port_of = dict(zip(("policy", "reward"), ports))
here = int(os.environ.get("RANK", "0"))
victim, _, when = moment.partition(" ")
how = os.environ.get("HOW", "killed") if os.environ["MUSTER_ATTEMPT"] == "0" else ""
signal.signal(signal.SIGTERM, lambda *_: told())


def end():
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how:
        os._exit(int(how))


def ask(server):
    if server in port_of:
        with socket.create_connection((os.environ["MUSTER_ROLE_HOSTS_" + server.upper()], port_of[server])) as asked:
            asked.sendall(b"end")
            asked.recv(1)  # until it has closed


def told():
    print(role, "is told to end", flush=True)
    if role == "trainer" and here == 0 and when == "stops":
        ask(victim) if victim != role else end()
    os._exit(7 if role == "reward" else 0)  # a code that doesn't count


if role == victim and when == "begins":
    end()
if role == "trainer":
    print("trains", flush=True)
    if victim == role and when == "runs" and here == 1:
        end()
    if here == 0 and when == "runs":
        ask(victim)
    if when == "all" or not how:
        sys.exit()
    signal.pause()
if role == "reward" and when == "waits":
    ask(victim)
    signal.pause()
with socket.create_server((os.environ["MUSTER_ROLE_HOSTS_" + role.upper()], port_of[role])) as server:
    print("serves", flush=True)
    while True:
        asked, _ = server.accept()
        if asked.recv(3) == b"end":
            end()
        asked.close()
"""
ON_FOUR = {"trainer": "hosts = 2", "policy": "hosts = 1", "reward": "hosts = 1"}
ON_ONE = {"trainer": "hosts = 1\nslots = 2", "policy": 'beside = "trainer"', "reward": 'beside = "trainer"'}


def job_file(local: Any, layout: dict[str, str], moment: str, how: str = "killed", more: str = "") -> Path:
    """Three roles of one program: reward starts after policy, and the trainer after both."""
    local.program(PROGRAM)
    ports = {"policy": free_port(), "reward": free_port()}
    arguments = json.dumps([moment, *map(str, ports.values())])
    after = {"trainer": ["policy", "reward"], "policy": [], "reward": ["policy"]}
    text = more + "\n"
    for role, place in layout.items():
        own = 'launcher = "ranks"' if role == "trainer" else f'ready = "port {ports[role]}"'
        text += f'[[roles]]\nname = "{role}"\n{place}\nprogram = "program.py"\narguments = {arguments}\n{own}\n'
        text += f'after = {json.dumps(after[role])}\nenv = {{ HOW = "{how}" }}\n'
    return Path(local.program(text, "job.toml"))


MOMENTS = [
    ("policy begins", "policy on algo-3"),
    ("policy waits", "policy on algo-3"),
    ("policy runs", "policy on algo-3"),
    ("reward begins", "reward on algo-4"),
    ("reward runs", "reward on algo-4"),
    ("trainer begins", "rank "),
    ("trainer runs", "rank 1 of trainer on algo-2"),
]
IN_SUITE = pytest.mark.lane("suite")


@pytest.mark.parametrize("layout", [pytest.param(ON_FOUR, id="four hosts"), pytest.param(ON_ONE, id="one host")])
@pytest.mark.parametrize(("moment", "who"), MOMENTS)
def test_a_program_that_is_killed_ends_the_job(local: Any, layout: dict[str, str], moment: str, who: str) -> None:
    ran = local.run("--backend", "process", "-f", job_file(local, layout, moment))
    assert ran.code == 137, ran.stderr + ran.stdout
    first = ran.reason.splitlines()[0]
    assert first.startswith(who) if layout is ON_FOUR else f"{moment.split()[0]} on algo-1" in first, ran.reason
    hosts = [host["Host"] for host in ran.job["Hosts"]]
    assert [ran.outcome(host)["code"] for host in hosts] == [137] * len(hosts)
    assert {ran.outcome(host)["role"] for host in hosts} == {moment.partition(" ")[0]}


@IN_SUITE
def test_a_server_that_is_killed_while_others_wait(local: Any) -> None:
    """The trainer never starts."""
    ran = local.run("--backend", "process", "-f", job_file(local, ON_FOUR, "policy waits"))
    assert ran.code == 137, ran.stderr + ran.stdout
    assert ran.reason.startswith("policy on algo-3"), ran.reason
    assert "trains" not in ran.stdout


@IN_SUITE
def test_services_are_told_to_end_and_their_codes_don_t_count(local: Any) -> None:
    ran = local.run("--backend", "process", "-f", job_file(local, ON_FOUR, "nobody all", how="7"))
    assert ran.code == 0, ran.stderr + ran.stdout
    assert ran.stdout.count("trains") == 2
    assert "reward is told to end" in ran.log("algo-4"), "and it ended with 7"


@pytest.mark.parametrize(
    ("moment", "how", "code", "first"),
    [
        ("policy runs", "0", 1, "policy on algo-3 left while trainer still runs"),
        ("policy waits", "0", 1, "policy on algo-3 left while trainer still runs"),
        ("policy runs", "5", 5, "policy on algo-3, exit code 5"),
    ],
)
def test_a_server_that_ends_too_early(local: Any, moment: str, how: str, code: int, first: str) -> None:
    ran = local.run("--backend", "process", "-f", job_file(local, ON_FOUR, moment, how=how))
    assert ran.code == code, ran.stderr + ran.stdout
    assert ran.reason.startswith(first), ran.reason


@pytest.mark.parametrize("layout", [pytest.param(ON_FOUR, id="four hosts"), pytest.param(ON_ONE, id="one host")])
@pytest.mark.parametrize("victim", ["nobody", "policy", "trainer"])
def test_a_stop_reaches_the_trainer_first(local: Any, layout: dict[str, str], victim: str) -> None:
    file = job_file(local, layout, f"{victim} stops")
    ran = local.stop("--backend", "process", "-f", file, when="trains", lines=2)
    assert ran.code == STOPPED, ran.stderr + ran.stdout
    told = [line.split()[-5] for line in ran.stdout.splitlines() if "is told to end" in line]
    if victim == "nobody":
        trainers = told.count("trainer")
        assert trainers == 2 and sorted(told[2:]) == ["policy", "reward"], told


@pytest.mark.parametrize(("layout", "where"), [(ON_FOUR, "algo-3"), (ON_ONE, "this host")])
def test_a_role_that_isn_t_ready_in_time(local: Any, layout: dict[str, str], where: str) -> None:
    file = job_file(local, layout, "nobody all")
    file.write_text(file.read_text().replace('ready = "port', "ready = \"line 'never said'\" #"))
    ran = local.run("--backend", "process", "--ready-timeout", "1", "-f", file)
    assert ran.code == 69, ran.stderr + ran.stdout
    assert f"policy: not ready on {where}" in ran.reason
    assert "reward: waits for policy" in ran.reason


def test_all_roles_start_again(local: Any) -> None:
    """With their gates."""
    file = job_file(local, ON_FOUR, "policy runs", more="max_restarts = 1")
    ran = local.run("--backend", "process", "-f", file)
    assert ran.code == 0, ran.stderr + ran.stdout
    assert ran.log("algo-3").count("serves") == ran.log("algo-4").count("serves") == 2


def test_a_role_of_the_command_line(local: Any) -> None:
    serve = "import os, signal; print(os.environ['MUSTER_ROLE'], 'serves', flush=True); signal.pause()"
    train = "import os; print(os.environ['MUSTER_ROLE'], 'asks', os.environ['MUSTER_ROLE_HOSTS_POLICY'], flush=True)"
    local.program(serve, "serve.py")
    ran = local.run(
        "--backend", "process", "--hosts", "3", "--launcher", "ranks", "--role", "policy:1:serve.py",
        local.program(train, "train.py"),
    )  # fmt: skip
    assert ran.code == 0, ran.stderr + ran.stdout
    assert "train asks 127.0.0." in ran.log("algo-2")
    assert [host["Role"] for host in ran.job["Hosts"]] == ["train", "train", "policy"]


@IN_SUITE
def test_a_plan_shows_a_role_after_the_other(local: Any, tmp_path: Path) -> None:
    file = example(tmp_path, "two-hosts")
    done = subprocess.run(
        [local.python, "-m", "musterpoint", "plan", "--backend", "process", "-f", file], env=local.environ,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [line.partition(":")[0] for line in done.stdout.splitlines()[1:4]]
    assert told == ["trainer on algo-1", "reward on algo-1", "policy on algo-2"]
    assert "starts after policy and reward; its end is the job's" in done.stdout


@IN_SUITE
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('after = ["policy", "reward"]', 'after = ["polcy"]', "after names polcy, expected policy"),
        ('ready = "http :8000/health"', 'after = ["trainer"]', "waits for"),
        ('launcher = "torchrun"', 'ends = "with"', "the job would never end"),
        ('launcher = "torchrun"', "max_restarts = 1", "isn't possible yet"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(local: Any, tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (EXAMPLES / "one-host.toml").read_text()
    assert old in text
    file = local.program(text.replace(old, new), "job.toml")
    for name in ("trainer.py", "policy.py", "reward.py"):
        local.program("", name)
    ran = subprocess.run(local.command("-f", file), env=local.environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 64, ran.stderr
    assert said in ran.stderr and "job.toml" in ran.stderr, ran.stderr
