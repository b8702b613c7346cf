"""The program that looks at quiet ranks, on real processes: their stacks, and whether they did anything meanwhile."""

from __future__ import annotations

import base64
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from musterpoint.core.launch.inputs import STARTUP, TASKS
from musterpoint.embedded.programs import gpu_activity, stack_sampler
from musterpoint.embedded.programs.registry import SAMPLER, Texts

PROGRAM = """
import os, subprocess, sys, threading, time

def asleep():
    time.sleep(60)

def busy():
    while True:
        pass

def writes():
    with open("/dev/null", "wb") as file:
        while True:
            file.write(b"x" * 100_000)
            time.sleep(0.01)

def by_a_child():
    subprocess.run([sys.executable, "-c", "while True: pass"])

def beside_workers():
    words = [sys.executable, "-c", "import time; deep = lambda n: deep(n - 1) if n else time.sleep(60); deep(50)"]
    for _ in range(4):
        subprocess.Popen(words)
    asleep()

def polls():
    library().start(0)
    asleep()

def computes_beside():
    library().start(0)
    library().start(1)
    asleep()

def computes():
    library().start(0)
    library().compute(0)

def works_in_python():
    library().start(0)
    with open("/dev/null", "wb") as file:
        threading.Thread(target=lambda: [(file.write(b"x" * 9000), time.sleep(0.001)) for _ in range(60000)]).start()
        asleep()

def library():
    import ctypes
    return ctypes.CDLL(os.environ["LIBRARY"])

if task := os.environ.get("WITH_HANDLER"):
    exec(compile(open(task).read(), task, "exec"), {"__name__": "stack_dumps"})
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ready", flush=True)
globals()[sys.argv[1]]()
"""
STACK_DUMPS = str(Path(gpu_activity.__file__).parents[1] / "startup" / "stack_dumps.py")
Started = dict[str, "subprocess.Popen[bytes]"]


def py_spy() -> str:
    """The program of the package py-spy, wherever the test environment has it."""
    files = importlib.metadata.distribution("py-spy").files or []
    return str(next(file for file in files if file.name == "py-spy").locate())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """Starts the program once for each of its functions that is named."""
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    started: Started = {}

    def run(*names: str, **environ: str) -> Started:
        for name in names:
            started[name] = subprocess.Popen(
                [sys.executable, str(file), name], stdout=subprocess.PIPE, start_new_session=True, cwd=tmp_path,
                env={**os.environ, **environ},
            )  # fmt: skip
        for process in started.values():
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        return started

    yield run
    for process in started.values():
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def command(
    texts: Texts, result: Path, seconds: float, reader: str, pids: list[int], idle: float = 0.0, own: int = 2**31
) -> tuple[str, ...]:
    request = {
        "seconds": seconds, "idle": idle, "ranks": dict(enumerate(pids)), "py_spy": reader,
        "own": own, "gpus": gpu_activity.__file__, "result": str(result), "silent": {},
    }  # fmt: skip
    return texts.own_command(SAMPLER, request)


def sample(tmp_path: Path, ranks: Started, reader: str, seconds: str = "1", **environ: str) -> dict[str, Any]:
    result = tmp_path / "result.json"
    texts = Texts()
    words = command(texts, result, float(seconds), reader, [process.pid for process in ranks.values()])
    sampler = subprocess.Popen(words, stdin=subprocess.PIPE, env={**os.environ, **environ})
    assert sampler.wait(500) == 0
    assert sampler.stdin is not None
    sampler.stdin.close()
    texts.close()
    found = json.loads(result.read_text())
    return {name: found[str(number)] for number, name in enumerate(ranks)}


def sample_until(moving: dict[str, bool], tmp_path: Path, ranks: Started, reader: str) -> dict[str, Any]:
    """What each rank does, in a longer and longer time: a busy machine lets it do little in a second."""
    for seconds in ("1", "5", "25"):
        found = sample(tmp_path, ranks, reader, seconds)
        if {name: facts["moving"] for name, facts in found.items()} == moving:
            break
    assert {name: facts["moving"] for name, facts in found.items()} == moving
    return found


MOVING = {"asleep": False, "busy": True, "writes": True, "by_a_child": True}


