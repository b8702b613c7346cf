"""Failures as users of other tools have reported them, each as a program of its own.

What stands behind the preamble of the fault matrix: ``meet()`` returns when all ranks work, ``VICTIM`` is true in the
one that fails, ``strike()`` says that it does so now, ``rest()`` never returns, ``join()`` and ``collective()`` are
those of the ranks' framework.
"""

from __future__ import annotations

from typing import NamedTuple


class Reported(NamedTuple):
    name: str
    about: str
    body: str
    code: int
    error: str


def fails(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return f"meet()\nif VICTIM:\n    strike()\n{lines}rest()\n"


def waits(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return f"join()\nmeet()\nif VICTIM:\n    strike()\n{lines}while True:\n    collective()\n"


RAISES = "raise ValueError('batch 7 is empty')"
EMPTY = "ValueError: batch 7 is empty"

ROWS = (
    Reported(
        "worker-of-loader", "a data loader's worker process raises",
        fails(
            "import multiprocessing, traceback\n"
            "def work(queue):\n"
            "    try:\n"
            "        raise ValueError('batch 7 is empty')\n"
            "    except ValueError:\n"
            "        queue.put(traceback.format_exc())\n"
            "context = multiprocessing.get_context('fork')\n"
            "queue = context.Queue()\n"
            "context.Process(target=work, args=(queue,)).start()\n"
            "raise RuntimeError('Caught ValueError in DataLoader worker process 0.\\nOriginal ' + queue.get())"
        ), 1, EMPTY,
    ),
    Reported(
        "logged", "the error is logged, then `sys.exit(3)`",
        fails("import logging\nlogging.error('batch 7 is empty')\nsys.exit(3)"), 3, "batch 7 is empty",
    ),
    Reported(
        "finally", "a `finally` of the rank that raised waits for the others",
        waits(f"try:\n    {RAISES}\nfinally:\n    time.sleep(3)"), 1, EMPTY,
    ),
    Reported(
        "warnings-behind", "libraries warn at the end, behind the traceback",
        fails(
            "import atexit\n"
            "def warn():\n"
            "    for each in range(60):\n"
            "        print(f'UserWarning: semaphore {each} leaked', file=sys.stderr)\n"
            f"atexit.register(warn)\n{RAISES}"
        ), 1, EMPTY,
    ),
    Reported(
        "others-raise-first", "the ranks that wait raise their own error, louder",
        f"join()\nmeet()\nif VICTIM:\n    strike()\n    {RAISES}\n"
        "try:\n    while True:\n        collective()\n"
        "except BaseException as error:\n"
        "    print('Connection reset by peer. ' * 200, file=sys.stderr, flush=True)\n"
        "    raise\n", 1, EMPTY,
    ),
    Reported(
        "stdout-only", "the error stands on stdout only, without a line's end",
        fails("sys.stdout.write('FATAL: batch 7 is empty')\nsys.stdout.flush()\nos._exit(5)"), 5, "batch 7 is empty",
    ),
    Reported(
        "thread", "a thread raises, and the program ends because of it",
        fails(
            "import threading\n"
            "def load():\n"
            f"    {RAISES}\n"
            "thread = threading.Thread(target=load)\nthread.start()\nthread.join()\nsys.exit(4)"
        ), 4, EMPTY,
    ),
    Reported(
        "assertion", "an assertion without a text",
        fails("count = 0\nassert count > 0"), 1, "AssertionError",
    ),
    Reported(
        "key", "a missing key of a configuration", fails("{'lr': 1}['learning_rate']"), 1, "KeyError: 'learning_rate'",
    ),
    Reported(
        "file", "a file that isn't there on one host",
        fails("open('/data/shard-00017.parquet')"), 1, r"FileNotFoundError.*shard-00017\.parquet",
    ),
    Reported(
        "permission", "a directory that can't be written",
        fails("raise PermissionError(13, 'Permission denied', '/opt/ml/checkpoints')"), 1,
        "PermissionError.*checkpoints",
    ),
    Reported(
        "recursion", "an endless recursion", fails("def load():\n    load()\nload()"), 1, "RecursionError",
    ),
    Reported(
        "shape", "a long traceback through a library",
        fails(
            "def layer(n):\n    return layer(n - 1) if n else 1 / 0\n"
            "layer(60)"
        ), 1, "ZeroDivisionError",
    ),
    Reported(
        "cause", "an exception with a cause in a long chain",
        fails(
            "try:\n    try:\n        open('/nowhere')\n    except OSError as error:\n"
            "        raise RuntimeError('cannot read') from error\n"
            "except RuntimeError as error:\n    raise ValueError('batch 7 is empty') from error"
        ), 1, EMPTY,
    ),
    Reported(
        "no-message", "an exception without a message",
        fails("class BadBatch(Exception):\n    pass\nraise BadBatch"), 1, "BadBatch",
    ),
    Reported(
        "exit-with-dict", "`sys.exit` with an object", fails("sys.exit({'batch': 7})"), 1, r"\{'batch': 7\}",
    ),
    Reported(
        "json-log", "the program logs JSON, its error too",
        fails(
            "import json\n"
            "print(json.dumps({'level': 'error', 'message': 'batch 7 is empty'}), file=sys.stderr, flush=True)\n"
            "os._exit(2)"
        ), 2, "batch 7 is empty",
    ),
    Reported(
        "killed-while-others-wait", "the kernel kills a rank while the others wait",
        waits("import signal\nos.kill(os.getpid(), signal.SIGKILL)"), 137, "",
    ),
    Reported(
        "abort-waited", "a library aborts while the others wait",
        waits(
            "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
            "os.write(2, b'malloc(): corrupted top size\\n')\nos.abort()"
        ), 134, r"corrupted top size",
    ),
    Reported(
        "exit-in-callback", "`os._exit` in a callback, after its word",
        waits("print('early stop: loss is nan', file=sys.stderr, flush=True)\nos._exit(6)"), 6, "loss is nan",
    ),
)  # fmt: skip
