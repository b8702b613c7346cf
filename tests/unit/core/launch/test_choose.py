"""Which launcher, how many slots, and what is refused."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from musterpoint.base.errors import LauncherError, UsageError
from musterpoint.base.settings import BY_FIELD, Settings
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.job.model import Counted, Distribution, DistributionKind, EntryPoint, Job, StartedRank
from musterpoint.core.launch.choose import choose
from musterpoint.core.launch.fabric import miscounted
from musterpoint.core.launch.inputs import capacity_of
from musterpoint.core.launch.launcher import wanted_ports
from musterpoint.core.launch.launchers import LAUNCHERS, every, find_launcher

from .conftest import Planner


def job(kind: str = "none", hosts: int = 1, per_host: int | None = None, group: int | None = None, me: int = 1) -> Job:
    names = tuple(f"algo-{number}" for number in range(1, hosts + 1))
    members = names[: group or hosts]
    return Job("sagemaker", "j", names, f"algo-{me}", members, EntryPoint("t.py"), Distribution(kind, per_host))


CHOICES: list[tuple[str, Job, dict[str, Any], Devices, bool, tuple[str, int]]] = [
    # name, job, settings, devices, typed by a person, launcher and slots
    ("no distribution", job(), {}, Devices(), False, ("script", 1)),
    ("no distribution, 8 GPUs", job(hosts=2), {}, Devices(gpus=8), False, ("script", 1)),
    ("torch_distributed", job("torch_distributed", 2), {}, Devices(gpus=8), False, ("torchrun", 8)),
    ("torch_distributed, CPU", job("torch_distributed", 2), {}, Devices(cpus=64), False, ("torchrun", 1)),
    ("Neuron cores", job("torch_distributed"), {}, Devices(neuron_cores=32), False, ("torchrun", 32)),
    ("pytorchddp", job("pytorch_ddp"), {}, Devices(gpus=4), False, ("torchrun", 4)),
    ("the job's slots", job("torch_distributed", per_host=3), {}, Devices(gpus=8), False, ("torchrun", 3)),
    ("the setting's slots", job("torch_distributed", per_host=3), {"slots": 2}, Devices(gpus=8), False,
     ("torchrun", 2)),
    ("script has one slot", job(), {"launcher": "script", "slots": 4}, Devices(gpus=8), False, ("script", 1)),
    ("ranks", job(), {"launcher": "ranks", "slots": 4}, Devices(), False, ("ranks", 4)),
    ("over the job's own", job("mpi"), {"launcher": "ranks"}, Devices(gpus=2), False, ("ranks", 2)),
    ("mpi", job("mpi", 2), {}, Devices(gpus=8), False, ("mpi", 8)),
    ("mpi, the job's slots", job("mpi", 2, per_host=2), {}, Devices(gpus=8), False, ("mpi", 2)),
    ("model parallelism", job("smdistributed_modelparallel"), {}, Devices(gpus=8), False, ("mpi", 8)),
    ("data parallelism", job("smdistributed_dataparallel"), {}, Devices(gpus=8), False, ("mpi", 8)),
    ("data parallelism by torchrun", job("smdistributed_dataparallel"), {"launcher": "torchrun"}, Devices(gpus=8),
     False, ("torchrun", 8)),
    ("deepspeed", job(), {"launcher": "deepspeed", "slots": 2}, Devices(), False, ("deepspeed", 2)),
    ("mirrored workers", job("multi_worker_mirrored_strategy", 2), {}, Devices(gpus=8), False, ("tensorflow", 1)),
    ("parameter servers", job("parameter_server", 2), {}, Devices(gpus=8), False, ("parameter-server", 1)),
    ("roles", job(hosts=2), {"tf_roles": "worker=2,ps=1"}, Devices(), False, ("parameter-server", 1)),
    ("outside the group", job("torch_distributed", 3, group=2, me=3), {}, Devices(gpus=8), False, ("torchrun", 0)),
    ("typed, one slot", job(), {}, Devices(), True, ("script", 1)),
    ("typed, GPUs", job(), {}, Devices(gpus=2), True, ("torchrun", 2)),
    ("typed, hosts", job(hosts=2), {}, Devices(), True, ("torchrun", 1)),
    ("typed, slots", job(), {"slots": 2}, Devices(), True, ("torchrun", 2)),
]  # fmt: skip


@pytest.mark.parametrize(("job", "given", "devices", "typed", "expected"), [row[1:] for row in CHOICES],
                         ids=[row[0] for row in CHOICES])  # fmt: skip
def test_choice(job: Job, given: dict[str, Any], devices: Devices, typed: bool, expected: tuple[str, int]) -> None:
    choice = choose(job, Settings(**given), devices, lambda module: True, typed)
    assert (choice.launcher, choice.slots) == expected
    assert choice.reason


@pytest.mark.parametrize(
    ("launcher", "roles", "task", "slots"),
    [
        ("parameter-server", "", "", (1, 1)),
        ("parameter-server", "worker=2,ps=1", "", (1, 0)),
        ("parameter-server", "worker=2,ps=1", "worker", (1, 1)),  # a TF_CONFIG that was set already goes first
        ("parameter-server", "", "ps", (0, 0)),
        ("tensorflow", "", "evaluator", (0, 0)),
        ("tensorflow", "", "worker", (1, 1)),
        ("script", "", "ps", (1, 1)),
    ],
)
def test_a_host_that_only_serves_has_no_slot(launcher: str, roles: str, task: str, slots: tuple[int, int]) -> None:
    environ = {"TF_CONFIG": f'{{"task": {{"type": "{task}", "index": 0}}}}'} if task else {}
    settings = Settings(launcher=launcher, tf_roles=roles)
    hosts = [job(hosts=2, me=number) for number in (1, 2)]
    chosen = [choose(host, settings, Devices(gpus=8), lambda module: True, False, environ) for host in hosts]
    assert tuple(choice.slots for choice in chosen) == slots


@pytest.mark.parametrize(
    ("counted", "devices", "settings", "per_host", "slots", "words"),
    [
        (Counted(4, "SM_NUM_GPUS"), Devices(gpus=4), {}, None, 4, ""),
        (Counted(4, "SM_NUM_GPUS"), Devices(gpus=8), {}, None, 4, "SM_NUM_GPUS is 4, but 8 GPUs can be seen"),
        (Counted(4, "SM_NUM_GPUS"), Devices(), {}, None, 4, "SM_NUM_GPUS is 4, but 0 GPUs can be seen"),
        (Counted(0, "SM_NUM_GPUS"), Devices(gpus=1), {}, None, 1, "SM_NUM_GPUS is 0, but 1 GPU can be seen"),
        (Counted(0, "SM_NUM_GPUS"), Devices(), {}, None, 1, ""),
        (Counted(8, "SM_NUM_NEURONS"), Devices(neuron_cores=2), {}, None, 8, "but 2 Neuron cores can be seen"),
        (Counted(8, "SM_NUM_NEURONS"), Devices(neuron_cores=8), {}, None, 8, ""),
        (Counted(4, "SM_NUM_GPUS"), Devices(gpus=8), {"slots": 2}, None, 2, ""),
        (Counted(4, "SM_NUM_GPUS"), Devices(gpus=8), {}, 3, 3, ""),
    ],
)
def test_another_toolkits_count(
    counted: Counted, devices: Devices, settings: dict[str, Any], per_host: int | None, slots: int, words: str
) -> None:
    counted_job = job(per_host=per_host)._replace(counted=counted)
    assert choose(counted_job, Settings(**settings), devices, lambda module: True, True).slots == slots
    warning = miscounted(counted_job, Settings(**settings), devices, find_launcher("script"))
    assert words in warning
    assert bool(words) == (f"it has {slots} slot" in warning)


def nothing_asked(module: str) -> bool:
    raise AssertionError(f"{module} was asked for")


@pytest.mark.parametrize("given", [{}, *({"launcher": name, "slots": 8} for name in ("script", "ranks", "mpi"))])
def test_modules_are_asked_for_only_where_the_answer_matters(given: dict[str, Any]) -> None:
    choose(job(), Settings(**given), Devices(), nothing_asked, True)


@pytest.mark.parametrize(
    ("job", "given", "typed", "words"),
    [
        (job("torch_distributed"), {}, False, "no module torch"),
        (job(), {"launcher": "torchrun"}, False, "launcher torchrun: the program.s Python, .*, has no module torch"),
        (job(), {"slots": 2}, True, "2 slots make a world of several ranks"),
        (job(hosts=2), {}, True, "2 hosts with 1 slot each"),
        (job(), {"launcher": "deepspeed"}, False, "no module deepspeed; install deepspeed"),
    ],
)
def test_without_torch_nothing_runs_as_a_world_of_one(job: Job, given: dict[str, Any], typed: bool, words: str) -> None:
    with pytest.raises(LauncherError, match=words):
        choose(job, Settings(**given), Devices(), lambda module: False, typed)


OTHERS = [
    ("mpirun", ("-np", "2", "t.py"), "mpirun"),
    ("/opt/bin/torchrun", ("t.py",), "torchrun"),
    ("python3.11", ("-u", "-m", "torch.distributed.launch", "t.py"), "torch.distributed.launch"),
    ("fabric", ("run", "t.py"), "fabric"),
    ("srun", ("python", "t.py"), "srun"),
    ("env", ("-u", "X", "A=1", "nice", "-n", "5", "timeout", "-k", "9", "9h", "torchrun", "t.py"), "torchrun"),
    ("stdbuf", ("-oL", "nohup", "setsid", "/usr/bin/python3", "/opt/bin/torchrun", "t.py"), "torchrun"),
    ("bash", ("-lc", "cd src && export A=1; exec torchrun --nnodes=1 't.py'"), "torchrun"),
    ("python3.11", ("-W", "ignore", "-um", "accelerate.commands.launch", "t.py"), "accelerate.commands.launch"),
    ("python", ("-m", "lightning.fabric.cli", "run", "t.py"), "lightning.fabric.cli"),
    ("nice", ("python", "t.py", "torchrun"), ""),
    ("accelerate", ("env",), ""),
    ("bash", ("-c", "if [ $RANK = 0 ]; then torchrun t.py; else exec python t.py; fi"), ""),
    ("bash", ("t.sh", "-c", "torchrun"), ""),
    ("bash", ("-c", "echo 'torchrun"), ""),
    ("python", ("t.py", "-m", "torch.distributed.run"), ""),
    ("mpirun.py", (), ""),
]


@pytest.mark.parametrize(("program", "arguments", "named"), OTHERS)
def test_another_launchers_command_is_no_rank(program: str, arguments: tuple[str, ...], named: str) -> None:
    line = job()._replace(entry_point=EntryPoint(program), arguments=arguments)
    for kind in ("ranks", "torchrun", "mpi") if named else ():
        with pytest.raises(UsageError, match=f"PROGRAM is {named}, which starts ranks itself.*launch --launcher"):
            choose(line, Settings(launcher=kind, slots=2), Devices(), lambda module: True, True)
    if named:  # what is said there must not be refused either
        each = line._replace(platform="azureml", started=StartedRank(0, 0, 2, 2))
        with pytest.raises(UsageError, match=r"`muster launch SCRIPT`, without --launcher.*process_count_per_instance"):
            choose(each, Settings(), Devices(), lambda module: True, True)
    assert choose(line, Settings(launcher="script"), Devices(), lambda module: True, True).launcher == "script"


def test_a_host_outside_the_group_needs_no_torch() -> None:
    outside = job("torch_distributed", 3, group=2, me=3)
    assert choose(outside, Settings(), Devices(), nothing_asked, False).slots == 0


KINDS = {kind for row in LAUNCHERS.values() for kind in row.kinds}


@pytest.mark.parametrize("kind", sorted({*get_args(DistributionKind)} - {"none", *KINDS}))
def test_a_distribution_without_a_launcher_says_so(kind: str) -> None:
    with pytest.raises(LauncherError, match=f"{kind}, for which this release has no launcher"):
        choose(job(kind), Settings(), Devices(), lambda module: True, False)


def test_the_table_knows_what_asks_for_a_launcher_before_its_file_is_read() -> None:
    for launcher in every():
        row = LAUNCHERS[launcher.name]
        assert row.kinds == (*launcher.asked_by,)
        assert bool(row.programs) == (launcher.typed is not None)
        assert launcher.summary


def test_every_kind_has_one_first_choice() -> None:
    for kind in KINDS:
        assert sum(not launcher.asked_by[kind].instead for launcher in every() if kind in launcher.asked_by) == 1


ALONE = [name for name in LAUNCHERS if name != "parameter-server"]
"""One host of a parameter server's has no other task; its program is started as a service, too."""


