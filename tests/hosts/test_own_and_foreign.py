"""A job's data touches nothing of the user's, follows no name that others made, and is kept by one start at a time."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import clean

from musterpoint.base.errors import FetchError
from musterpoint.core.data.mover_process import Access
from musterpoint.core.data.moves import Target, bring, restore, send
from musterpoint.core.data.places import Channel

from .test_checkpoints import Job, awaited

ACCESS = Access({"PATH": os.environ["PATH"]})


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, str(tmp_path / "place"), SM_CHECKPOINT_DIR=str(tmp_path / "ck"))


def test_the_folder_that_a_program_uses_is_the_folder_that_is_kept(job: Job) -> None:
    assert job.run()[0] == 0 and job.outcome["checkpoints"]["newest"] == "step-2"
    subprocess.run(["rm", "-rf", job.folder / "ck"], check=True)
    code, out, err = job.run()
    assert not code and "from 2" in out, err


@pytest.mark.parametrize("option", ["--checkpoints", "--upload"])
@pytest.mark.parametrize("place", ["ck/kept", ".", "link/kept"])
def test_a_place_inside_of_what_is_sent_is_refused(job: Job, option: str, place: str) -> None:
    (job.folder / "ck").mkdir()
    (job.folder / "link").symlink_to("ck")
    more = {"SM_MODEL_DIR": str(job.folder / "ck")}
    assert job.run(option, str(job.folder / place), **more)[0] == 64


def test_two_programs_without_a_name_are_not_one_job(job: Job) -> None:
    words = [sys.executable, "-m", "musterpoint", "launch", "--checkpoints", job.place, "train.py"]
    done = subprocess.run(words, cwd=job.folder, env=job.environ, capture_output=True, text=True)
    assert done.returncode == 64 and "--job-name" in done.stderr


def test_what_was_there_before_the_job_stays(job: Job) -> None:
    own = {"pretrained.bin": "weights", "data/x": "1"}
    for name, text in own.items():
        (job.folder / "ck" / name).parent.mkdir(parents=True, exist_ok=True)
        (job.folder / "ck" / name).write_text(text)
    (job.folder / "ck" / "empty").mkdir()
    for step in (0, 2, 4):
        code, out, err = job.run()
        assert not code and f"from {step}" in out, err
        assert {name: (job.folder / "ck" / name).read_text() for name in own} == own
        assert (job.folder / "ck" / "empty").is_dir()
    subprocess.run(["rm", "-rf", job.folder / "ck", job.folder / ".muster-ck"], check=True)
    (job.folder / "ck" / "step-6").mkdir(parents=True)
    (job.folder / "ck" / "step-6" / "state.bin").write_text("mine")
    code, out, err = job.run()
    assert code == 71 and "step-6/state.bin was there before" in err
    assert (job.folder / "ck" / "step-6" / "state.bin").read_text() == "mine"


LINKS = """
import os
directory = os.environ["SM_CHECKPOINT_DIR"]
names = sorted(name for name in os.listdir(directory) if name.startswith(("step", "last", "out")))
print("has", names, {name: os.readlink(os.path.join(directory, name)) for name in names if name.startswith("last")})
for step in (1, 2, 3) if not names else ():
    with open(os.path.join(directory, "new.tmp"), "w") as file:
        file.write(str(step))
    os.makedirs(os.path.join(directory, "new-folder.tmp"))
    os.rename(os.path.join(directory, "new.tmp"), os.path.join(directory, "new-folder.tmp", "state"))
    os.rename(os.path.join(directory, "new-folder.tmp"), os.path.join(directory, f"step-{step}"))
    for name, target in (("last", f"step-{step}"), ("last-file", os.path.join(directory, f"step-{step}", "state"))):
        os.symlink(target, os.path.join(directory, "link.tmp"))
        os.replace(os.path.join(directory, "link.tmp"), os.path.join(directory, name))
