"""The reports of how a job ended: failure file, outcome.json, timeline. Never raises."""
