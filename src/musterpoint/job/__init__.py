"""What the platform says, read into one frozen :class:`~musterpoint.job.model.Job`."""
