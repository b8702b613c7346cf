"""The beginning of every program of the matrix; what a fault's ranks do stands behind it."""

import os
import sys  # noqa: F401
import time

FOLDER, HOST = os.environ["FAULT_FOLDER"], os.environ["SM_CURRENT_HOST"]
RANK = next(os.environ[name] for name in ("RANK", "NODE_RANK", "SM_CURRENT_HOST_RANK") if name in os.environ)
LOCAL = os.environ.get("LOCAL_RANK", "0")
VICTIM = os.environ["FAULT_VICTIM"].split() == [HOST, LOCAL]


def mark(name, text=""):
    draft = os.path.join(FOLDER, f".{name}.{os.getpid()}")
    with open(draft, "w") as file:
        file.write(str(text))
    os.rename(draft, os.path.join(FOLDER, name))


def until(*names):
    pause = 0.01  # short at first; who waits for a minute should need next to no processor
    while not all(os.path.exists(os.path.join(FOLDER, name)) for name in names):
        time.sleep(pause)
        pause = min(pause * 1.2, 0.25)


def works():
    print(f"rank {RANK} works\n", end="", flush=True)
    mark("here-" + RANK)


def all_have(name):
    mark(f"{name}-{RANK}")
    until(*(f"{name}-{rank}" for rank in range(int(os.environ["FAULT_RANKS"]))))


def loaded():
    """Timeouts of the ranks' collectives begin when the last of them has imported its framework, however slowly."""
    all_have("loaded")


def meet():
    works()
    all_have("here")


def strike():
    print(f"the last line of rank {RANK}\n", end="", flush=True)
    mark("victim", RANK)
    mark("struck", time.time())


def rest():
    while True:
        time.sleep(1)  # a signal ends that
