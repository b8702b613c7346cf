"""Scripts that run several programs, each really run: what ended the script leads, not what failed before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import musterpoint

from .test_what_ended_it import failure_of

PROBE = "def look(): raise RuntimeError('old news')\nlook()\n"
# what runs the probe, and then the program -> the text of main.sh, or of main.py
WAYS = {
    "exec": "if ! python3 probe.py; then export CPU=1; fi\nexec python3 args.py",
    "inline, exec": "if ! python3 -c 'raise RuntimeError(\"old news\")'; then export CPU=1; fi\nexec python3 args.py",
    "inline, a line": "python3 - <<'END' || echo starting on CPU\nraise RuntimeError('old news')\nEND\npython3 args.py",
    "two lines": "set -e\npython3 probe.py || true\necho one\necho two\npython3 args.py\necho done",
    "Python": "import runpy, subprocess, sys\nsubprocess.run([sys.executable, 'probe.py'])\nrunpy.run_path('args.py')",
    "Python, a line": (
        "import runpy, subprocess, sys\nsubprocess.run([sys.executable, 'probe.py'])\n"
        "print('going on', flush=True)\nrunpy.run_path('args.py')"
    ),
}
PARSER = "import argparse\np = argparse.ArgumentParser(prog='args.py')\n"
TYPER = (
    "Usage: args.py [OPTIONS]\nTry 'args.py --help' for help.\n╭─ Error ────────────╮\n│ Invalid value for  │\n"
    "│ '--lr': 'abc'      │\n╰────────────────────╯\n"
)


def says(text: str, code: int) -> str:
    return f"import sys\nsys.stderr.write({text!r})\nsys.exit({code})\n"


# args.py -> how the reason begins
ERRORS = {
    "argparse": (
        f"{PARSER}p.add_argument('--lr', type=float)\np.parse_args(['--lr', 'abc'])",
        "args.py: error: argument --lr: invalid float value: 'abc'\nrank 5 (local rank 1) on algo-3, exit code 2"),
    "argparse, a subcommand": (
        f"{PARSER}q = p.add_subparsers().add_parser('fit')\nq.add_argument('--lr', type=float)\n"
        "p.parse_args(['fit', '--lr', 'abc'])",
        "args.py fit: error: argument --lr: invalid float value: 'abc'\nrank 5"),
    "argparse, a long usage": (
        f"{PARSER}for n in range(90): p.add_argument(f'--an-option-{{n}}', type=int)\n"
        "p.parse_args(['--an-option-7=x'])",
        "args.py: error: argument --an-option-7: invalid int value: 'x'\nrank 5"),
    "optparse": (
        "import optparse\noptparse.OptionParser(prog='args.py').parse_args(['--lr', 'abc'])",
        "args.py: error: no such option: --lr\nrank 5"),
    "jsonargparse": (says("usage: args.py [-h]\nerror: Parser key 'lr': 7\n", 2), "error: Parser key 'lr': 7\nrank 5"),
    "click": (
        says("Usage: args.py [OPTIONS]\nTry 'args.py --help' for help.\n\nError: Invalid value for '--lr': 'x'.\n", 2),
        "Error: Invalid value for '--lr': 'x'.\nrank 5"),
    "click without a usage": (
        "import sys\nclass ClickException(Exception): pass\ntry: raise ClickException('no data in /data')\n"
        "except ClickException as error:\n    print(f'Error: {error}', file=sys.stderr)\n    sys.exit(1)\n",
        "Error: no data in /data\nrank 5"),
    "typer": (says(TYPER, 2), "Invalid value for '--lr': 'abc'\nrank 5"),
    "fire": (
        says("ERROR: Could not consume arg: --lrr\nUsage: args.py <command>\n  available commands:    fit\n", 2),
        "ERROR: Could not consume arg: --lrr\nrank 5"),
    "absl": (
        says("FATAL Flags parsing error:\n  flag --lr=abc: no float\nPass --helpshort to see help on flags.\n", 1),
        "FATAL Flags parsing error:\nflag --lr=abc: no float\nrank 5"),
    "AWS": (
        says("\nusage: aws [options] <command>\n\naws: error: the following arguments are required: command\n", 252),
        "aws: error: the following arguments are required: command\nrank 5"),
}  # fmt: skip


def run(folder: Path, files: dict[str, str], apart: bool) -> tuple[int, bytes, bytes]:
    """How ``main.sh`` or else ``main.py`` of ``files`` ended, what it printed, and its stdout if ``apart``."""
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")
    tools = folder / "tools"
    tools.mkdir()
    (tools / "python3").symlink_to(sys.executable)
    done = subprocess.run(
        ["bash", "main.sh"] if "main.sh" in files else [sys.executable, "main.py"], cwd=folder, timeout=50, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE if apart else subprocess.STDOUT,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PATH": f"{tools}:{os.environ['PATH']}", "LC_ALL": "C"},
    )  # fmt: skip
    return done.returncode, done.stderr if apart else done.stdout, done.stdout if apart else b""


def pairs(some: Iterable[str], others: Iterable[str]) -> list[Any]:
    """Each of ``some`` with each of ``others``: a quarter of them is the suite's, with all of both in it."""
    return [
        pytest.param(one, other, marks=[] if (at + beside) % 4 == 0 else [pytest.mark.lane("fuzz")])
        for at, one in enumerate(some)
        for beside, other in enumerate(others)
    ]


