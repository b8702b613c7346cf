"""What a forked process of a job runs, by the job's kind."""

from __future__ import annotations

import sys
import traceback
from typing import Mapping

from musterpoint.serve import notices
from musterpoint.serve.job_keys import PROCESSING, TRAINING, split_key
from musterpoint.serve.job_process import INTERNAL_ERROR, JobProcess
from musterpoint.serve.processing_process import ProcessingProcess
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import State
from musterpoint.serve.training_process import TrainingProcess
from musterpoint.serve.transitions import entered

_KINDS: Mapping[str, type[JobProcess]] = {TRAINING: TrainingProcess, PROCESSING: ProcessingProcess}


def main(settings: Settings, key: str) -> None:
    """Runs the job; an error of ours is the job's end, and stands in its log whole."""
    kind, name = split_key(key)
    try:
        _KINDS[kind](settings, key).main()
    except BaseException as error:
        traceback.print_exc()
        reason = f"{INTERNAL_ERROR} ({type(error).__name__}: {error})"
        State(settings.data).change(kind, name, lambda record: entered(record, "Failed", FailureReason=reason))
        notices.send(settings.data, key)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
