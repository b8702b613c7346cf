"""The tables of docs/culprits.md and of the README, from verdicts that are kept beside this file."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.culprit_record import FORMAT, Record, refuse
from benchmarks.culprits import rows
from benchmarks.peers import PEERS, Peer
from benchmarks.verdicts import Row, Verdict

DATA = Path(__file__).with_name("culprits.json")
"""``tools``: their versions; ``verdicts``: by row and tool, which of rank, code and error were right."""
NAMES = {
    "musterpoint (torchrun)": "musterpoint, starting torchrun",
    "musterpoint (mpi)": "musterpoint, starting mpirun",
}

Verdicts = dict[str, dict[str, Verdict]]


def take(path: Path) -> None:
    """Keeps what ``scripts/bench --json`` wrote: a whole run's FILE, or FILE.part of one that was stopped."""
    text = path.read_text(encoding="utf-8")
    first = json.loads(text.partition("\n")[0]) if text.startswith('{"format"') else {}
    if first.get("format") == FORMAT:
        versions, found = first["versions"], of_record(path, first["versions"])
    else:
        taken = results.load(path).get("culprits")
        figures = [figure.facts for figure in taken.figures] if taken is not None else []
        if not figures:
            refuse(path, "it has no figures of culprits")
        versions = {facts["peer"]: facts["version"] for facts in figures}
        found = {row.name: {} for row in rows()}
        for facts in figures:
            for name, verdict in facts["verdicts"].items():
                found[name][facts["peer"]] = Verdict(*verdict)
    kept = {row.name: found[row.name] for row in rows() if is_whole(row, found[row.name])}
    right = {
        name: {
            tool: "".join(part[0] for part, told in verdict._asdict().items() if told) for tool, verdict in each.items()
        }
        for name, each in kept.items()
    }
    day = time.strftime("%Y-%m-%d", time.gmtime(path.stat().st_mtime))
    data = {"day": day, "cores": os.cpu_count(), "tools": versions, "verdicts": right}
    DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def of_record(path: Path, versions: Mapping[str, str]) -> Verdicts:
    record = Record(path, versions)
    return {row.name: {peer.name: pair[0] for peer in PEERS if (pair := record.verdict(row, peer))} for row in rows()}


def is_whole(row: Row, found: Mapping[str, Verdict]) -> bool:
    """Whether every tool has run it: shares are of the same rows."""
    return all(peer.name in found for peer in PEERS if row.applies_to(peer))


def data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


def verdicts() -> Verdicts:
    return {
        name: {tool: Verdict(*(part[0] in right for part in Verdict._fields)) for tool, right in each.items()}
        for name, each in data()["verdicts"].items()
    }


def share(found: list[Verdict], part: str = "") -> str:
    """In how many of all ``part`` is right, or everything."""
    count = sum(getattr(verdict, part) if part else all(verdict) for verdict in found)
    return f"{100 * count / len(found):.0f} %" if found else "–"


def of_tool(peer: str) -> list[Verdict]:
    return [each[peer] for each in verdicts().values() if peer in each]


def how_many() -> str:
    """Which rows the tables are of."""
    every, run = list(rows()), verdicts()
    reported = sum(row.name in run for row in every if row.reported)
    all_reported = sum(row.reported for row in every)
    if len(run) == len(every):
        what = f"All {len(every)} rows: {len(every) - all_reported} of the matrix, {all_reported} of reports."
    else:
        what = (
            f"**Of {len(every)} rows {len(run)} have been run so far**: {len(run) - reported} of "
            f"{len(every) - all_reported} of the matrix, {reported} of {all_reported} of reports. A hash of their "
            "names chose them, so that they are a fair sample, but shares of few rows say little."
        )
    return f"{what} Run on {data()['day']}, on {data()['cores']} cores."


def table_of_shares() -> str:
    lines = [how_many(), ""]
    lines += ["| tool | version | all three right | rank | code | error | rows |", "|---|---|---:|---:|---:|---:|---:|"]
    for peer in PEERS:
        found = of_tool(peer.name)
        parts = " | ".join(share(found, part) for part in Verdict._fields)
        version = data()["tools"][peer.name].partition("+")[0]
        lines.append(f"| {NAMES.get(peer.name, peer.name)} | {version} | **{share(found)}** | {parts} | {len(found)} |")
    return "\n".join(lines)


def table_of_rows() -> str:
    names = [peer.name.replace("musterpoint", "ours") for peer in PEERS]
    lines = ["| failure | report | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    found = verdicts()
    for row in rows():
        if row.name in found:
            cells = " | ".join(cell(row, found[row.name], peer) for peer in PEERS)
            about = row.about.replace("|", "\\|")
            lines.append(f"| `{row.name}`: {about} | {link(row.source)} | {cells} |")
    return "\n".join(lines)


def cell(row: Row, found: Mapping[str, Verdict], peer: Peer) -> str:
    if not row.applies_to(peer):
        return "–"
    missing = [part for part, told in found[peer.name]._asdict().items() if not told]
    return "right" if not missing else f"no {', '.join(missing)}"


def link(source: str) -> str:
    repository, _, number = source.partition("#")
    return f"[{source}](https://github.com/{repository}/issues/{number})" if source else ""