@pytest.mark.parametrize("launcher", ALONE)
def test_every_launcher_can_tell_the_local_rank_by_an_argument(plan: Planner, launcher: str) -> None:
    """The launcher's program starts ranks through the stub, which puts the argument there; else it is in the plan."""
    made = plan(launcher, {"a": 2}, local_rank="argument")
    if made.foreign:
        assert made.local_rank_at == 2
    else:
        words = [process.words[-4:] for process in made.processes if process.role == "rank"]
        assert words == [["train.py", f"--local_rank={local}", "--lr", "0.1"] for local in range(len(words))]
        assert words
    dashed = plan(launcher, {"a": 2}, local_rank="dashed")
    assert (dashed.local_rank_at, dashed.local_rank_flag) == (made.local_rank_at, "--local-rank")
    assert all("--local_rank" not in word for process in dashed.processes for word in process.words)
    without = plan(launcher, {"a": 2}, local_rank="variable")
    assert without.local_rank_at == -1
    assert not any("--local_rank" in word for process in without.processes for word in process.words)


def test_mpi4pys_runner_comes_before_the_script(plan: Planner) -> None:
    made = plan("mpi", {"a": 2}, local_rank="argument", modules=frozenset(["mpi4py"]))
    assert made.processes[0].words.index("train.py") == made.processes[0].words.index("--") + 4
    assert made.local_rank_at == 4


