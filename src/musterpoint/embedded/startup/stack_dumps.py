"""Has a rank write the stacks of its threads into a memory file when it is asked by a certain signal.

The program that looks at ranks that stand still (``stack_sampler``) asks, where it has no py-spy. ``faulthandler``
answers also while the main thread waits inside a C library.

The signal goes to a thread of ours, which does nothing else: it would end a ``sleep`` or ``poll`` of C code in the
thread that gets it, which goes on as if its time were over.
"""

from __future__ import annotations

import _thread
import faulthandler
import os
import signal

SIGNAL = 61
"""A real-time signal that neither users' programs nor the C library use."""
FILE = "muster-stacks"
"""The memory file is called this, a dash, and the number of our thread; found among the process's descriptors."""


def wait(never: int, ready: _thread.LockType) -> None:
    """The thread: other signals are left to the main thread, whose calls they are meant to interrupt."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {SIGNAL})
    answers = os.memfd_create(f"{FILE}-{_thread.get_native_id()}")
    faulthandler.register(SIGNAL, file=answers, all_threads=True)
    ready.release()
    while os.read(never, 1):  # a pipe into which nobody writes
        pass


def serve() -> None:
    """Starts the thread."""
    never, _kept = os.pipe()
    ready = _thread.allocate_lock()
    ready.acquire()
    _thread.start_new_thread(wait, (never, ready))
    ready.acquire()


if hasattr(os, "memfd_create") and hasattr(faulthandler, "register"):
    try:
        serve()
    except (OSError, RuntimeError):
        pass  # no descriptors or threads left: the program comes first