@pytest.mark.parametrize("handler", [False, True])
@pytest.mark.parametrize("reader", [True, False])
def test_what_each_rank_does(tmp_path: Path, start: Callable[..., Started], reader: bool, handler: bool) -> None:
    ranks = start(*MOVING, **({"WITH_HANDLER": STACK_DUMPS} if handler else {}))
    found = sample_until(MOVING, tmp_path, ranks, py_spy() if reader else "-")
    assert all(process.poll() is None for process in ranks.values())
    asleep = found["asleep"]
    assert asleep["state"] == "S"
    if not reader and not handler:
        assert asleep["error"] == "py-spy isn't installed"
        return
    assert asleep["source"] == "time.sleep(60)"
    main = next(thread for thread in asleep["threads"] if thread["name"] == "MainThread")
    assert [frame[:2] for frame in main["frames"]] == [["asleep", "train.py"], ["<module>", "train.py"]]
    assert len(asleep["threads"]) == 1 + handler
    assert len(found["by_a_child"]["children"]) == 1


@pytest.mark.parametrize("name", ["asleep", "busy", "by_a_child"])
def test_a_rank_that_works_is_not_looked_into_unasked(tmp_path: Path, start: Callable[..., Started], name: str) -> None:
    (result, texts) = tmp_path / "result.json", Texts()
    pids = [process.pid for process in start(name).values()]
    for idle in (0.5, 5.0, 25.0):  # a busy machine lets it do little
        words = command(texts, result, 0.1, "/nowhere/py-spy", pids, idle)
        with subprocess.Popen(words, stdin=subprocess.PIPE) as sampler:
            assert sampler.wait(500) == 0
        if bool(json.loads(result.read_text())) == (name == "asleep"):
            break
    texts.close()
    assert bool(json.loads(result.read_text())) == (name == "asleep")


@pytest.mark.parametrize("name", ["asleep", "busy"])
def test_what_is_below_musterpoint_beside_the_ranks_counts(
    tmp_path: Path, start: Callable[..., Started], name: str
) -> None:
    """As Ray's workers, below a service, and what a rank has started in a session of its own."""
    result, texts = tmp_path / "result.json", Texts()
    rank = start(*dict.fromkeys(("asleep", name)))["asleep"].pid
    words = command(texts, result, 1.0, "-", [rank], own=os.getpid())
    with subprocess.Popen(words, stdin=subprocess.PIPE) as sampler:
        assert sampler.wait(500) == 0
    texts.close()
    assert bool(json.loads(result.read_text())) == (name == "asleep")


def test_who_gets_no_processor_gets_on(tmp_path: Path) -> None:
    """Another process has the only one that it may use, and the kernel gives it next to nothing of that."""
    processor = min(os.sched_getaffinity(0))
    words = [sys.executable, "-c", "print('ready', flush=True)\nwhile True: pass"]
    spinning = [subprocess.Popen(words, stdout=subprocess.PIPE) for _number in range(2)]
    try:
        for process in spinning:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            os.sched_setaffinity(process.pid, {processor})
        os.sched_setscheduler(spinning[0].pid, os.SCHED_IDLE, os.sched_param(0))
        assert sample(tmp_path, {"rank": spinning[0]}, "-", "0.2")["rank"]["moving"] is True
    finally:
        for process in spinning:
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("reader", "error"),
    [("/nowhere/py-spy", "FileNotFoundError from py-spy"), ("/bin/false", "py-spy failed"), ("/bin/true", "JSON")],
)
def test_a_reader_that_fails_is_named(tmp_path: Path, start: Callable[..., Started], reader: str, error: str) -> None:
    assert error in sample(tmp_path, start("asleep"), reader)["asleep"]["error"]


HOROVOD = """
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
void *compute(void *unused) { for (volatile unsigned long n = 0;; n++) ; }
static void *poll(void *unused) {
    char words[50] = {0};
    int file = open("/dev/null", O_WRONLY);
    for (;;) { if (write(file, words, sizeof words) < 0) return 0; usleep(1000); }
}
void start(int computes) { pthread_t thread; pthread_create(&thread, 0, computes ? compute : poll, 0); }
"""
COMPUTES = {"polls": False, "computes_beside": True, "computes": True, "works_in_python": True}


