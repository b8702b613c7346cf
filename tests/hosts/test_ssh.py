"""ssh between the hosts of a job: real servers with keys of that job alone, whose sessions belong to the job."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from musterpoint.core.launch.ssh_settings import OPEN_NOTE

from ..ports import free_port
from .conftest import together

pytestmark = pytest.mark.netns

JOB = ("--hosts", "2", "--backend", "netns", "--launcher", "ssh", "--env", "MUSTER_TEST_WORD=a word $of 'the' job")

CALLS = """
[ "$(cut -d' ' -f1 "$MUSTER_HOSTFILE" | paste -sd,)" = algo-1,algo-2 ] && echo both hosts
ssh algo-2 'echo "over there: $SM_CURRENT_HOST, $MUSTER_TEST_WORD, rank ${RANK-none}"'
echo from stdin | ssh algo-2 'ssh algo-1 cat'
echo copied > "$1"; scp -q "$1" algo-2:"$1.there"; cat "$1.there"
ssh algo-2 'exit 7'; echo "status $?"
folder=$(dirname "$MUSTER_HOSTFILE")
there() { sed -n "s/^  $1 //p" "$folder/ssh_config" | sed -n 2p; }
/usr/bin/ssh -F none -i "$2" -p "$(there Port)" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \\
    -o BatchMode=yes -o LogLevel=QUIET "$(there HostName)" echo a stranger was let in || echo "a stranger: $?"
ssh -W 127.0.0.1:9 algo-2 2>&1
stat -c %a "$folder" "$folder/key"
exit 5
"""


def test_programs_that_insist_on_ssh_reach_every_host(local, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """By name, both ways, with the job's environment; nobody else gets in, and nothing of it is left."""
    stranger, folder = tmp_path / "stranger", tmp_path / "keys"
    folder.mkdir(mode=0o700)
    local.environ["TMPDIR"] = str(folder)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(stranger)], check=True)
    ran = local.run(*JOB, local.program(CALLS, "calls.sh"), tmp_path / "copied", stranger)
    assert ran.code == 5, ran.stdout + ran.stderr
    said = [line.removeprefix("algo-1 | ") for line in ran.stdout.splitlines() if "musterpoint:" not in line]
    assert said == [
        "both hosts", "over there: algo-2, a word $of 'the' job, rank none", "from stdin", "copied", "status 7",
        "a stranger: 255", "stdio forwarding failed", "700", "600",
    ], ran.stdout  # fmt: skip
    sessions = [event for event in ran.events("algo-2") if event["event"] == "ssh-session"]
    assert [event["name"] for event in sessions][:2] == ["ssh session 1 from algo-1", "ssh session 2 from algo-1"]
    assert "SM_CURRENT_HOST" in sessions[0]["command"]
    assert list(folder.iterdir()) == []


SAVES = """
import os, signal, subprocess, sys, time
if sys.argv[2:]:
    def save(signo, frame):
        with open(sys.argv[1], "w") as file:
            file.write(f"saved on {os.environ['SM_CURRENT_HOST']} at signal {signo}")
        sys.exit()
    signal.signal(signal.SIGTERM, save)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # which nobody ends
    print("trains over there", flush=True)
    time.sleep(600)
subprocess.run(["ssh", "algo-2", sys.executable, os.path.abspath(__file__), sys.argv[1], "there"])
"""


def test_a_stop_reaches_what_ssh_has_started(local, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    saved = tmp_path / "saved"
    ran = local.stop(*JOB, local.program(SAVES), saved, when="trains over there", lines=1)
    assert ran.code == 143, ran.stdout + ran.stderr
    assert saved.read_text() == "saved on algo-2 at signal 15"
    ended = [event for event in ran.events("algo-2") if event["event"] == "service-ended"]
    assert sorted(event["name"] for event in ended) == ["ssh session 1 from algo-1", "sshd"]


ASKS = """
ssh n2 'echo "on n2"; ssh n1 true 2> /dev/null || echo "no way back"'
"""


def test_without_a_secret_only_the_leader_may_call(python: str, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "asks.sh").write_text(ASKS)
    (tmp_path / "hosts").write_text("127.0.0.141 n1\n127.0.0.142 n2\n")
    environ |= {
        "MUSTER_HOSTS_FILE": str(tmp_path / "hosts"), "MUSTER_ROLLCALL_PORT": str(free_port()), "TMPDIR": str(tmp_path),
        "MUSTER_MASTER_PORT": "0", "SM_HOSTS": '["n1", "n2"]', "SAGEMAKER_BASE_DIR": str(tmp_path),
    }  # fmt: skip
    words = [python, "-m", "musterpoint", "launch", "--launcher", "ssh", str(tmp_path / "asks.sh")]
    tmp_path.chmod(0o700)
    codes, said = together([
        subprocess.Popen(words, env={**environ, "SM_CURRENT_HOST": host}, cwd="/", stdin=subprocess.DEVNULL, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for host in ("n1", "n2")
    ])  # fmt: skip
    assert codes == [0, 0], said
    assert "\non n2\n" in said[0] and "\nno way back\n" in said[0]
    assert OPEN_NOTE in said[0]
    assert "127.0.0.142 called this host's ssh server, and is no host that may; it was sent away" in said[0]
