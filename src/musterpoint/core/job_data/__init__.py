"""The data of a job: its channels and its checkpoint before the ranks, its checkpoints beside them, its outputs after.

What carries the data is :mod:`musterpoint.core.data`.
"""