@pytest.mark.parametrize(("way", "error"), pairs(WAYS, ERRORS))
def test_a_wrong_argument_leads_behind_a_childs_traceback(tmp_path: Path, way: str, error: str) -> None:
    text, lead = ERRORS[error]
    main = "main.py" if way.startswith("Python") else "main.sh"
    apart = (sorted(WAYS).index(way) + sorted(ERRORS).index(error)) % 2 == 0
    files = {"probe.py": PROBE, "args.py": text, main: WAYS[way]}
    lines = failure_of(tmp_path, *run(tmp_path, files, apart)).reason
    assert lines.startswith(lead)
    assert "\nprinted before: RuntimeError: old news" in lines or "long usage" in error


@pytest.mark.parametrize(
    ("words", "lead"),
    [("python3 no_such_file.py", "python3: can't open file "), ("for step in 1 2; do\necho $step\n", "main.sh: line ")],
)
def test_what_an_interpreter_cant_read_leads(tmp_path: Path, words: str, lead: str) -> None:
    text = f"python3 probe.py || true\n{words}"
    reason = failure_of(tmp_path, *run(tmp_path, {"probe.py": PROBE, "main.sh": text}, apart=False)).reason
    assert reason.rpartition("/")[2].startswith(lead) or reason.startswith(lead)


@pytest.mark.parametrize("code", [1, 2])
@pytest.mark.parametrize("words", ["echo CLEANUP", "echo 'ERROR: training failed' >&2", "echo 'error: 0.5'"])
def test_a_code_of_the_scripts_own_doesnt_hide_the_exception(tmp_path: Path, words: str, code: int) -> None:
    text = f"python3 probe.py || {{ {words}; exit {code}; }}"
    reason = failure_of(tmp_path, *run(tmp_path, {"probe.py": PROBE, "main.sh": text}, apart=False)).reason
    assert reason.startswith(f"RuntimeError: old news\nrank 5 (local rank 1) on algo-3, exit code {code}")


