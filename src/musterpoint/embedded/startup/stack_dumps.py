"""Has a rank write the stacks of its threads into a memory file when it is asked.

The program that looks at ranks that stand still (``stack_sampler``) asks, where it has no py-spy. A thread of ours
gets the question through a pipe and reads the stacks as any Python code does. While C code keeps Python's lock it
can't; then the program asks by a signal, and ``faulthandler`` answers without the lock: no other thread runs Python
meanwhile, so no stack changes while it is read.

The signal goes to that thread of ours: it would end a ``sleep`` or ``poll`` of C code in the thread that gets it, which
goes on as if its time were over.

The thread can also be asked to have the main thread note when it runs Python again. So who looks knows whether the main
thread was in one and the same call all the time. No signal is sent for that.
"""

from __future__ import annotations

import _thread
import faulthandler
import os
import signal
import sys

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
STACKS = b"s"
"""The byte in the pipe that asks for the stacks."""
RAISED = b"e"
"""The byte that asks for an exception that the main thread has raised; any other one asks whether that runs Python."""
ANSWER, ANSWER_END = "Stacks, read by a thread of the process\n", "End of the stacks\n"
"""Its first and last line: so who asked tells a whole answer from a part, and from what the signal had written."""
WORLD, WORLD_IN = "world_size", "torch/distributed/"
"""A variable of torch's functions that make a group, and their place; it is told, too."""
MOST_FRAMES = 200
MAIN = _thread.get_ident()
MOST_ANSWERS = 1 << 20
"""Bytes of answers that are kept: a rank may be looked at for weeks."""


def wait(asked: int, returns: int, ready: _thread.LockType) -> None:
    """The thread: other signals are left to the main thread, whose calls they are meant to interrupt."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {SIGNAL})
    answers = os.memfd_create(f"{FILE}-{_thread.get_native_id()}")
    faulthandler.register(SIGNAL, file=answers, all_threads=True)
    ready.release()
    question = 0
    while byte := os.read(asked, 1):
        if byte == STACKS:
            if os.fstat(answers).st_size > MOST_ANSWERS:
                os.ftruncate(answers, 0)
                os.lseek(answers, 0, os.SEEK_SET)
            os.write(answers, f"{ANSWER}{stacks()}{ANSWER_END}".encode("utf-8", "replace"))
            continue
        if byte == RAISED:
            tell_of_raised()
            continue
        question += 1
        os.pwrite(returns, question.to_bytes(NUMBER, "big"), 0)
        _thread.interrupt_main(RETURNED)  # type: ignore[arg-type]  # any signal's number


def stacks() -> str:
    """The stacks of all threads, the main one's first, innermost first, in the words of ``faulthandler``."""
    lines = []
    for thread, innermost in sorted(sys._current_frames().items(), key=lambda each: each[0] != MAIN):
        lines.append(f"Thread 0x{thread:016x} (most recent call first):\n")
        frame, left = innermost, MOST_FRAMES
        while frame is not None and left:
            code = frame.f_code
            lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}\n')
            size = frame.f_locals.get(WORLD) if WORLD_IN in code.co_filename else None
            if type(size) is int and size > 0:
                lines.append(f"  {WORLD} {size}\n")
            frame, left = frame.f_back, left - 1  # type: ignore[assignment]
    return "".join(lines)


def tell_of_raised() -> None:
    """Tells the supervisor of an exception that the main thread handles, which may be on its way out of the program."""
    found: object = sys._current_exceptions().get(MAIN)
    error = found[1] if isinstance(found, tuple) else found  # the tuple until Python 3.11
    here = os.path.dirname(os.path.abspath(__file__))
    task = sys.modules.get(f"startup of {here}/path: exceptions")  # as the start-up calls it
    if isinstance(error, Exception) and task is not None:
        try:
            task.tell(error)
        except Exception:
            pass  # who asked doesn't wait for it


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
