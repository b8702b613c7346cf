"""A name that others made becomes a path by :mod:`musterpoint.base.below` and by nothing else, and by it alone a
program opens what a job has written.

Such a name is an object's key, an entry of a manifest, a member of an archive, a line of a record. The test knows no
types: it finds every place that joins a path with anything but words of the program itself, numbers, and names that the
same function has just got from the disk. Each of the others stands in a list, with the reason why its names are safe.

So does each place of our programs that opens anything by its path: a job may put a link in the place of any folder of
its own, whatever was looked at before.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Iterator

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "musterpoint"
ROOMS = ("core/code", "core/data", "core/job_data", "core/supervise/watchers", "serve")
PROGRAMS = ("transfer*", "mover", "uploader", "code_artifact", "file_changes", "checkpoint_*")
ALSO = ("local/results.py",)
LISTINGS = ("walk", "scandir", "listdir")
"""Calls that give names of the disk: each is one part, and never ``..``."""
DISK = "names that a listing of the disk has just given"
ASKED = "an option, a variable or a file of the job itself, no name from outside"
KEY = "a key, a URI or a sentence, no path"
NAMES = "names to a name; Look.path makes a path of it by below()"
ALLOWED = {
    "core/code/index_passwords.py": {"_without_login": KEY},
    "core/code/fetch.py": {
        "Stage.path": "words of the program's own",
        "Stage.take_place": KEY,
        "_bring_file": "the last part of a path of this host",
        "_copy": DISK,
        "_copy.left_out": DISK,
    },
    "core/code/install.py": {
        "InstallLock.path": "a hash",
        "build_directory": "the last part of a path of this host",
        "install": "a name of this file's",
    },
    "core/code/interpreter.py": {"_prefixes": ASKED, "_has": "a name of this file's"},
    "core/code/mark.py": {
        "_files": DISK,
        "in_the_way": DISK,
        "remove": "looks itself whether the name is absolute, or its folder leads out",
    },
    "core/code/program.py": {
        "find_program": ASKED,
        "beneath": ASKED,
        "_is_module": ASKED,
        "_relative": ASKED,
        "_near": KEY,
    },
    "core/code/program_files.py": {"CodeDirectory.read": "a traceback's file, whose lines are only shown"},
    "core/code/project.py": {
        "may_want_packages": ASKED,
        "requirements_beside": ASKED,
        "_name_if_there": ASKED,
        "unreadable": ASKED,
        "_itself": "only compared with the directory of the code",
        "_lines": "the installer reads the same list, of the user's own code",
    },
    "core/code/source.py": {"_channel": ASKED, "_path": ASKED},
    "core/code/unwrap.py": {"own_words": ASKED},
    "core/code/workspace.py": {
        "Code.__init__": ASKED,
        "Code._use_what_is_here": ASKED,
        "Code._start_from_package": ASKED,
    },
    "core/data/places.py": {"read_channel": ASKED, "place_of": ASKED, "below": KEY},
    "core/job_data/data_plan.py": {"plan_data": "a channel's name, which read_channel has checked", "_base": ASKED},
    "core/supervise/watchers/build_locks.py": {"_locks": DISK},
    "core/supervise/watchers/ssh_sessions.py": {"SshSessions._write": "names of the plan's own files"},
    "core/supervise/watchers/uploads.py": {"Destination.uri": KEY, "destination_of": KEY},
    "embedded/programs/checkpoint_keeper.py": {
        "Keeper._upload": KEY,
        "Keeper._transfer": KEY,
        "Keeper._read_parts": "a pattern that a key must have",
        "_held": "a number as text",
        "Keeper._on_uploaded": KEY,
    },
    "embedded/programs/checkpoint_kinds.py": {"units_of": NAMES},
    "embedded/programs/checkpoint_look.py": {"join": NAMES},
    "embedded/programs/checkpoint_manifest.py": {"Entry.check": KEY, "Shelf.check": KEY},
    "embedded/programs/checkpoint_restore.py": {
        "_bring": "a number; and a list of names, which is only compared with names of the disk"
    },
    "embedded/programs/file_changes.py": {"DirectoryWatch._read": DISK},
    "embedded/programs/mover.py": {"listed": KEY, "_files_of": DISK, "pack": KEY},
    "embedded/programs/transfer.py": {
        "place_below": KEY,
        "DirectoryStore._inside": DISK,
        "DirectoryStore._new": "numbers",
    },
    "embedded/programs/transfer_s3.py": {"S3Store.explain": KEY, "S3Store.read": KEY},
    "local/results.py": {
        "describe": KEY,
        "write_archives": "words of the program's own",
        "_inside": "a link's target, which link_target() checks",
        "_tree": ASKED,
    },
    "serve/api.py": {"ControlClient.ask": KEY, "module": "paths of the caller's own"},
    "serve/dispatch.py": {"_signed": KEY},
    "serve/job_process.py": {"Transfers.upload": KEY},
    "serve/job_run.py": {"Relay.__init__": KEY},
    "serve/jobs.py": {"Jobs._presigned": KEY},
    "serve/moto_services.py": {"MotoServices.call": KEY, "Telemetry.lines": KEY},
    "serve/operations/training_jobs.py": {"_has_objects": KEY, "_check_place": KEY},
    "serve/page.py": {"Page._answer": KEY, "_newest_run": DISK},
    "serve/settings.py": {
        "Settings.arn": KEY,
        "Settings.job_directory": "a job's name, letters, digits and hyphens by AWS's model",
        "Settings.url": KEY,
    },
    "serve/training_job.py": {"TrainingJob._once": "a number"},
    "serve/training_request.py": {"output_uri": KEY},
}


OURS = "a file of our own: among notes, of a request, or one that this program has just made"
STORE = "a place of a store, which the user named"
KERNEL = "what the kernel tells, or gives"
NAMES_ONLY = "nothing is read: folders are watched, by the names of what changes"
OPENS = {
    "checkpoint_restore": {"_bring": OURS, "sha256_of": OURS},
    "checkpoint_sights": {"Sights._read": OURS, "Sights._write": OURS},
    "file_changes": {"DirectoryWatch._add": NAMES_ONLY},
    "mover": {"_opened": OURS},
    "pid1_tracer": {"Tracer._is_ours": KERNEL, "Tracer.seize": KERNEL},
    "process_files": {"answers_of": OURS, "children_of": KERNEL, "poke": KERNEL, "read_text": KERNEL},
    "process_stacks": {"Question._ask": OURS, "spent": KERNEL, "written": OURS},
    "ray_node": {"tail": "a log of Ray's, which is printed", "write_agent_port": OURS},
    "registry": {"Texts._write": OURS, "Texts.hold": OURS},
    "ssh_session": {"main": OURS},
    "stack_sampler": {"_Flight._ask_thread": OURS, "_Flight.look": OURS, "_Returns.call": KERNEL, "write": OURS},
    "transfer": {
        "DirectoryStore._inside": STORE,
        "DirectoryStore.get": STORE,
        "DirectoryStore.open": STORE,
        "DirectoryStore.put": STORE,
        "DirectoryStore.write": STORE,
        "FsspecStore.put": "the descriptor of an open file",
        "Record.__init__": OURS,
        "_copy": OURS,
        "_placed": STORE,
        "_regular": STORE,
    },
    "work_done": {"native_threads": KERNEL, "turns_of": KERNEL},
}


def modules() -> list[Path]:
    found = [path for room in ROOMS for path in (SOURCE / room).rglob("*.py")]
    found += [path for name in PROGRAMS for path in (SOURCE / "embedded" / "programs").glob(f"{name}.py")]
    return sorted([*found, *(SOURCE / each for each in ALSO)])


def joins(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The functions that make a path of a name that may be foreign, and the lines."""
    for function, body in _functions(tree, "module"):
        safe = {name for each in body for name in _from_disk(each)}
        for node in body:
            if any(not _is_own(part, safe) for part in _joined(node)):
                yield function, node.lineno  # type: ignore[attr-defined]


