"""The command of a host: one process in its place, or several whose end is the host's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.local.job_request import LocalJob
from musterpoint.local.platforms import start
from musterpoint.local.platforms.commands import prepare_directory, working_directory
from musterpoint.local.platforms.local_platform import HostProcess
from musterpoint.local.tree import Layout


def python(code: str, cwd: str = "/", **environment: str) -> HostProcess:
    return HostProcess((sys.executable, "-S", "-c", code), environment, cwd)


def test_one_process_takes_the_commands_place(tmp_path: Path) -> None:
    code = "import os; print(os.getpid(), os.getcwd(), os.environ['A'])"
    with subprocess.Popen(start.command([python(code, str(tmp_path), A="b c")]), stdout=subprocess.PIPE) as host:
        shown, _ = host.communicate()
    assert shown.decode().split(maxsplit=2) == [str(host.pid), str(tmp_path), "b c\n"]
    assert start.command([HostProcess(("train",))]) == ["train"]


@pytest.mark.parametrize(("ends", "code"), [(("0", "0"), 0), (("0", "7"), 7), (("'kill'", "0"), 137)])
def test_the_first_code_is_the_hosts(ends: tuple[str, str], code: int) -> None:
    work = "import os, sys; end = {}; os.kill(os.getpid(), 9) if end == 'kill' else sys.exit(end)"
    assert subprocess.run(start.command([python(work.format(end)) for end in ends]), check=False).returncode == code


def test_a_stop_reaches_every_process(tmp_path: Path) -> None:
    work = (  # a handler could run just before the wait for its signal begins
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [15]);"
        "os.write(1, b'ready\\n'); signal.sigwait([15]); sys.exit(int(os.environ['CODE']))"
    )
    processes = [python(work, str(tmp_path), CODE=code) for code in ("0", "3")]
    with subprocess.Popen(start.command(processes), stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        assert [host.stdout.readline() for _ in processes] == [b"ready\n", b"ready\n"]
        os.kill(host.pid, signal.SIGTERM)
        assert host.wait() == 3


def test_a_command_that_is_missing_is_named() -> None:
    missing = HostProcess(("no-such-command",))
    done = subprocess.run(start.command([missing, missing]), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (127, "no-such-command: No such file or directory\n" * 2)


def test_what_a_host_writes_stays_its_own(tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "outputs").mkdir(parents=True)
    (code / "package").mkdir()
    (code / "train.py").write_text("")
    layout = Layout(str(code / "muster-jobs" / "job"))
    job = LocalJob("job", ("node-0", "node-1"), "train.py", str(code))
    for host in job.hosts:
        prepare_directory(job, host, layout, ("outputs",))
    here = Path(working_directory(layout, "node-0"))
    (here / "outputs" / "model").write_text("")
    assert sorted(os.listdir(here)) == ["outputs", "package", "train.py"], "the job's own folder isn't part of the code"
    assert os.path.realpath(here / "train.py") == str(code / "train.py")
    assert not os.listdir(code / "outputs")
    assert not os.listdir(Path(working_directory(layout, "node-1")) / "outputs")
    assert os.path.isdir(layout.tree("node-0"))
