"""Where an AzureML job puts what it leaves: ``AZURE_ML_OUTPUT_*``, and the directory ``outputs`` that is uploaded.

Sources: Microsoft, "Access data in a job" (outputs are in ``AZURE_ML_OUTPUT_<name>``) and "Submit a training job"
(files in ``./outputs`` are uploaded to the run).
"""

import os
import re
from typing import Mapping

from musterpoint.core.job.model import Note, Paths

PREFIX = "AZURE_ML_OUTPUT_"
_MODEL = ("model", "trained_model", "output_model", "finetuned_model")
_CHECKPOINTS = ("checkpoint", "checkpoints")
_DATA = ("output", "outputs", "output_data", "data", "results")
_LITERAL = re.compile(r"\$\{\{\s*(inputs|outputs)\.([A-Za-z0-9_.]+)\s*\}\}")


def outputs_of(environ: Mapping[str, str], cwd: str, node: int) -> tuple[Paths, tuple[Note, ...]]:
    """The job's directories: its named outputs, and ``outputs/musterpoint/node-N`` for reports."""
    outputs = {
        name[len(PREFIX) :]: value
        for name, value in sorted(environ.items())
        if name.startswith(PREFIX) and value.startswith("/")
    }
    chosen = {
        "model": _choose(outputs, _MODEL),
        "checkpoints": _choose(outputs, _CHECKPOINTS),
        "output_data": _choose(outputs, _DATA),
    }
    if not any(chosen.values()) and len(outputs) == 1:
        chosen["model"] = next(iter(outputs))
    paths = Paths(
        model=outputs.get(chosen["model"], ""),
        output_data=outputs.get(chosen["output_data"], ""),
        checkpoints=outputs.get(chosen["checkpoints"], ""),
    )
    paths = of_node(paths._replace(output=os.path.join(cwd, "outputs", "musterpoint", f"node-{node}")), node)
    used = [f"{use.replace('_', ' ')} in {PREFIX}{name}" for use, name in chosen.items() if name]
    return paths, (Note("info", f"AzureML's outputs: {', '.join(used)}"),) if used else ()


def of_node(paths: Paths, node: int) -> Paths:
    """``paths`` with the reports' directory of the host at place ``node``."""
    report = os.path.join(os.path.dirname(paths.output), f"node-{node}")
    return paths._replace(output=report, failure=os.path.join(report, "failure"))


def _choose(outputs: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The output with one of these names, else one that begins with the first of them; empty: none."""
    by_name = {name.lower(): name for name in outputs}
    exact = next((by_name[name] for name in names if name in by_name), "")
    return exact or next((by_name[name] for name in sorted(by_name) if name.startswith(names[0])), "")


def unexpanded(environ: Mapping[str, str]) -> tuple[Note, ...]:
    """Warnings about ``${{outputs.x}}`` in variables: AzureML replaces it only in a job's command."""
    notes = []
    for variable, value in sorted(environ.items()):
        found = _LITERAL.search(value) if "${{" in value else None
        if found:
            kind, name = found.groups()
            read = f"AZURE_ML_{kind.removesuffix('s').upper()}_{name}"
            path = f", which is {environ[read]}" if environ.get(read) else ""
            notes.append(
                Note(
                    "warning",
                    f"the variable {variable} holds {found.group()} as it was written: AzureML puts paths into a job's "
                    f"command only, not into its environment_variables; read {read}{path}, or pass it in the command",
                )
            )
    return tuple(notes)