@pytest.mark.lane("faults")
@pytest.mark.parametrize("name", ["mpi_lib_v2.so", "another.so"])
def test_threads_that_only_look_for_work_are_no_work(tmp_path: Path, start: Callable[..., Started], name: str) -> None:
    """Those of Horovod's library, for which another stands here; who computes beside them, in C too, gets on."""
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod.c").write_text(HOROVOD)
    library = tmp_path / "horovod" / name
    subprocess.run(["cc", "-shared", "-fPIC", "-pthread", "-o", library, tmp_path / "horovod.c"], check=True)
    ranks = start(*COMPUTES, LIBRARY=str(library))
    sample_until(COMPUTES if name.startswith("mpi_lib") else dict.fromkeys(COMPUTES, True), tmp_path, ranks, py_spy())


def test_what_ranks_do_to_answer_is_no_work(
    tmp_path: Path, environ: dict[str, str], start: Callable[..., Started]
) -> None:
    """A rank has processes of its own, as data loaders have, and each of them writes its stacks when it is asked."""
    ranks = start("beside_workers", PYTHONPATH=STARTUP, **{TASKS: "stack_dumps"})
    while len(sample(tmp_path, ranks, "-", "0.1")["beside_workers"]["children"]) < 4:
        pass  # not all are Python yet
    while (facts := sample(tmp_path, ranks, "-", "1")["beside_workers"])["moving"]:
        pass  # they still start
    assert [len(child["threads"][0]["frames"]) for child in facts["children"]] == [52] * 4


NVML = """
#include <stdlib.h>
struct busy { unsigned gpu, memory; };
int nvmlInit_v2(void) { return getenv("NO_GPU") ? 9 : 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **device) { *device = (char *)1 + number; return 0; }
int nvmlDeviceGetUtilizationRates(void *device, struct busy *busy) {
    busy->gpu = 100;
    busy->memory = device == (void *)2 ? atoi(getenv("MEMORY")) : 0;
    return getenv("MIG") ? 3 : 0;
}
"""


def test_memory_of_a_gpu_in_use_is_work_and_a_kernel_that_waits_is_none(
    tmp_path: Path, start: Callable[..., Started]
) -> None:
    """The library stands for NVIDIA's, where there is no GPU."""
    source = tmp_path / "nvml.c"
    source.write_text(NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / gpu_activity.LIBRARY), str(source)], check=True)
    ranks = start("asleep")
    for environ, moving, gpus in (
        ({"MEMORY": "31"}, True, [[100, 0], [100, 31]]),
        ({"MEMORY": "0"}, False, [[100, 0], [100, 0]]),
        ({"MEMORY": "31", "MIG": "1"}, False, []),
        ({"MEMORY": "31", "NO_GPU": "1"}, False, []),
    ):
        facts = sample(tmp_path, ranks, "-", "0.1", LD_LIBRARY_PATH=str(tmp_path), **environ)["asleep"]
        assert (facts["moving"], facts["gpus"]) == (moving, gpus)


def test_it_ends_with_its_stdin(tmp_path: Path) -> None:
    texts = Texts()
    sampler = subprocess.Popen(command(texts, tmp_path / "r", 600, "-", []), stdin=subprocess.PIPE)
    sampler.communicate(timeout=500)
    texts.close()
    assert sampler.returncode == 1


LOOKS_FOR_MESSAGES = """
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static int loop(unsigned long times) {
    for (volatile unsigned long n = 0; n < times; n++) syscall(SYS_sched_yield);
    return 0;
}
int wait_for_ever(void) { return loop(-1ul); }
int send_a_little(void) { return loop(100); }
"""
CALLER = """
import ctypes, os, sys
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), {"__name__": "stack_dumps"})
here = [ctypes.CDLL(os.path.join(os.getcwd(), name)) for name in ("libmpi.so", "libother.so")]
library, call = here[int(sys.argv[2])], sys.argv[3]
waits, sends = library.wait_for_ever, library.send_a_little
print("ready", flush=True)
if call == "waits":
    waits()
while True: sends()
"""


