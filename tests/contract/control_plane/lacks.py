"""What each backend is known to lack: the contract's tests that fail against it, and what it does instead."""

from __future__ import annotations

LACKS: dict[str, dict[str, str]] = {
    "moto": {
        "test_statuses_follow_each_other_in_time": "all statuses have one time, and there is no Downloading",
        "test_what_the_program_prints_is_in_the_log_stream_of_its_host": "a job writes no log",
        "test_what_hosts_leave_is_the_model_in_s3": "a job leaves no model",
        "test_metrics_are_those_that_were_printed": "metrics are made up",
        "test_a_name_can_be_used_once": "a second job takes the place of the first",
        "test_a_job_that_fails_says_why": "no job fails",
        "test_a_job_can_be_stopped": "a job is over when it is made, and can't be stopped",
        "test_a_job_has_its_time": "a job is over when it is made",
        "test_lists_have_filters_and_pages": "lists aren't sorted by name",
        "test_values_that_the_api_refuses": "values aren't checked",
        "test_input_that_is_not_there_is_refused": "input isn't looked at",
        "test_a_processing_job_leaves_its_outputs_in_s3": "a processing job leaves nothing",
        "test_a_processing_job_that_fails_says_its_code": "no job fails",
        "test_a_call_without_a_signature_is_refused": "signatures aren't looked at",
    }
}
