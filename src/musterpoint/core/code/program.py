"""Finds out what kind of program an entry point is, and the command that starts it."""

import os
import re
from typing import Literal, Mapping

from musterpoint.base import executables
from musterpoint.base.errors import UsageError, similar
from musterpoint.base.records import NamedTuple
from musterpoint.core.code.project import MARK


class NoProgram(UsageError):
    """There is no program of that name, neither in the code nor on PATH."""


Kind = Literal["python", "module", "shell", "executable"]
"""A Python script, a Python module, a shell script, or any other command."""


class Start(NamedTuple):
    """What kind of program it is, and the command (``words``) that starts it, without its arguments."""

    kind: Kind
    words: tuple[str, ...]


def find_program(program: str, module: bool, folder: str, interpreter: str, environ: Mapping[str, str]) -> Start:
    """How ``program`` is started from the code directory ``folder``.

    ``.sh`` is always a shell script. With a ``setup.py`` in ``folder`` the program runs as a module, as in
    sagemaker-training; so do a directory with a ``__main__.py`` and a module's dotted name. ``.py`` is a Python script.
    Any other file runs by its ``#!`` line or as an executable; a text with neither by ``/bin/sh``. A name that isn't a
    file is a command on PATH.

    Raises:
        UsageError: there is no such program, or it can't be started; the message lists what is there.
    """
    if module:
        return Start("module", (interpreter, "-m", program))
    path = os.path.join(folder, program)
    if program.endswith(".ipynb") and os.path.isfile(path):
        raise UsageError(f"the program {path} is a notebook: make a script of it, jupyter nbconvert --to script {path}")
    if program.endswith(".sh") and os.path.isfile(path):
        return Start("shell", (*_first_line(path, ("/bin/sh",)), _relative(program)))
    name = module_name(program)
    if os.path.isfile(os.path.join(path, "__main__.py")):
        return Start("module", (interpreter, "-m", name)) if name else Start("python", (interpreter, program))
    if name and os.path.isfile(os.path.join(folder, "setup.py")) and _is_module(name, folder):
        return Start("module", (interpreter, "-m", name))
    if program.endswith(".py") and os.path.isfile(path):
        return Start("python", (interpreter, "./" + program if program.startswith("-") else program))
    if os.path.isfile(path):
        _refuse_ours(path)
        return Start("executable", _executable(program, path, environ))
    if "." in program and not program.endswith(".py") and name and _is_module(name, folder):
        return Start("module", (interpreter, "-m", name))
    command = executables.find_command(program, environ)
    if command and not _is_ours(command):
        return Start("executable", (command,))
    if os.path.isdir(path):
        raise UsageError(
            f"the program {path} is a directory without a __main__.py{_around(path)}; name the script in it"
        )
    if os.path.isabs(program):
        raise UsageError(f"the program {program!r} isn't on this host")
    more = f"; {command} is musterpoint itself" if command else _near(path)
    raise NoProgram(f"the program {program!r} isn't in {folder}{_around(folder)}{more}")


_OWN_COMMAND = re.compile(rb"(?:-m musterpoint\.\w+\.\w+|from musterpoint\.[\w.]+ import main)\b")
"""Stands in the scripts that start our commands, such as those that pip makes."""
_OWN_FILE = b" as one file: puts all hosts of a distributed training job together"
"""Stands in the head of the one-file launcher, which is the command that its name says."""


def _is_ours(path: str) -> bool:
    """Whether this file is musterpoint's ``train`` or ``muster``, which would read the same job and start itself."""
    head = _head(path, 4096)
    name = os.path.splitext(os.path.basename(path))[0]
    as_one_file = _OWN_FILE in head and name in ("train", "muster")
    return as_one_file or (head.startswith(b"#!") and _OWN_COMMAND.search(head) is not None)


def is_own_file(path: str) -> bool:
    """Whether this file is musterpoint as one file, under whatever name."""
    return _OWN_FILE in _head(path, 4096)


def _refuse_ours(path: str) -> None:
    if _is_ours(path):
        raise UsageError(
            f"the program {path} is musterpoint itself, which would start itself again and again: name the training "
            f"script{_around(os.path.dirname(path))}"
        )


