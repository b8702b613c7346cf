"""Turns the end of a process, and its last words, into a :class:`Failure`. Pure; other rooms import only this module.

The steps stand in one order: the error lines in a tail (``traceback``, ``last_words``), the one that ended the program
(``program_output``), cause or symptom, wrapper or quotation (``culprit``), then class, retry and words
(``program_failures``). They are imported when something has failed.
"""

from musterpoint.base.failure import Failure
from musterpoint.core.diagnosis.facts import DiagnosisContext, Evidence, JobFacts, ProcessEnd

__all__ = ["DiagnosisContext", "Evidence", "JobFacts", "ProcessEnd", "diagnose", "diagnose_process"]


def diagnose(evidence: Evidence, context: DiagnosisContext) -> Failure | None:
    """The failure of a rank that left this ``evidence``; None: nothing failed, as far as it is seen."""
    from musterpoint.core.diagnosis.program_failures import failure_by  # 15 ms, for what failed

    return failure_by(evidence, context)


def diagnose_process(end: ProcessEnd, context: DiagnosisContext) -> Failure:
    """The failure of a service or a launcher that ended before its ranks did."""
    from musterpoint.core.diagnosis.program_failures import failure_of_service_or_launcher  # 15 ms, for what failed

    return failure_of_service_or_launcher(end, context)