# Python in the script that fails, or goes on, before something else ends the script
EARLIER = {
    "-c": "python3 -c 'import old_news_zzz' || true",
    "-c, a line": "python3 -c 'import old_news_zzz' || echo 'old_news: not there, using sdpa'",
    "piped in": "python3 - <<'END' || echo 'going on'\ndef look(): raise OSError('old news')\nlook()\nEND",
    "a library's": "python3 -c 'import json; json.loads(\"{old news\")' || true",
    "caught": (
        "python3 - <<'END'\nimport traceback\ntry: import old_news_zzz\nexcept ImportError: traceback.print_exc()\n"
        "END\necho 'preparing data'"
    ),
    "from": (
        "python3 - <<'END' || true\ntry: {}['old news']\nexcept KeyError as key: raise OSError('old news') from key\n"
        "END\necho 'preparing data'\necho 'rows: 17'"
    ),
}
# what ends the script -> how the reason begins
LATER = {
    "a text": ("python3 -c 'import sys; sys.exit(\"no checkpoint in /ckpt\")'", "no checkpoint in /ckpt\nrank 5"),
    "a text after steps": (
        "python3 -c 'import sys\nfor step in 1, 2, 3: print(step, flush=True)\nsys.exit(\"2 shards are missing\")'",
        "2 shards are missing\nrank 5"),
    "a text after many steps": (
        "for step in $(seq 100); do echo step $step; done; python3 -c 'import sys; sys.exit(\"2 shards are missing\")'",
        "2 shards are missing\nrank 5"),
    "a text, and a trap": (
        "trap 'echo CLEANUP; for n in 1 2 3; do echo GPU util $n %; done' EXIT\n"
        "python3 -c 'import sys; sys.exit(\"no checkpoint in /ckpt\")'", "no checkpoint in /ckpt\nrank 5"),
    "a text like a shell's": (
        "python3 -c 'import sys; sys.exit(\"/data/labels.csv: not found\")'", "/data/labels.csv: not found\nrank 5"),
    "an error of the script's": ("echo 'ERROR: no shard in /data' >&2; exit 1", "ERROR: no shard in /data\nrank 5"),
    "an error line": (
        "echo 'ERROR: no shard in /data' >&2; exit 3",
        "ERROR: no shard in /data\nrank 5 (local rank 1) on algo-3, exit code 3"),
    "a tool": ("cp /no/such/data.tar /tmp/", "cp: cannot stat '/no/such/data.tar': No such file or directory\nrank 5"),
    "another tool": ("ls /no/such/data", "ls: cannot access '/no/such/data': No such file or directory\nrank 5"),
    "no tool": ("./no_such_tool --train", "main.sh: line "),
    "a variable": ("set -u; echo $NO_SUCH_VARIABLE", "main.sh: line "),
    "a code": ("echo 'data.tar is elsewhere' >&2; exit 3", "rank 5 (local rank 1) on algo-3, exit code 3"),
    "SIGKILL": ("exec python3 -c 'import os; os.kill(os.getpid(), 9)'", "rank 5 (local rank 1) on algo-3, killed by"),
    "raise": (
        "python3 -c 'def step(): raise ValueError(\"bad label\")\nstep()'",
        "ValueError: bad label\nrank 5 (local rank 1) on algo-3, exit code 1"),
    "argparse": (
        f"python3 -c '{PARSER}p.parse_args([1][:0] + [\"--lrr\"])'".replace("'args.py'", '"args.py"'),
        "args.py: error: unrecognized arguments: --lrr\nrank 5"),
}  # fmt: skip


@pytest.mark.parametrize(("earlier", "later"), pairs(EARLIER, LATER))
def test_what_ends_a_script_leads_before_inline_code(tmp_path: Path, earlier: str, later: str) -> None:
    words, lead = LATER[later]
    for apart in (False, True):
        folder = tmp_path / str(apart)
        folder.mkdir()
        reason = failure_of(folder, *run(folder, {"main.sh": f"{EARLIER[earlier]}\n{words}"}, apart)).reason
        assert reason.startswith(lead)
        if later not in ("raise", "a text after many steps"):
            told = reason.partition("printed before: ")[2]
            assert "Error" in told, "the exception is told below"
            assert "preparing" not in told


