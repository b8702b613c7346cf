"""Turns the end of a process, and its last words, into a :class:`Failure`. Pure; other rooms import only this module.

The steps stand in one order: the error lines in a tail (``traceback``, ``last_words``), the one that ended the program
(``program_output``), cause or symptom, wrapper or quotation (``causes``), then class, retry and words
(``program_failures``). They are imported when something has failed.
"""

from musterpoint.base.failure import Failure
from musterpoint.core.diagnosis.evidence import DiagnosisContext, Evidence, JobFacts, ProcessEnd
from musterpoint.core.diagnosis.script_end import ProgramEnd, ScriptEnd

__all__ = ["DiagnosisContext", "Evidence", "JobFacts", "ProcessEnd", "ProgramEnd", "ScriptEnd", "diagnose"]


def diagnose(left: Evidence | ProcessEnd, context: DiagnosisContext) -> Failure | None:
    """The failure of a rank by its evidence, or of a service or a launcher that ended before its ranks did; None:
    nothing failed, as far as the rank is seen.
    """
    from musterpoint.core.diagnosis import program_failures  # 15 ms, for what failed

    if isinstance(left, ProcessEnd):
        return program_failures.failure_of_service_or_launcher(left, context)
    return program_failures.failure_by(left, context)
