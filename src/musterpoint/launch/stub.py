"""The words that put the rank stub in front of the user's program, under a launcher that isn't ours."""

from __future__ import annotations

from typing import Sequence

from musterpoint.launch.plan import Argument

BOOT = (
    "from __future__ import annotations;import os;"
    '[exec(part,globals())for part in open(os.environ["MUSTER_STUB"]).read().split("\\n\\n\\n")]'
)
"""The same on all hosts; each host's supervisor says in MUSTER_STUB where its stub lies. Compiled function by function
it takes 0.5 MiB less, on every rank; the first words hold for all of them."""


def through_stub(interpreter: str, argv: Sequence[str]) -> tuple[str, ...]:
    """The argv that starts ``argv`` through the rank stub, run by ``interpreter``."""
    return (interpreter, "-I", "-S", "-c", BOOT, "--", *argv)


def stub_arguments(interpreter: str, argv: Sequence[str], told: tuple[Argument, ...] = ()) -> tuple[Argument, ...]:
    """:func:`through_stub`, each word with its reason; ``told`` are words for the stub itself."""
    python, isolated, no_site, command, boot, end, *program = through_stub(interpreter, argv)
    return (
        Argument(python, "runs the rank stub, which starts the program and reports exactly how it ended"),
        Argument(isolated, "nothing of the user's is imported into the stub"),
        Argument(no_site, "starts in 10 ms"),
        Argument(command, "reads the stub from where this host's supervisor put it"),
        Argument(boot),
        *told,
        Argument(end, "the program follows"),
        *program_arguments(program),
    )


def program_arguments(argv: Sequence[str]) -> tuple[Argument, ...]:
    """The user's program and its arguments."""
    return tuple(Argument(word, "the program" if at == 0 else "") for at, word in enumerate(argv))