# Python in the script that raises what ends the script
RAISES = {
    "-c": ("python3 -c 'raise KeyError(\"label\")'", "KeyError: 'label'"),
    "piped in": ("python3 - <<'END'\ndef step(): raise ValueError('bad label')\nstep()\nEND", "ValueError: bad label"),
    "a package": ("python3 -c 'import no_such_zzz'", "ModuleNotFoundError: No module named 'no_such_zzz'"),
    "a library's": ("python3 -c 'import json; json.loads(\"{x\")'", "json.decoder.JSONDecodeError: Expecting property"),
    "two lines": ("python3 -c 'raise RuntimeError(\"worker 3:\\nno shard\")'", "RuntimeError: worker 3:\nno shard"),
    "indented": ("python3 -c 'raise OSError(\"worker 3:\\n  a\\n  b\")'", "OSError: worker 3:\n  a\n  b"),
    "CUDA's": (
        "python3 - <<'END'\nraise RuntimeError('CUDA error: device-side assert triggered\\nCUDA kernel errors might be "
        "asynchronously reported.\\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\\n')\nEND",
        "RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported.\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."),
}  # fmt: skip
# what a script prints then
CLOSES = {
    "a trap": "echo CLEANUP",
    "a monitor": "echo CLEANUP; for i in 1 2 3 4 5; do echo 'GPU util 0 %'; done",
    "another monitor": 'for i in 1 2 3 4 5; do echo "GPU util $i %"; done',
    "an upload": "echo 'uploading logs to s3://bucket'; echo 'upload done'",
    "what a logger had kept": "for row in $(seq 100); do echo row $row; done",
    "a report": "echo 'training failed, see above' >&2",
    "a trap for errors": "echo 'ERROR: training failed (exit code 1)' >&2",
    "a line": "echo 'Error on line 3: command exited with 1' >&2",
    "a word": "echo bye >&2",
    "a quoted command": "echo \"ERROR: line 3: command 'python3 -c x' failed\" >&2",
    "nothing to do": "echo 'no outputs to upload'",
    "a tool that isn't there": "no_such_smi",
    "tables": "df -h /; ls -la .; echo; free -m 2>/dev/null",
    "a trace": "set -x; exit $code",
    "times": "times >&2; time true",
}


@pytest.mark.parametrize(("raises", "closes"), pairs(RAISES, CLOSES))
def test_what_inline_code_raises_leads_before_what_only_closes(tmp_path: Path, raises: str, closes: str) -> None:
    words, lead = RAISES[raises]
    text = f"{words}\ncode=$?\n{CLOSES[closes]}\nexit $code"
    reason = failure_of(tmp_path, *run(tmp_path, {"main.sh": text}, apart="'" in lead)).reason
    assert reason.startswith(lead)
    if "json" not in lead:
        assert reason.startswith(f"{lead}\nrank 5 (local rank 1) on algo-3, exit code 1")


