"""Has a rank write the stacks of its threads into a memory file when it gets a certain signal.

The program that looks at ranks that stand still (``stack_sampler``) sends it, where it has no py-spy. ``faulthandler``
answers also while the main thread waits inside a C library.
"""

from __future__ import annotations

import faulthandler
import os

SIGNAL = 61
"""A real-time signal that neither users' programs nor the C library use."""
FILE = "muster-stacks"
"""The name of the memory file, by which it is found among the process's descriptors."""

if hasattr(os, "memfd_create") and hasattr(faulthandler, "register"):
    faulthandler.register(SIGNAL, file=os.memfd_create(FILE), all_threads=True)
