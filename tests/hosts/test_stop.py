"""A stop reaches every rank on every host, leaves it its time, and is no failure."""

from __future__ import annotations

import signal

from ..ports import free_port


def test_a_stop_during_the_roll_call(local) -> None:  # type: ignore[no-untyped-def]
    """One host never comes up; the other is told to stop while it waits."""
    local.environ.update(
        SM_HOSTS='["algo-1", "algo-2"]', SM_CURRENT_HOST="algo-1", MUSTER_HOSTS_FILE=str(local.folder / "hosts"),
        MUSTER_ROLLCALL_PORT=str(free_port()), MUSTER_SECRET="s3cret-for-this-test",
    )  # fmt: skip
    (local.folder / "hosts").write_text("127.0.0.11 algo-1\n127.0.0.12 algo-2\n")
    program = local.program("print('never')")
    local.command = lambda *words, output=None: [local.python, "-m", "musterpoint", "launch", *map(str, words)]
    process = local.start(program)
    assert process.stderr is not None
    while "waiting for" not in (line := process.stderr.readline()):
        assert line, "it says whom it waits for"
    process.send_signal(signal.SIGTERM)
    ran = local.finish(process)
    assert ran.code == 143, ran.stderr
    assert "never" not in ran.stdout