PRE = {
    "pre.py": "print('step 1'); raise ValueError('bad shard 7')",
    "long.py": "def end(text): raise ValueError(text)\nend('bad shard 7')",
    "train.py": "def step(): raise KeyError('label')\nstep()",
    "text.py": "import sys\nsys.exit('no checkpoint in /ckpt')",
    "ok.py": "print('ok')",
    "quiet.py": "raise SystemExit(3)",
    "in.sh": "cp /no/model.bin out",
    "makefile": "all:\n\tcp /no/model.bin out\npre:\n\tpython3 pre.py",
}
BAD, NO = "ValueError: bad shard 7", ": No such file or directory\nrank 5"
# what ends the script behind a program that raised -> how the reason begins
BEHIND = {
    **{words: f"{words.split()[0]}: cannot stat '/no/a'{NO}" for words in ("cp /no/a b", "mv /no/a b")},
    **dict.fromkeys(("bash in.sh", "f() { bash in.sh; }\nf", "set -e\nbash -c 'sh in.sh'"), "cp: cannot stat"),
    "echo 'ERROR: no validation data' >&2; exit 4": "ERROR: no validation data\nrank 5",
    "echo 'ERROR: no validation data'; exit 4": "ERROR: no validation data\nrank 5",
    "echo 'it is elsewhere' >&2; exit 4": "rank 5 (local rank 1) on algo-3, exit code 4\nits last line: it is",
    "pythn3 train.py": "main.sh: line 2: pythn3: command not found\n",
    "set -u; cp model.bin $MODEL_DIR_X": "main.sh: line 2: MODEL_DIR_X: unbound variable\n",
    ": ${DATA:?no data dir}": "main.sh: line 2: DATA: no data dir\n",
    "for n in $(seq 60); do echo row $n >&2; done\nmv /no/a b": f"mv: cannot stat '/no/a'{NO}",
    "python3 train.py": "KeyError: 'label'\nrank 5",
    "python3 text.py": "no checkpoint in /ckpt\nrank 5",
    "python3 -Z": "nknown option: -Z\nrank 5",
    "tar xf /no/a": "tar: ",
    "set -o pipefail; cat /no/a | wc -l": f"cat: /no/a{NO}",
    "curl -sSf http://127.0.0.1:9/x": "curl: (7) Failed to connect",
    "( cd /no/a )": f"main.sh: line 2: cd: /no/a{NO}",
    "[ 1 -eq x ]": "main.sh: line 2: [: x: integer expression expected\n",
    "make": "cp: cannot stat",
    "cp /no/a b; c=$?; echo 'copying failed' >&2; exit $c": f"cp: cannot stat '/no/a'{NO}",
}  # fmt: skip


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("words", BEHIND)
def test_what_ends_a_script_leads_behind_an_exception(tmp_path: Path, words: str, apart: bool) -> None:
    before = "long.py" if "mv" in words.split("\n")[0] else "pre.py"
    reason = failure_of(
        tmp_path, *run(tmp_path, {**PRE, "main.sh": f"python3 {before} || true\n{words}"}, apart)
    ).reason
    assert reason.removeprefix("U").removeprefix("u").startswith(BEHIND[words])
    assert f"\nprinted before: {BAD}" in reason


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "python3 pre.py; c=$?; echo 'training failed'; exit $c",
        "trap 'echo cleaning' EXIT; python3 pre.py",
        "trap 'python3 ok.py >&2' EXIT; python3 pre.py",
        "python3 pre.py || { echo failed; exit 1; }",
        "python3 pre.py || { echo 'ERROR: preparing the data failed' >&2; exit 3; }",
        "python3 pre.py || exit 7",
        "python3 pre.py; c=$?; echo \"rc: $c\"; echo 'upload: out to s3://b/out'; exit $c",
        "cp /no/a b || true\nset -e\npython3 pre.py\nmv a b",
        "make pre",
    ],
)
def test_the_exception_leads_where_nothing_else_ended_the_script(tmp_path: Path, text: str, apart: bool) -> None:
    reason = failure_of(tmp_path, *run(tmp_path, {**PRE, "main.sh": text}, apart)).reason
    assert reason.startswith(f"{BAD}\nrank 5")


@pytest.mark.parametrize("tells", [True, False], ids=["a kernel that tells", "an older one"])
@pytest.mark.parametrize(
    ("text", "lead", "below"),
    [
        ("python3 pre.py > log 2>&1", BAD, False),
        ("cp /no/a b\nset -e\npython3 pre.py \\\n --lr 1 > log 2>&1\nmv a b", BAD, False),
        ("python3 pre.py > log 2>&1 || true; test -f x", "rank 0", True),
        ("python3 pre.py > log 2>&1\nmv /no/a b", "mv: cannot stat", True),
        ("python3 long.py || true\necho 'ERROR: no data' >&2; exit 4", "ERROR: no data", True),
        ("python3 pre.py || true\npython3 quiet.py", "rank 0", True),
    ],
)  # fmt: skip
def test_what_a_python_told(tmp_path: Path, text: str, lead: str, below: bool, tells: bool) -> None:
    for name, words in {**PRE, "run.sh": text}.items():
        (tmp_path / name).write_text(f"{words}\n")
    (tmp_path / "python3").symlink_to(sys.executable)
    older = (
        ""
        if tells
        else "from musterpoint.core.processes import process_tree; process_tree.exit_status = lambda pidfd: None\n"
    )
    launch = f"{older}from musterpoint.cli.main import main\nmain(['launch', '--launcher', 'script', 'run.sh'])"
    source = str(Path(musterpoint.__file__).parent.parent)
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LC_ALL": "C", "PYTHONPATH": source}
    done = subprocess.run([sys.executable, "-c", launch], cwd=tmp_path, env=environ, timeout=50, capture_output=True)
    if "quiet" in text and not tells:
        lead, below = BAD, False  # only its status tells that it came last
    (failure,) = tmp_path.glob("muster-jobs/*/hosts/*/failure")
    assert failure.read_text().startswith(lead), done.stderr
    assert (f"\nprinted before: {BAD}" in failure.read_text()) == below
