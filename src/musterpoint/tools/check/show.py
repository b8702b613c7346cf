"""The findings for people, as a table, and for programs, as JSON."""

from __future__ import annotations

from typing import Any, Iterable, Sequence, TextIO

from musterpoint.base.untrusted import escaped
from musterpoint.tools.check.findings import CODES, SEVERITIES, Finding, worst
from musterpoint.tools.check.steps import Checked

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}
_HEAD = ("", "code", "host", "found", "expected")


def to_document(checked: Checked) -> dict[str, Any]:
    """The JSON object: ``severity`` (the worst), ``hosts``, ``findings``."""
    return {
        "severity": worst(checked.findings),
        "hosts": list(checked.hosts),
        "findings": [each._asdict() for each in checked.findings],
    }


def show(checked: Checked, out: TextIO) -> None:
    """Writes the table and one sentence; with colours where ``out`` is a terminal and rich is installed."""
    checked = checked._replace(findings=escaped(checked.findings, lines=True))
    rows = _rows(checked.findings)
    todo = [
        f"{each.code}{f' on {each.host}' if each.host else ''}: {each.advice}"
        for each in checked.findings
        if each.severity != "ok"
    ]
    if not _show_rich(rows, out):
        out.write(_plain(rows))
    for line in dict.fromkeys(todo):
        out.write(f"  {line}\n")
    out.write(summary(checked) + "\n")
    out.flush()


def _rows(findings: Sequence[Finding]) -> list[tuple[str, ...]]:
    """A row for each finding; one for all hosts of which the same fine thing is said."""
    hosts: dict[Finding, list[str]] = {}
    for each in findings:
        key = each._replace(host="") if each.severity == "ok" and each.host else each
        hosts.setdefault(key, []).append(each.host or "all")
    return [
        (each.severity, each.code, its[0] if len(its) == 1 else f"{len(its)} hosts", each.found, each.expected)
        for each, its in hosts.items()
    ]


def summary(checked: Checked) -> str:
    """How many findings of each severity, on how many hosts."""
    counts = [(sum(each.severity == severity for each in checked.findings), severity) for severity in SEVERITIES[::-1]]
    hosts = len(checked.hosts)
    said = ", ".join(f"{count} {severity}" for count, severity in counts if count)
    return f"{hosts} host{'s' if hosts != 1 else ''}: {said}"


def _plain(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as needed; the last two follow one another."""
    shown = [_HEAD, *rows]
    wide = [max(len(row[at]) for row in shown) for at in range(3)]
    lines = []
    for row in shown:
        head = "  ".join(row[at].ljust(wide[at]) for at in range(3))
        found, *more = row[3].splitlines() or [""]
        lines.append(f"{head}  {found}{f'; expected {row[4]}' if row[4] and row is not _HEAD else ''}".rstrip())
        lines += [" " * (sum(wide) + 6) + line for line in more]
    return "\n".join(lines) + "\n"


def _show_rich(rows: Iterable[tuple[str, ...]], out: TextIO) -> bool:
    if not out.isatty():
        return False
    try:
        from rich import console, table, text
    except ImportError:
        return False
    rows_of = table.Table(*_HEAD, box=None, pad_edge=False)
    for row in rows:
        rows_of.add_row(text.Text(row[0], _COLOURS[row[0]]), *map(text.Text, row[1:]))
    console.Console(file=out).print(rows_of)
    return True


def codes_table() -> str:
    """Every code as a Markdown table, for the documentation."""
    rows = ["| code | severity | what it means | what to do |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | {', '.join(code.severities)} | {code.meaning} | {code.advice} |" for name, code in CODES.items()
    ]
    return "\n".join(rows)


def codes_list() -> str:
    """Every code for a terminal."""
    wide = max(map(len, CODES))
    return "".join(f"{name:{wide}}  {'|'.join(code.severities):9}  {code.meaning}\n" for name, code in CODES.items())
