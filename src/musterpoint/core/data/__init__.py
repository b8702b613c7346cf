"""Data in, results out: channels brought to a directory, directories sent to a store, whole checkpoints kept there.

Plain functions and values, which know nothing of launchers, platforms or hosts' channels. The transfers are done by a
program of ours (:mod:`musterpoint.embedded.programs.mover`) in a Python that has the store's library.
"""
