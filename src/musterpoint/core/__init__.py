"""The entry point: one job on this host. :mod:`musterpoint.core.entrypoint` is what to read first."""
