"""What to do about errors whose own words don't say it; one sentence each, for the failure reason."""

from __future__ import annotations

import re

HINTS: tuple[tuple[str, str], ...] = (
    (
        r"Attempt to convert a value \(PerReplica:",
        "Keras 3's fit does not work with MultiWorkerMirroredStrategy; install tf-keras (pip install --no-deps "
        "tf-keras) and set TF_USE_LEGACY_KERAS=1, or write the training loop yourself",
    ),
    (
        r"module 'tensorflow[\w.]*' has no attribute 'estimator'|No module named 'tensorflow[\w.]*\.estimator",
        "TensorFlow 2.16 and later have no tf.estimator; use an earlier one",
    ),
    (
        r"_temp\S*; No such file or directory[\s\S]*/job:ps/",
        "each parameter server writes its own part of a checkpoint; save where all hosts share a disk, or copy the "
        "variables to the chief first",
    ),
)
"""A pattern of the error's text, and the hint."""
ENDINGS: tuple[tuple[str, str], ...] = (
    (
        # with faulthandler's dump: the thread shown last is the main one, and has nothing left to run
        r"terminate called without an active exception\s*"
        r"(?:$|Fatal Python error: Aborted\b[\s\S]*<no Python frame>(?!\s*(?:Current t|T)hread 0x))",
        "the program was through; torch's gloo threads can abort Python's exit: atexit.register(time.sleep, 0.1) at "
        "its beginning gives them time",
    ),
)
"""A pattern of the end of everything that a program printed before it crashed, and the hint."""


def hint_for(text: str, tail: str = "") -> str:
    """The hint for an error ``text`` as a line of the failure reason; empty where there is none.

    ``tail`` is the end of what the program printed; empty, unless it ended by SIGABRT.
    """
    found = [hint for pattern, hint in HINTS if re.search(pattern, text)]
    found += [hint for pattern, hint in ENDINGS if re.search(pattern, tail)]
    return f"hint: {found[0]}" if found else ""