def _functions(tree: ast.AST, name: str) -> Iterator[tuple[str, list[ast.AST]]]:
    """Each function with what is in it, but for functions inside of it."""
    body, waiting = list[ast.AST](), list(ast.iter_child_nodes(tree))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            inner = node.name if name == "module" else f"{name}.{node.name}"
            yield from _functions(node, inner)
        else:
            body.append(node)
            waiting += ast.iter_child_nodes(node)
    yield name, body


def _joined(node: ast.AST) -> list[ast.expr]:
    """What ``node`` hangs on a path, if it makes one."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.path.join", "os.sep.join", "Path"):
        return node.args[1:] if ast.unparse(node.func) != "os.sep.join" else node.args
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [node.right] if _ends_with_slash(node.left) else []
    if isinstance(node, ast.JoinedStr):
        pairs = zip(node.values, node.values[1:])
        return [
            after.value for before, after in pairs if _ends_with_slash(before) and isinstance(after, ast.FormattedValue)
        ]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and "Path(" in ast.unparse(node.left):
        return [node.right]
    is_other = isinstance(node, (ast.Import, ast.ImportFrom)) and {"pathlib", "from os.path"} & {*_words(node)}
    return [ast.Name("unknown")] if is_other else []


def _words(node: ast.AST) -> Iterator[str]:
    text = ast.unparse(node)
    return (each for each in ("pathlib", "from os.path") if each in text)


def _ends_with_slash(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _ends_with_slash(node.right)
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith("/")
    return is_text or ast.unparse(node) == "os.sep"


def _is_own(part: ast.expr, safe: set[str]) -> bool:
    """Whether ``part`` is a word of the program's own, a number, or a name from the disk."""
    if isinstance(part, ast.JoinedStr):
        return all(isinstance(each, ast.Constant) or "os.getpid()" in ast.unparse(each) for each in part.values)
    text = ast.unparse(part)
    return isinstance(part, ast.Constant) or text.isupper() or text in (*safe, "str(number)", "file.fileno()")


