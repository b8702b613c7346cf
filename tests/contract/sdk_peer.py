"""Runs what SDK v3's drivers do before a program starts: ``python sdk_peer.py CONTAINER_DRIVERS``.

A line of JSON with the content of ``hyperparameters.json`` asks for the words that the basic driver starts a program
with. With ``environ`` (a file) the SDK's own script writes the job's variables there, for a shell to source; the answer
is then null.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def words(hyperparameters: dict[str, object]) -> list[str]:
    """As ``environment.py`` hands them over and the driver takes them."""
    written = utils.safe_serialize(environment.deserialize_hyperparameters(hyperparameters))
    os.environ.update(SM_ENTRY_SCRIPT="train.py", SM_HPS=written)
    return list(driver.create_commands()[1:])


sys.path.insert(0, sys.argv[1])
sys.path.insert(0, os.path.join(sys.argv[1], "scripts"))
utils = importlib.import_module("common.utils")
environment = importlib.import_module("environment")
driver = importlib.import_module("distributed_drivers.basic_script_driver")
answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
for line in sys.stdin:
    asked = json.loads(line)
    if "environ" in asked:
        environment.set_env(asked["resources"], asked["inputs"], asked["hyperparameters"], asked["environ"])
        answer = None
    else:
        answer = words(asked["hyperparameters"])
    print(json.dumps(answer), file=answers, flush=True)
