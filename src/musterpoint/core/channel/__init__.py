"""The connections between the hosts of a job: messages, and sessions that survive a broken connection."""
