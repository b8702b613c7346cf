"""Mechanism: a process plan in; a child, its bytes on our stdout and its end as an event out. Decides nothing."""
