"""Notes what a rank sends to a TrainJob's status server, beside the file that MUSTER_PROGRESS names.

The server takes each request in place of all before it, and can't be asked for them: the report of a failure would take
the program's progress away. Noted are transformers' ``KubeflowCallback`` and Kubeflow's ``update_trainjob_status``.
"""

from __future__ import annotations

import functools
import json
import os
from typing import Any, Callable

TRANSFORMERS = "transformers.integrations.integration_utils"
KUBEFLOW = "kubeflow.trainer.backends.kubernetes.utils"
FILE = "MUSTER_PROGRESS"
SENT = ".sent"


def note(percent: Any = None, remaining: Any = None, metrics: Any = None) -> None:
    """Writes what was sent; whatever can't be written stays unknown."""
    try:
        whole = {"progressPercentage": percent, "estimatedRemainingSeconds": remaining}
        status: dict[str, Any] = {name: max(0, int(value)) for name, value in whole.items() if value is not None}
        if metrics:
            status["metrics"] = {str(name): str(value) for name, value in metrics.items()}
        file = os.environ[FILE] + SENT
        own = f"{file}.{os.getpid()}"
        with open(own, "w", encoding="utf-8") as opened:
            json.dump(status, opened)
        os.replace(own, file)
    except Exception:  # the program's training is worth more
        pass


def of_transformers(module: Any) -> None:
    """Notes what its callback reports, which throttles by itself: the newest is noted, sent or not."""
    callback = getattr(module, "KubeflowCallback", None)
    update = getattr(callback, "_update_status", None)
    if update is None:
        return

    @functools.wraps(update)
    def noting(
        self: Any,
        progress_percent: Any = None,
        estimated_time_remaining: Any = None,
        metrics: Any = None,
        *rest: Any,
        **options: Any,
    ) -> Any:
        note(progress_percent, estimated_time_remaining, metrics)
        return update(self, progress_percent, estimated_time_remaining, metrics, *rest, **options)

    callback._update_status = noting  # type: ignore[union-attr]


def of_kubeflow(module: Any) -> None:
    """Notes what Kubeflow's function reports."""
    update = getattr(module, "update_trainjob_status", None)
    if update is None:
        return

    @functools.wraps(update)
    def noting(
        progress_percent: Any = None,
        estimated_remaining_seconds: Any = None,
        metrics: Any = None,
        *rest: Any,
        **options: Any,
    ) -> Any:
        note(progress_percent, estimated_remaining_seconds, metrics)
        return update(progress_percent, estimated_remaining_seconds, metrics, *rest, **options)

    module.update_trainjob_status = noting


CHANGED: dict[str, Callable[[Any], None]] = {TRANSFORMERS: of_transformers, KUBEFLOW: of_kubeflow}
"""Modules, and what is done when one has been imported."""
