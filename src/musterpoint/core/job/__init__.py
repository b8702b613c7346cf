"""Reads the platform's files and variables into one frozen :class:`~musterpoint.core.job.model.Job`."""