def _from_disk(node: ast.AST) -> Iterator[str]:
    """Variables that get names from the disk in a loop."""
    if not isinstance(node, (ast.For, ast.comprehension)):
        return
    source = ast.unparse(node.iter)
    if any(f"os.{each}(" in source for each in LISTINGS):
        for each in ast.walk(node.target):
            if isinstance(each, ast.Name):
                yield each.id
                yield f"{each.id}.name"


READERS = (
    "open", "io.open", "io.open_code", "io.FileIO", "os.open", "os.scandir", "os.listdir", "os.walk", "os.fwalk",
    "os.link", "os.sendfile", "glob.glob", "glob.iglob", "shutil.copy", "shutil.copy2", "shutil.copyfile",
    "shutil.copytree", "shutil.move", "shutil.make_archive", "tarfile.open", "tarfile.TarFile", "zipfile.ZipFile",
    "gzip.open", "bz2.open", "lzma.open", "mmap.mmap",
)  # fmt: skip
"""Calls that take a path, and open it or what is in it."""
METHODS = ("read_text", "read_bytes", "iterdir", "rglob", "put_file", "upload_file")
"""Methods of libraries that do so; so does a tar file's ``add``."""
DESCRIPTORS = ("os.dup(", "self.open(")
"""Begins what is a descriptor, and no path."""


