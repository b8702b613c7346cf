"""All cells of the matrix, those that make no sense with the reason, and the part that runs with all tests."""

from __future__ import annotations

import random

from .fault import Cell, Fault
from .harmless import HARMLESS
from .in_collective import IN_COLLECTIVE
from .in_rank import IN_RANK
from .launchers import BY_NAME, IN_DOCKER, LAUNCHERS, Launcher
from .of_hosts import OF_HOSTS
from .of_stops import OF_STOPS

FAULTS = (*HARMLESS, *IN_RANK, *OF_STOPS, *IN_COLLECTIVE, *OF_HOSTS)
NAMES = {fault.name: fault for fault in FAULTS}


def excluded(fault: Fault, launcher: Launcher) -> str:
    """Why there is no such cell; empty: there is one."""
    if fault.collective and not launcher.collective:
        return "its ranks have no collective"
    return fault.without.get(launcher.name, "")


CELLS = tuple(Cell(fault, launcher) for fault in FAULTS for launcher in LAUNCHERS if not excluded(fault, launcher))
DOCKER = {
    "docker-ranks": ("raises", "memory", "restarted", "stop", "stop-one", "power-leader", "power-worker", "frozen",
                     "frozen-first", "frozen-worker", "frozen-leader"),
    "docker-torchrun": ("raises-waited", "slow-raises", "power-worker", "cut-timeout", "cut-mended", "frozen"),
    "docker-mpi": ("raises-waited", "killed-waited", "stop-one", "frozen-first"),
}  # fmt: skip
"""What happens to containers, by launcher: what Docker itself does to them, and ranks that fail on a real bridge."""
DOCKER_CELLS = tuple(Cell(NAMES[name], BY_NAME[launcher]) for launcher, names in DOCKER.items() for name in names)
BACKENDS = {"netns": CELLS, "docker": DOCKER_CELLS, "all": (*CELLS, *DOCKER_CELLS)}

QUICK = 2.0
"""Seconds that a launcher may take to start ranks if any fault of the cut may run under it."""
SLOW_CELLS = 2
"""How many cells of the cut every other launcher has."""
SEED = 87
ALWAYS = {
    "exits": "deepspeed", "killed-waited": "ranks", "power-leader": "torchrun", "raises": "torchrun",
    "raises-waited": "tensorflow", "restarted": "c10d", "slow-exits": "own", "stop": "torchrun",
}  # fmt: skip
"""Cells of every cut: of a launcher that could end otherwise there, each has done so before."""


def cut(seed: int) -> list[Cell]:
    """A part of the matrix in which every fault and every launcher is: which with which, ``seed`` says."""
    chooser = random.Random(seed)
    short = [cell for cell in CELLS if cell.fault.in_cut]
    chosen: list[Cell] = []
    for fault in dict.fromkeys(cell.fault.name for cell in short):
        of_fault = [cell for cell in short if cell.fault.name == fault]
        always = [cell for cell in of_fault if cell.launcher.name == ALWAYS.get(fault)]
        chosen.append(chooser.choice(always or [cell for cell in of_fault if cell.launcher.idle < QUICK] or of_fault))
    for launcher in LAUNCHERS:
        here = [cell for cell in chosen if cell.launcher.name == launcher.name]
        left = [cell for cell in short if cell not in here and cell.fault.wait < QUICK]
        others = [cell for cell in left if cell.launcher.name == launcher.name]
        chosen += chooser.sample(others, max(0, (1 if launcher.idle < QUICK else SLOW_CELLS) - len(here)))
    return chosen


def cells(faults: list[str], launchers: list[str], backend: str = "netns") -> list[Cell]:
    """The cells of these faults and launchers; an empty list: of all that ``backend`` has.

    Raises:
        KeyError: there is no fault or launcher of that name.
    """
    rows = {NAMES[name].name for name in faults} or NAMES.keys()
    columns = {BY_NAME[name].name for name in launchers} or BY_NAME.keys()
    there = BACKENDS["all" if launchers else backend]
    return [cell for cell in there if cell.fault.name in rows and cell.launcher.name in columns]


def on_leader(chosen: list[Cell]) -> list[Cell]:
    """Those of the cells in which a rank fails by itself, with a rank of the leader's."""
    faults = {fault.name for fault in (*HARMLESS, *IN_RANK, *IN_COLLECTIVE) if fault.act is None}
    return [
        Cell(cell.fault._replace(victim="algo-1"), cell.launcher) for cell in chosen if cell.fault.name in faults
    ]  # fmt: skip


def listing() -> str:
    """Every row and column, and the cells that make no sense."""
    lines = [f"{len(CELLS)} cells, and {len(DOCKER_CELLS)} in containers", "", "faults:"]
    lines += [f"  {fault.name:15} {fault.about}" for fault in FAULTS]
    lines += ["", "launchers:", *(f"  {launcher.name:15} {launcher.about}" for launcher in LAUNCHERS)]
    lines += ["", "in containers (--backend docker):"]
    lines += [f"  {launcher.name:15} {launcher.about}: {', '.join(DOCKER[launcher.name])}" for launcher in IN_DOCKER]
    lines += ["", "no cells:"]
    for fault in FAULTS:
        for launcher in LAUNCHERS:
            if why := excluded(fault, launcher):
                lines.append(f"  {fault.name}, {launcher.name}: {why}")
    return "\n".join(lines)