def test_numa_binding_is_torchruns(plan: Planner) -> None:
    assert "--numa-binding=node" in plan("torchrun", {"a": 2}, numa_binding="node").processes[0].words
    with pytest.raises(UsageError, match="is torchrun's, and the launcher is ranks"):
        choose(job(), Settings(launcher="ranks", numa_binding="node"), Devices(), lambda module: True, True)


SAMPLES: dict[str, tuple[Any, Any]] = {
    "cpu_binding": ("auto", "off"),
    "rendezvous": ("static", "c10d"), "numa_binding": ("", "node"), "ray_options": ("", "--include-dashboard=true"),
    "ray_head_options": ("", "--num-cpus=0"),
    "tf_hosts": ("addresses", "names"), "tf_port": (None, 3000), "tf_roles": ("", "worker=1,ps=1"),
    "accelerate_config": ("", "/etc/accelerate.yaml"), "slots": (2, 4),
}  # fmt: skip
"""Two values of each option that only some launchers read."""


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_table_of_what_a_launcher_reads_is_that_of_its_plans(launcher: str, plan: Planner) -> None:
    """An option changes the plans, or the number of ranks, of the launchers that its table names, and of no other."""
    assert {name for name, option in BY_FIELD.items() if option.of_some} == set(SAMPLES)
    gpus = Devices(gpus=8, cpus=8)
    for field, two in SAMPLES.items():
        made = []
        for value in two:
            names = {"slots_option" if field == "slots" else field: value}
            options = Settings(launcher=launcher, **{field: value})
            try:
                chosen = choose(job(hosts=2), options, gpus, lambda _module: True, local=True)
                planned = plan(launcher, {"algo-1": chosen.slots, "algo-2": chosen.slots}, devices=gpus, **names)
            except UsageError as error:
                made.append(str(error))
                continue
            # NPROC_PER_NODE only tells programs that start ranks themselves how much room there is
            variables = [
                setting for one in (planned, *planned.processes) for setting in one.environment
                if setting.name != "NPROC_PER_NODE"
            ]  # fmt: skip
            words = [process.argv for process in planned.processes]
            room = capacity_of(job(hosts=2), options, gpus) if planned.ssh else 0  # what its list of hosts says
            made.append(
                str((wanted_ports(find_launcher(launcher), frozenset(), options, job(hosts=2)), variables, words, room))
            )
        reads = made[0] != made[1]
        # refused, asked of accelerate, or settled by the devices before there is a plan
        if field in ("numa_binding", "accelerate_config", "cpu_binding"):
            assert reads <= (field in find_launcher(launcher).reads) or "is torchrun's" in made[1]
        else:
            assert reads == (field in find_launcher(launcher).reads), (field, launcher)
