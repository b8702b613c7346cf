"""The matrix as tables of docs/endings.md: from the rows and columns, and from what runs of scripts/faults measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from .fault import Cell, Fault
from .launchers import BY_NAME, IN_DOCKER, LAUNCHERS
from .rows import DOCKER, FAULTS, NAMES, excluded

MEASURED = Path(__file__).resolve().parent / "measured.json"
"""Per fault: ``code`` and ``lead`` of a job under its :func:`example`, and the ``seconds`` to its end by launcher."""
RUNS = MEASURED.with_name("runs.json")
"""The latest runs of which the documentation tells, one :class:`Run` each."""
KEPT = 6
WIDEST = 90
"""Characters of a reason's first line."""


class Run(NamedTuple):
    """A run of scripts/faults.

    ``date``: its day. ``tree``: git's name of the directory ``src`` that ran. ``cells``, ``rounds``: how many, how
    often.
    ``jobs``: cells at a time. ``load``, ``most``: processes that wanted to run, on average and at most.
    ``processors``: that they shared. ``minutes``: all rounds. ``wrong``: cells that were not as they must be.
    """

    date: str
    tree: str
    cells: int
    rounds: int
    jobs: int
    load: int
    most: int
    processors: int
    minutes: int
    wrong: tuple[str, ...]


def runs() -> list[Run]:
    found = json.loads(RUNS.read_text(encoding="utf-8")) if RUNS.exists() else []
    return [Run(**{**each, "wrong": tuple(each["wrong"])}) for each in found]


def note_run(run: Run) -> None:
    text = json.dumps([each._asdict() for each in [*runs(), run][-KEPT:]], indent=1)
    RUNS.write_text(text + "\n", encoding="utf-8")


def measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
    return found


def seconds(cell: Cell) -> float:
    """From the fault to the end when the cell was last measured; 0: never yet."""
    return float(measured().get(cell.fault.name, {"seconds": {}})["seconds"].get(cell.launcher.name, 0))


def example(fault: Fault) -> str:
    """The launcher whose code and words stand in the table."""
    names = [launcher.name for launcher in LAUNCHERS if not excluded(fault, launcher)]
    return "ranks" if "ranks" in names else names[0]


def note(cells: list[tuple[str, str, int, str, float]]) -> None:
    """Keeps what came of cells: fault, launcher, code, first line of the reason, seconds from the fault to the end."""
    found = measured()
    for fault, launcher, code, lead, seconds in cells:
        row = found.setdefault(fault, {"seconds": {}})
        row["seconds"][launcher] = round(seconds, 1)
        if launcher == example(NAMES[fault]):
            row.update(code=code, lead=lead if len(lead) <= WIDEST else lead[: WIDEST - 1] + "…")
    order = [fault.name for fault in FAULTS if fault.name in found]
    columns = list(BY_NAME)
    for name in order:
        seconds = found[name]["seconds"]
        found[name]["seconds"] = {column: seconds[column] for column in columns if column in seconds}
    text = json.dumps({name: found[name] for name in order}, indent=1, ensure_ascii=False)
    MEASURED.write_text(text + "\n", encoding="utf-8")


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def table_of_faults() -> str:
    """What each fault is, and how a job ends that it strikes."""
    rows = ["| `--faults` | what happens | code | the reason begins with |", "|---|---|---|---|"]
    for fault in FAULTS:
        row = measured().get(fault.name, {})
        lead = f"`{escaped(row['lead'])}`" if row.get("lead") else ""
        rows.append(f"| `{fault.name}` | {escaped(fault.about)} | {row.get('code', '')} | {lead} |")
    return "\n".join(rows)


SHOWN_FIRST = "raises-waited killed-waited memory segfault echo hangs supervisor-worker cut absent launcher stop-one"
"""The faults of the site's first page."""


def table_of_culprits() -> str:
    """What a job says of some faults, for those who have never seen it."""
    named = {fault.name: fault for fault in FAULTS}
    rows = ["| what happens | what every host then says |", "|---|---|"]
    for name in SHOWN_FIRST.split():
        rows.append(f"| {escaped(named[name].about)} | `{escaped(measured()[name]['lead'])}` |")
    return "\n".join(rows)


def table_of_launchers() -> str:
    rows = ["| `--launchers` | what starts the ranks | hosts × ranks |", "|---|---|---|"]
    rows += [f"| `{one.name}` | {one.about} | {one.hosts} × {one.slots} |" for one in LAUNCHERS]
    return "\n".join(rows)


def table_of_seconds() -> str:
    """Seconds from the fault to the end of the last host, for every cell."""
    names = [launcher.name for launcher in LAUNCHERS]
    rows = ["| | " + " | ".join(f"`{name}`" for name in names) + " |", "|---|" + "---:|" * len(names)]
    for fault in FAULTS:
        seconds = measured().get(fault.name, {}).get("seconds", {})
        cells = ["–" if excluded(fault, launcher) else str(seconds.get(launcher.name, "")) for launcher in LAUNCHERS]
        rows.append(f"| `{fault.name}` | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def table_of_containers() -> str:
    """The same for jobs of containers; what Docker does to them is in the place of the namespaces'."""
    rows = ["| | " + " | ".join(f"`{one.name}`" for one in IN_DOCKER) + " |", "|---|" + "---:|" * len(IN_DOCKER)]
    for fault in FAULTS:
        if any(fault.name in names for names in DOCKER.values()):
            seconds = measured().get(fault.name, {}).get("seconds", {})
            rows.append(f"| `{fault.name}` | " + " | ".join(str(seconds.get(one.name, "")) for one in IN_DOCKER) + " |")
    return "\n".join(rows)


def table_of_runs() -> str:
    columns = ("day", "`git rev-parse HEAD:src`", "cells × rounds", "at a time", "wanted to run: mean, most", "minutes")
    rows = [f"| {' | '.join(columns)} | wrong |", "|---|---|---:|---:|---:|---:|---|"]
    for run in runs():
        counts = f"{run.cells} × {run.rounds} | {run.jobs} | {run.load}, {run.most} on {run.processors} processors"
        rows.append(f"| {run.date} | `{run.tree}` | {counts} | {run.minutes} | {', '.join(run.wrong) or 'none'} |")
    return "\n".join(rows)


def table_of_gaps() -> str:
    """The cells that make no sense, by their reasons."""
    rows = ["| there is no | under | because |", "|---|---|---|"]
    for fault in FAULTS:
        reasons: dict[str, list[str]] = {}
        for launcher in LAUNCHERS:
            if why := excluded(fault, launcher):
                reasons.setdefault(why, []).append(f"`{launcher.name}`")
        rows += [f"| `{fault.name}` | {', '.join(under)} | {escaped(why)} |" for why, under in reasons.items()]
    return "\n".join(rows)


def table_of_leftovers() -> str:
    rows = ["| under | may stay | which is |", "|---|---|---|"]
    rows += [f"| `{one.name}` | `{escaped(one.leaves)}` | {one.why} |" for one in LAUNCHERS if one.leaves]
    killed = "processes, if the entry point is not PID 1 and is killed by SIGKILL"
    rows += [f"| `{one.name}` | {killed} | left because {one.outlives} |" for one in LAUNCHERS if one.outlives]
    return "\n".join(rows)