def beneath(program: str, folder: str) -> str:
    """The path of the only file ``program`` below ``folder``, or ``program`` itself where there is none.

    SDK v2's local mode mounts the whole ``source_dir``, but sends ``sub/train.py`` as ``train.py``.

    Raises:
        UsageError: it is in several places.
    """
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if program in files:
            found.append(os.path.relpath(os.path.join(place, program), folder))
    found.sort()
    if len(found) > 1:
        raise UsageError(
            f"the program {program!r} isn't in {folder} itself but is {' and '.join(found[:4])} there; SDK v2's local "
            "mode leaves the directory out: make that directory the source_dir, or give the program a name of its own"
        )
    return found[0] if found else program


def by_name(program: str, module: bool, interpreter: str) -> Start:
    """How ``program`` probably starts, judged by its name: its code isn't on this host yet."""
    if module:
        return Start("module", (interpreter, "-m", program))
    if program.endswith(".py"):
        return Start("python", (interpreter, program))
    if program.endswith(".sh"):
        return Start("shell", ("/bin/sh", _relative(program)))
    return Start("executable", (_relative(program),))


def make_executable(path: str, folder: str) -> None:
    """Makes a program that was just fetched to ``folder`` executable: the archive may have lost that.

    Python programs and files outside ``folder`` stay as they are.
    """
    inside = os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))
    if inside and os.path.isfile(path) and not path.endswith(".py"):
        os.chmod(path, os.stat(path).st_mode & 0o7777 | 0o111)


def module_name(program: str) -> str:
    """``pkg/train.py`` as a module of the code directory, ``pkg.train``; empty where it can't be one."""
    name = os.path.normpath(program).removesuffix(".py").replace(os.sep, ".")
    return name if all(part.isidentifier() for part in name.split(".")) else ""


def _is_module(name: str, folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, *name.split(".")) + ".py")


def _relative(program: str) -> str:
    """The path that a shell script gets as ``$0``; it begins with ``./`` as in sagemaker-training."""
    return program if os.path.isabs(program) or program.startswith("./") else "./" + program


def _first_line(path: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """The interpreter that the ``#!`` line of ``path`` names, with its argument; ``default`` where there is none.

    Raises:
        UsageError: the file can't be read, or what the line names isn't here.
    """
    try:
        with open(path, "rb") as file:
            line = file.readline(512)
    except OSError as error:
        raise UsageError(f"the program {path} can't be read: {error.strerror}") from None
    if not line.startswith(b"#!"):
        return default
    words = os.fsdecode(line[2:]).strip().split(None, 1)
    if not words or not os.path.exists(words[0]):
        raise UsageError(f"the first line of {path} asks for {' '.join(words) or 'nothing'}, which isn't on this host")
    return tuple(words)


def _executable(program: str, path: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    name = _relative(program)
    is_r = program.endswith((".R", ".r"))
    if os.access(path, os.X_OK) and not is_r:
        first = _head(path, 512).partition(b"\n")[0]
        if first.startswith(b"#!") and first.endswith(b"\r"):  # the kernel would look for it with that
            raise UsageError(f"the first line of {path} has a Windows line end: sed -i 's/\\r$//' {path}")
        return ("/bin/sh", name) if _is_bare_text(path) else (name,)
    starter = _first_line(path, ())
    if not starter and is_r:
        starter = (executables.find_command("Rscript", environ),)
        if not starter[0]:
            raise UsageError(f"the program {path} is R, and there is no Rscript on PATH: install R in the image")
    if not starter and not _is_bare_text(path):
        raise UsageError(f"the program {path} isn't executable and is no script: run chmod +x on it before the job")
    return (*(starter or ("/bin/sh",)), name)


def _is_bare_text(path: str) -> bool:
    """Whether this is a text without a ``#!`` line: a shell would run it as its own script."""
    head = _head(path, 512)
    return bool(head) and not head.startswith((b"#!", b"\x7fELF")) and b"\0" not in head


def _head(path: str, size: int) -> bytes:
    """The first bytes of a file; empty where it can't be read."""
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""


def _near(path: str) -> str:
    """A file beside ``path`` with nearly its name, for the error of a program that is missing."""
    folder, name = os.path.split(path)
    try:
        near = similar(name, os.listdir(folder))
    except OSError:
        return ""
    return f": did you mean {os.path.join(os.path.dirname(name), near)}?" if near else ""


def _around(folder: str) -> str:
    """What is in the folder, for the error of a program that is missing."""
    try:
        found = (name for name in os.listdir(folder) if name != MARK)
        names = sorted(name + "/" * os.path.isdir(os.path.join(folder, name)) for name in found)
    except OSError as error:
        return f", which can't be read: {error.strerror}"
    if not names:
        return ", which is empty"
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", which has " + ", ".join(names[:12]) + more
