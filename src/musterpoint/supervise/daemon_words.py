"""What mpirun hands to its remote shell, read as the start of a daemon. Pure, and never a shell.

By the contract of ``rsh`` the words after the host are a program for the login shell there. What the flavours really
send (recorded: Open MPI 4.1.4 and 5.0.11, MPICH 4.0.2 and 5.0.2, Intel MPI 2021.18) is always the same: perhaps a
``.profile`` (where the user's shell is ``sh`` or ``ksh``), perhaps settings for an MPI below a prefix (in the words of
``sh`` or of ``csh``), then one daemon. ``--daemonize`` is dropped: it would put the daemon out of our sight. Anything
else is refused.

Each word is one argument. Open MPI puts values between double quotes as they are (``"q"r"``, ``"$(id)"``): taken from
between the outer ones they arrive byte for byte, which no shell would manage.
"""

import os
import re
from typing import NamedTuple, Sequence

DAEMONIZE = "--daemonize"

_PROFILE = ["(", "test", "!", "-r", "./.profile", "||", ".", "./.profile;"]
"""What Open MPI puts before everything for shells that read no file of their own when they are called so."""

_NAME = r"(?:(?:DYLD_|LD_)LIBRARY_PATH|PATH|[A-Z]+_PREFIX)"
_VALUE = r"[^;&|<>()`'\"\\$]*"
_OLD = rf"(?:\$\{{{_NAME}:-\}}|\${_NAME})?"
_CSH_TEST = r"if \( \$\?\w+ == [01] \)"
_SETTING = re.compile(
    rf"(?P<name>{_NAME})=(?P<value>{_VALUE}){_OLD}"
    rf"|(?:{_CSH_TEST} )?setenv (?P<csh_name>{_NAME}) (?P<csh_value>{_VALUE}){_OLD}"
    rf"|set path = \( (?P<path>{_VALUE}) \$path \)"
)
_NO_SETTING = re.compile(rf"export {_NAME}|{_CSH_TEST} set \w+")
"""The statements before the daemon, of ``sh`` and of ``csh``."""

_SPECIAL = re.compile(r"[;&|<>()`$'\"\\\n\0]")
"""What would mean something to a shell outside quotes."""


class NotADaemon(Exception):
    """The words are no start of a daemon; the text says what is wrong with them."""


class Daemon(NamedTuple):
    """``program`` is what mpirun called it: a file name, or a path on its own host.

    ``settings`` are variables for an MPI at that path: what ends in PATH goes before what is there, others replace it.
    """

    program: str
    arguments: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return os.path.basename(self.program)


def read_daemon(words: Sequence[str], known: Sequence[str]) -> Daemon:
    """What ``words`` ask for; ``known`` are the file names of daemons that may be asked for.

    Raises:
        NotADaemon: they ask for something else.
    """
    left = list(words)
    if left[: len(_PROFILE)] == _PROFILE and left[-1] == ")":
        left = left[len(_PROFILE) : -1]
    if not left:
        raise NotADaemon("no command was given")
    *statements, program = (part.strip() for part in left[0].split(";"))
    settings = dict(filter(None, map(_setting, statements)))
    if len(program) > 1 and program[0] == program[-1] == '"':
        program = program[1:-1]
    if os.path.basename(program) not in known:
        wanted = " or ".join(known) or "nothing"
        raise NotADaemon(f"{_shown(program)} is not what this job's mpirun starts on other hosts ({wanted})")
    arguments = [_argument(word) for word in left[1:]]
    return Daemon(program, tuple(word for word in arguments if word != DAEMONIZE), tuple(settings.items()))


def _setting(statement: str) -> tuple[str, str] | None:
    found = _SETTING.fullmatch(statement)
    if found is None:
        if _NO_SETTING.fullmatch(statement):
            return None
        raise NotADaemon(f"{_shown(statement)} is none of the settings that an mpirun puts before its daemon")
    name = found["name"] or found["csh_name"] or "PATH"
    value = found["value"] or found["csh_value"] or found["path"] or ""
    return name, value.rstrip(":")


def _argument(word: str) -> str:
    if len(word) > 1 and word[0] == word[-1] == '"' and "\0" not in word:
        return word[1:-1]
    if _SPECIAL.search(word):
        raise NotADaemon(f"the argument {_shown(word)} would mean something to a shell, and there is none here")
    return word


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "…")
