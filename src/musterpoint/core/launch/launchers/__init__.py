"""A file for each launcher: what it needs, reads, starts and hides, as one object, ``LAUNCHER``.

:mod:`musterpoint.core.launch.table` finds it by its name.
"""