def opens(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The functions that open something by its path, and the lines."""
    for function, body in _functions(tree, "module"):
        for node in body:
            if not isinstance(node, ast.Call):
                if isinstance(node, (ast.Import, ast.ImportFrom)) and _hides_a_reader(node):
                    yield function, node.lineno
                continue
            called = ast.unparse(node.func)
            first = ast.unparse(node.args[0]) if node.args else ""
            is_tar = called.endswith(".add") and any(each.arg == "arcname" for each in node.keywords)
            is_method = isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
            if (called in READERS or is_method or is_tar) and not first.startswith(DESCRIPTORS):
                yield function, node.lineno


def _hides_a_reader(node: ast.Import | ast.ImportFrom) -> bool:
    """Tells whether a reader gets another name by an import."""
    if isinstance(node, ast.ImportFrom):
        return any(f"{node.module}.{each.name}" in READERS for each in node.names)
    return any(each.asname and f"{each.name}." in " ".join(READERS) for each in node.names)


def test_a_program_opens_what_a_job_has_written_below_a_descriptor() -> None:
    wrong, found = [], dict[str, set[str]]()
    for path in sorted([*(SOURCE / "embedded" / "programs").glob("*.py"), *(SOURCE / each for each in ALSO)]):
        for function, line in opens(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(path.stem, set()).add(function)
            if function not in OPENS.get(path.stem, {}):
                wrong.append(f"{path.name}:{line}: {function}")
    assert not wrong, f"use musterpoint.base.below, or say in OPENS why a job can't have written it: {wrong}"
    gone = [f"{name}: {function}" for name in OPENS for function in OPENS[name] if function not in found.get(name, ())]
    assert not gone, f"nothing is opened there any more: {gone}"


@pytest.mark.parametrize(
    "text",
    [
        "open(path, 'rb')",
        "open(below(root, name))",
        "open(tree.path(name), 'rb')",
        "os.open(path, os.O_RDONLY | os.O_NOFOLLOW)",
        "os.open(os.path.realpath(path), 0)",
        "list(os.walk(directory))",
        "os.scandir(os.path.join(root, folder))",
        "os.link(os.path.realpath(source), link)",
        "archive.add(os.path.join(root, name), arcname=name)",
        "tarfile.open(path)",
        "shutil.copyfile(path, other)",
        "Path(path).read_bytes()",
        "filesystem.put_file(path, name)",
    ],
)
def test_an_open_by_path_is_found(text: str) -> None:
    assert list(opens(ast.parse(f"class A:\n    def put(self, directory, name):\n        return {text}"))) == [
        ("A.put", 3)
    ]


@pytest.mark.parametrize("text", ["from os import open", "from shutil import copyfile as c", "import os as o"])
def test_another_name_of_a_reader_is_found(text: str) -> None:
    assert list(opens(ast.parse(text)))


@pytest.mark.parametrize(
    "text", ["tree.open(name)", "tree.file(name)", "tree.walk()", "open(os.dup(fd), 'rb')", "names.add(x)"]
)
def test_an_open_below_a_descriptor_is_fine(text: str) -> None:
    assert not list(opens(ast.parse(text)))


def test_no_other_join_makes_a_path_of_a_foreign_name() -> None:
    wrong, found = [], dict[str, set[str]]()
    for path in modules():
        name = str(path.relative_to(SOURCE))
        for function, line in joins(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(name, set()).add(function)
            if function not in ALLOWED.get(name, {}):
                wrong.append(f"{name}:{line}: {function}")
    assert not wrong, f"use musterpoint.base.below, or say in ALLOWED why the name is safe: {wrong}"
    gone = [
        f"{name}: {function}" for name in ALLOWED for function in ALLOWED[name] if function not in found.get(name, ())
    ]
    assert not gone, f"no such join any more: {gone}"


@pytest.mark.parametrize(
    "text",
    [
        "os.path.join(directory, item.name)",
        "os.path.join(root, *parts)",
        "open(f'{directory}/{entry.path}')",
        "directory + '/' + key",
        "directory + os.sep + key",
        "os.sep.join((directory, key))",
        "Path(directory) / key",
        "Path(directory, key)",
        "os.path.join(directory, str(key))",
    ],
)
def test_a_join_is_found(text: str) -> None:
    assert list(joins(ast.parse(f"class A:\n    def put(self, directory, item):\n        return {text}"))) == [
        ("A.put", 3)
    ]


@pytest.mark.parametrize("text", ["import pathlib", "from os.path import join", "from pathlib import Path as P"])
def test_a_library_of_paths_is_found(text: str) -> None:
    assert list(joins(ast.parse(text)))


def test_names_of_the_disk_and_of_the_program_are_no_foreign_names() -> None:
    text = "for name in os.listdir(root):\n    os.path.join(root, name)"
    assert not list(joins(ast.parse(f"{text}\nos.path.join(root, 'manifests', NAME, str(number))")))