os.path.lexists(os.path.join(directory, "outside")) or os.symlink("/etc", os.path.join(directory, "outside"))
"""


def test_links_are_kept_as_links(job: Job) -> None:
    job.program.write_text(LINKS)
    code, _, err = job.run()
    assert not code and "outside isn't kept" in err, err
    subprocess.run(["rm", "-rf", job.folder / "ck"], check=True)
    code, out, err = job.run()
    assert not code and "has ['last', 'last-file', 'step-3'] {'last': 'step-3', 'last-file': 'step-3/state'}" in out, (
        err
    )
    assert (job.folder / "ck" / "last" / "state").read_text() == "3"


def test_the_last_start_owns_the_place(job: Job, tmp_path: Path) -> None:
    """The first one trains on, keeps nothing more and says so; nothing that is kept is torn."""
    other = Job(tmp_path / "other", job.place, SM_CHECKPOINT_DIR=str(tmp_path / "other" / "ck"))
    with job.start("--checkpoint-keep", "1", GO_ON=str(tmp_path / "go on"), STEPS="3") as first:
        awaited(first.stdout, "saved 1")
        awaited(first.stderr, "is whole at")
        code, out, err = other.run("--checkpoint-keep", "1")
        assert not code and "from 1" in out, err
        (tmp_path / "go on").touch()
        out, err = first.communicate(timeout=500)
    assert first.returncode == 0 and "saved 3" in out
    assert "another start of j has taken" in err and "another start of j" in job.outcome["checkpoints"]["problem"]
    other.forget()
    subprocess.run(["rm", "-rf", tmp_path / "other" / "ck"], check=True)
    code, out, err = other.run(STEPS="1")
    assert not code and "from 3" in out, err


def manifest(
    path: str = "a", key: str = "files/0/x/a", texts: dict[str, str] | None = None, link: str = "", place: int = 0
) -> bytes:
    entry = [path, 4, hashlib.sha256(b"evil").hexdigest(), key, place, True, link]
    part = {
        "name": "a", "family": "a", "place": 0, "hosts": 1, "files": [entry], "needs": [], "marked": False,
        "texts": texts or {}, "attempt": 0, "found": False,
    }  # fmt: skip
    content: dict[str, Any] = {"number": 1, "job": "j", "hosts": 1, "parts": [part], "owner": 1, "version": 2}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json.dumps({**content, "sha256": digest}, sort_keys=True).encode()


@pytest.mark.parametrize(
    "evil",
    [
        {"path": "../evil"}, {"path": "/tmp/evil"}, {"path": "a//b"}, {"path": ".muster-ck/own"}, {"path": "a\0b"},
        {"key": "../../victim"}, {"key": "files/../../victim"}, {"key": "manifests/000000000001.json"},
        {"key": "files/1/x/a"}, {"key": "files/0"}, {"place": 1}, {"texts": {"a": "evil"}},
        {"texts": {"latest": "evil"}}, {"texts": {"../evil": "x"}},
        {"link": "../victim"}, {"link": "/etc/passwd"}, {"path": "x" * 300},
    ],
)  # fmt: skip
def test_a_manifest_that_leads_out_is_refused(tmp_path: Path, evil: dict[str, Any]) -> None:
    place, directory = tmp_path / "store" / "place", tmp_path / "host" / "ck"
    for folder in (place / "manifests", place / "files/0/x", directory):
        folder.mkdir(parents=True)
    (place / "files/0/x/a").write_bytes(b"evil")
    for victim in (tmp_path / "victim", tmp_path / "store" / "victim", tmp_path / "host" / "victim"):
        victim.write_text("mine")
    (place / "manifests" / "000000000001.json").write_bytes(manifest(**evil))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(FetchError, match=r"isn't what musterpoint writes"):
        restore(Target(str(place), "j"), str(directory), ACCESS, say=lambda _: None)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "own"}
    assert after == before
    (place / "manifests" / "000000000001.json").write_bytes(manifest())
    restore(Target(str(place), "j"), str(directory), ACCESS, say=lambda _: None)
    assert (directory / "a").read_bytes() == b"evil"


def test_notes_beside_a_directory_follow_no_link(tmp_path: Path) -> None:
    """Anybody may have made one in a folder that users share."""
    place, directory, victim = tmp_path / "place", tmp_path / "shared" / "ck", tmp_path / "victim"
    for folder in (place / "manifests", place / "files/0/x", directory, victim / "parts", victim / "said"):
        folder.mkdir(parents=True)
    (place / "files/0/x/a").write_bytes(b"evil")
    (place / "manifests" / "000000000001.json").write_bytes(manifest())
    for name in ("own", "record", "parts/precious", "said/paths"):
        (victim / name).write_text("mine")
    for name in ("ck", "train"):
        (directory.parent / f".muster-{name}").symlink_to(victim)
    before = {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()}
    restore(Target(str(place), "j"), str(directory), ACCESS, say=lambda _: None)
    bring(Channel("train", str(place / "files")), str(directory.parent / "train"), ACCESS, say=lambda _: None)
    assert (directory / "a").read_bytes() == (directory.parent / "train/0/x/a").read_bytes() == b"evil"
    assert {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()} == before


SENDS = """
import sys
from musterpoint.core.data.mover_process import Access
from musterpoint.core.data.moves import send
print(flush=True)
sys.stdin.readline()
send(sys.argv[1], sys.argv[2], Access({"PATH": "/bin", "TMPDIR": sys.argv[3]}), "model.tar.gz")
"""


def test_two_jobs_that_pack_at_once(tmp_path: Path) -> None:
    """In one folder for temporary files, in which others' names lie."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    (tmp_path / "precious").write_text("mine")
    (scratch / "model.tar.gz").symlink_to(tmp_path / "precious")
    senders = []
    for who in "AB":
        (tmp_path / who).mkdir()
        (tmp_path / who / "w").write_bytes(who.encode() * 3_000_000)
        words = [sys.executable, "-c", SENDS, tmp_path / who, tmp_path / f"up-{who}", scratch]
        senders.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean({})))
    for sender in senders:
        awaited(sender.stdout, "")
    for sender in senders:
        assert sender.stdin is not None
        sender.stdin.write("\n")
        sender.stdin.flush()
    for sender in senders:
        sender.communicate(timeout=500)
    assert [sender.returncode for sender in senders] == [0, 0]
    for who in "AB":
        with tarfile.open(tmp_path / f"up-{who}" / "model.tar.gz") as archive:
            content = archive.extractfile("w")
            assert content is not None and content.read() == who.encode() * 3_000_000
    assert (tmp_path / "precious").read_text() == "mine" and os.listdir(scratch) == ["model.tar.gz"]


