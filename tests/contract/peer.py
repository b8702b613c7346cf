"""Runs sagemaker-training's ``train`` again and again, each time as a process of its own: ``python peer.py BIN``.

A line of JSON with ``environ``, ``cwd`` and the file for ``output`` asks for a run; the answer is its exit code. What
sagemaker-training imports is imported once, itself anew in every process: it reads its environment when imported.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def train(environ: dict[str, str], cwd: str, output: str) -> int:
    """The code of ``train``, as the console script of that name runs it."""
    for fd in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), fd)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    sys.argv = [os.path.join(sys.path[0], "train")]
    return importlib.import_module("sagemaker_training.cli.train").main() or 0


def serve(commands: str) -> None:
    sys.path[0] = commands
    importlib.import_module("sagemaker_training.cli.train")
    for name in [name for name in sys.modules if name.partition(".")[0] == "sagemaker_training"]:
        del sys.modules[name]
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            sys.exit(train(**json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
