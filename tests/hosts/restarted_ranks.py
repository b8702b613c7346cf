"""Ranks that tell what they see, in an attempt that their launcher starts and in one that musterpoint starts itself."""

from __future__ import annotations

import json
from pathlib import Path

SEES = """
import json, os, sys, time

folder = next(word for word in sys.argv[1:] if os.path.isdir(word))
attempt, rank, world = (os.environ[name] for name in ("MUSTER_ATTEMPT", "RANK", "WORLD_SIZE"))
own = os.path.join(folder, f"{attempt}-{rank}.json")
facts = {"environ": dict(os.environ), "argv": sys.argv, "cwd": os.getcwd(), "path": sys.path,
         "group": os.getpgrp() == os.getpid()}
with open(own + ".new", "w") as file:
    json.dump(facts, file)
os.replace(own + ".new", own)
while len([name for name in os.listdir(folder) if name.startswith(attempt) and name.endswith("json")]) < int(world):
    time.sleep(0.05)
sys.exit(attempt == "0" and rank == "1")
"""
OF_AN_ATTEMPT = {
    "MASTER_PORT", "SM_MASTER_PORT", "SM_TRAINING_ENV", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE",
    "MUSTER_ATTEMPT", "MUSTER_SOCKET_TOKEN", "MUSTER_OUTER", "MUSTER_PLANNED",
}  # fmt: skip
"""Variables that needn't be the same: where ranks meet, the attempt's number, and our own."""


def check_alike(folder: Path, ranks: int, launchers: frozenset[str]) -> None:
    """Each rank saw the same in both attempts, but for ``launchers``: variables that only the launcher itself reads."""
    for rank in range(ranks):
        first, second = (json.loads((folder / f"{attempt}-{rank}.json").read_text()) for attempt in (0, 1))
        before, after = first.pop("environ"), second.pop("environ")
        differ = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert not differ - OF_AN_ATTEMPT - launchers, [(name, before.get(name), after.get(name)) for name in differ]
        assert first == second
