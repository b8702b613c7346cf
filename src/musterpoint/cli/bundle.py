"""``muster bundle``: the package as one Python file, to put beside a training script or into an image.

The file is plain text: a readable head, then the package as a zip in base64. (A zip named ``.py`` breaks
under ``python -m`` and git's line-end rules.) The same package and Python give the same bytes.
"""

from __future__ import annotations

import binascii
import io
import marshal
import os
import sys
import zipfile
from importlib.util import MAGIC_NUMBER
from typing import Iterator, Mapping, Sequence

import musterpoint
from musterpoint.base import exit_codes
from musterpoint.base.errors import UsageError
from musterpoint.cli.errors import guarded
from musterpoint.cli.options import Parser

OLDEST = (3, 10)
NEWEST_TRIED = 19
"""The newest minor version that the file, run by an old Python, searches for on PATH."""

TEMPLATE = "launcher.txt"
LEFT_OUT = tuple(
    os.path.join("musterpoint", *path.split("/"))
    for path in (
        "local",
        "cli/local.py",
        "cli/local_command_line.py",
        "serve",
        "cli/serve.py",
        "tools/viewer",
        "cli/report.py",
        "__main__.py",
        "cli/completion.py",
        "integrations",
        "sagemaker.py",
    )
)
"""Left out: what only ``muster local``, ``serve``, ``report`` and ``completion`` need, or an installed package."""

_UNCHECKED = 1
_LINE = 120
_EPOCH = (1980, 1, 1, 0, 0, 0)

EXAMPLES = """
examples:
  muster bundle                                       launcher.py, to put beside train.py
  muster bundle --compiled -o /usr/local/bin/train    what SageMaker runs in a container (made executable)
"""


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster bundle`` with ``argv`` (the words after the command)."""
    return guarded(lambda: _run(argv))


def parsers() -> tuple[Parser, ...]:
    """The options, for completion."""
    return (_parser(),)


def _parser() -> Parser:
    parser = Parser("muster bundle", "Write the whole launcher as one Python file, with nothing to install.", EXAMPLES)
    parser.add_argument("-o", "--output", default="launcher.py", metavar="FILE", help="where to [launcher.py]")
    parser.add_argument(
        "--compiled",
        action="store_true",
        help="with bytecode for this Python: three times the size, starts 0.1 s sooner on it, and on others as without",
    )
    return parser


def _run(argv: Sequence[str]) -> int:
    asked = _parser().parse_args(argv)
    output = asked.output
    text = bundle(asked.compiled)
    try:
        os.makedirs(os.path.dirname(os.path.abspath(output)), exist_ok=True)
        with open(output, "w", encoding="ascii", newline="\n") as file:
            file.write(text)
        os.chmod(output, 0o755)
    except OSError as error:
        raise UsageError(f"--output={output}: can't be written: {error.strerror}") from None
    print(f"wrote {output} ({len(text) // 1024} KiB)")
    return exit_codes.OK


def bundle(compiled: bool = False) -> str:
    """The text of the one-file launcher. Called inside one, it returns that file itself."""
    package = os.path.dirname(os.path.abspath(musterpoint.__file__))
    if not os.path.isdir(package):
        with open(sys.modules["__main__"].__file__ or "", encoding="ascii") as file:
            return file.read()
    with open(os.path.join(package, "cli", TEMPLATE), encoding="ascii") as file:
        text = file.read()
    words = {
        "VERSION": musterpoint.__version__,
        "OLDEST": ".".join(map(str, OLDEST)),
        "OLDEST_TUPLE": ", ".join(map(str, OLDEST)),
        "NEWEST_TRIED": str(NEWEST_TRIED),
        "USAGE_CODE": str(exit_codes.USAGE),
        "ARCHIVE": _wrapped(archive(os.path.dirname(package), compiled)),
    }
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text


def archive(root: str, compiled: bool = False) -> bytes:
    """The modules of our packages, which lie in ``root``, as a zip, which Python's own zipimport reads."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for path in _modules(root):
            with open(os.path.join(root, path), "rb") as file:
                source = file.read()
            name = path.replace(os.sep, "/")
            if compiled:
                _add(made, name + "c", _bytecode(source, name))
            _add(made, name, source)
    return buffer.getvalue()


def _add(made: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.create_system = 3
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    made.writestr(entry, data, compresslevel=9)


def _bytecode(source: bytes, name: str) -> bytes:
    """An unchecked ``.pyc`` (PEP 552: never compared with its source); other Python versions ignore it."""
    code = compile(source, name, "exec", dont_inherit=True)
    # version 2 has no back references, which depend on other objects in memory
    return MAGIC_NUMBER + _UNCHECKED.to_bytes(4, "little") + bytes(8) + marshal.dumps(code, 2)


def _modules(root: str) -> Iterator[str]:
    """Paths of the modules that go in, relative to ``root``, in the same order on every machine."""
    for package in musterpoint.PACKAGES:
        for folder, folders, files in os.walk(os.path.join(root, package)):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            inside = os.path.relpath(folder, root)
            for name in sorted(files):
                path = os.path.join(inside, name)
                if name.endswith(".py") and not path.startswith(LEFT_OUT):
                    yield path


def _wrapped(data: bytes) -> str:
    text = binascii.b2a_base64(data, newline=False).decode("ascii")
    return "\n".join(text[at : at + _LINE] for at in range(0, len(text), _LINE))
