"""The truth about how a job ended: root cause, exit code, failure file, timeline. Never raises."""
