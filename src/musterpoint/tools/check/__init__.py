"""Preflight: this host and all hosts of the job, looked at before ranks start; findings say what is wrong and where."""
