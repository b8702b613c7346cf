"""Has a rank write the stacks of its threads into a memory file when it is asked by a certain signal.

The program that looks at ranks that stand still (``stack_sampler``) asks, where it has no py-spy. ``faulthandler``
answers also while the main thread waits inside a C library.

The signal goes to a thread of ours, which does nothing else: it would end a ``sleep`` or ``poll`` of C code in the
thread that gets it, which goes on as if its time were over.

The same thread can be asked, by a byte in its pipe, to have the main thread note when it runs Python again. So who
looks knows whether the main thread was in one and the same call all the time. No signal is sent for that.
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
RETURNED = 62
"""The signal whose handler the main thread runs when it is back in Python; it is never sent."""
RETURNS = "muster-returns"
"""The second memory file is called this, a dash, and the number of the descriptor to write to. It has the number of the
last question, and that of the last one that the main thread has answered.
"""
NUMBER = 8
"""Bytes of each of the two."""


def wait(asked: int, returns: int, ready: _thread.LockType) -> None:
    """The thread: other signals are left to the main thread, whose calls they are meant to interrupt."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {SIGNAL})
    answers = os.memfd_create(f"{FILE}-{_thread.get_native_id()}")
    faulthandler.register(SIGNAL, file=answers, all_threads=True)
    ready.release()
    question = 0
    while os.read(asked, 1):
        question += 1
        os.pwrite(returns, question.to_bytes(NUMBER, "big"), 0)
        _thread.interrupt_main(RETURNED)  # type: ignore[arg-type]  # any signal's number


def serve() -> None:
    """Starts the thread."""
    asked, ask = os.pipe()
    returns = os.memfd_create(f"{RETURNS}-{ask}")

    def returned(_signo: int, _frame: object) -> None:
        os.pwrite(returns, os.pread(returns, NUMBER, 0), NUMBER)

    signal.signal(RETURNED, returned)
    ready = _thread.allocate_lock()
    ready.acquire()
    _thread.start_new_thread(wait, (asked, returns, ready))
    ready.acquire()


if hasattr(os, "memfd_create") and hasattr(faulthandler, "register"):
    try:
        serve()
    except (OSError, RuntimeError, ValueError):
        pass  # no descriptors or threads left, or another thread is the first one: the program comes first