@pytest.mark.parametrize("archive", ["model.tar.gz", ""])
def test_links_of_a_model_lead_nowhere_else(tmp_path: Path, archive: str) -> None:
    model, said = tmp_path / "model", list[str]()
    (model / "blobs").mkdir(parents=True)
    (model / "blobs" / "1").write_text("weights")
    (tmp_path / "secret").write_text("key")
    for name, target in (
        ("in", "blobs/1"), ("absolute", str(model / "blobs/1")), ("folder", "blobs"),
        ("out", "../secret"), ("out-absolute", str(tmp_path / "secret")), ("out-folder", "/etc"),
    ):  # fmt: skip
        (model / name).symlink_to(target)
    send(str(model), str(tmp_path / "up"), ACCESS, archive, say=said.append)
    if archive:
        with tarfile.open(tmp_path / "up" / archive) as packed:
            links = {member.name: member.linkname for member in packed if member.issym()}
        assert links == {"in": "blobs/1", "absolute": "blobs/1", "folder": "blobs"}
    else:
        names = sorted(
            str(path.relative_to(tmp_path / "up")) for path in (tmp_path / "up").rglob("*") if path.is_file()
        )
        assert names == ["absolute", "blobs/1", "folder/1", "in"]
    assert sum("is left out" in line for line in said) == 3


@pytest.mark.parametrize(("before", "code_of", "sent"), [
    (False, "os.symlink('/etc', directory)", False),
    (False, "os.makedirs(directory); open(directory + '/w', 'w').write('new')", True),
    (True, "os.symlink(old, directory); open(directory + '/w', 'w').write('new')", True),
])  # fmt: skip
def test_a_model_folder_that_the_program_replaces(tmp_path: Path, before: bool, code_of: str, sent: bool) -> None:
    """Made anew is usual; a link that was there before the ranks is followed; one that has come since isn't."""
    model = tmp_path / "model"
    if before:
        (tmp_path / "disk").mkdir()
        model.symlink_to(tmp_path / "disk")
    (tmp_path / "train.py").write_text(
        "import os, shutil\ndirectory = os.environ['SM_MODEL_DIR']\nold = os.path.realpath(directory)\n"
        f"os.unlink(directory) if os.path.islink(directory) else shutil.rmtree(directory)\n{code_of}\n"
    )
    words = [sys.executable, "-m", "musterpoint", "launch", "--job-name", "j", "--upload", tmp_path / "up;files"]
    environ = {**clean({}), "SM_MODEL_DIR": str(model)}
    done = subprocess.run([*words, "train.py"], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    [path] = (tmp_path / "muster-jobs").rglob("outcome.json")
    [said] = json.loads(path.read_text())["uploads"]
    assert bool(said["problem"]) != sent and (tmp_path / "up" / "model" / "w").exists() == sent, said