@pytest.mark.lane("faults")
@pytest.mark.parametrize(
    ("library", "call", "in_mpi"), [("0", "waits", True), ("1", "waits", False), ("0", "sends", False)]
)
def test_one_call_of_an_mpi_is_told_from_many_and_from_other_libraries(
    tmp_path: Path, start: Callable[..., Started], library: str, call: str, in_mpi: bool
) -> None:
    """Both are at one line all the time, and use the processor."""
    (tmp_path / "wait.c").write_text(LOOKS_FOR_MESSAGES)
    for name in ("libmpi.so", "libother.so"):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / name, tmp_path / "wait.c"], check=True)
    (tmp_path / "caller.py").write_text(CALLER)
    words = [sys.executable, "caller.py", STACK_DUMPS, library, call]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=tmp_path) as rank:
        try:
            assert rank.stdout is not None
            assert rank.stdout.readline() == b"ready\n"
            look = lambda: sample(tmp_path, {"rank": rank}, py_spy(), "2")["rank"]["mpi_call"]  # noqa: E731
            if in_mpi:  # on a busy machine a look may say that it doesn't know
                calls = [next(call for call in iter(look, None) if call) for _ in range(2)]
                assert calls == [1, 1]
            else:  # and one of the short calls may be a long one
                assert [look() for _ in range(3)] != [1, 1, 1]
        finally:
            rank.kill()


def test_what_lies_in_an_mpi() -> None:
    python, waits = "<module> (/job/train.py:9)", "PMPI_Recv (/opt/lib/libmpi.so.40)"
    other, debugged = "dgemm (/usr/lib/libopenblas.so.0)", "MPI_Barrier (/build/openmpi/mpi/c/barrier.c:70)"
    for stacks, inside in (
        ({f"{python};{waits};poll (/lib/libc.so.6)": 5}, True),
        ({f"{python};{waits};mlx5_poll_cq (/lib/libmlx5.so.1)": 3, f"{python};0x7f10 (/l/libopen-pal.so.80)": 2}, True),
        ({f"{python};{debugged};opal_progress (/build/openmpi/opal/progress.c:1)": 9}, True),
        ({f"{python};{waits}": 4}, False),
        ({f"{python};{waits}": 9, f"{python};{other}": 1}, False),
        ({f"{python};Allreduce (/lib/mpi4py/MPI.so)": 9}, False),
        ({}, False),
    ):
        text = "py-spy> Sampling\n\nthread (8): ours;read (/lib/libc.so.6) 1\n"
        text += "".join(f"thread (7): MainThread;{stack} {times}\n" for stack, times in stacks.items())
        assert stack_sampler.is_in_mpi(7, text) is inside, stacks


DUMPS = """
import os, sys, threading, time

prefix, rank = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"], os.environ["RANK"]
os.mkfifo(f"{prefix}{rank}.pipe")  # as torch's DumpPipe does
asked = os.open(f"{prefix}{rank}.pipe", os.O_RDONLY | os.O_NONBLOCK)
print("ready", flush=True)
while True:
    try:
        if os.read(asked, 128):
            break
    except BlockingIOError:
        pass
    time.sleep(0.01)
with open(os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] + rank, "wb", buffering=0) as file:
    file.write(b"a record ")
    time.sleep(0.1)
    file.write(b"of NCCL.")
time.sleep(60)
"""


def test_nccl_is_asked_through_its_pipe_where_no_thread_of_ours_answers(tmp_path: Path) -> None:
    """The program stands for torch with NCCL: it makes the pipe, and answers, as torch's source says."""
    stem = f"{tmp_path}/muster-nccl-"
    environ = {**os.environ, stack_sampler.PIPE: stem, stack_sampler.DUMP: stem, "RANK": "5"}
    rank = subprocess.Popen([sys.executable, "-c", DUMPS], env=environ, stdout=subprocess.PIPE)
    silent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert rank.stdout is not None
        assert rank.stdout.readline() == b"ready\n"
        found = stack_sampler.flights({5: rank.pid, 6: silent.pid})
        assert {number: base64.b64decode(text) for number, text in found.items()} == {5: b"a record of NCCL."}
    finally:
        for process in (rank, silent):
            process.kill()
            process.communicate()
