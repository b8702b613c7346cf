"""The pump's promises: every byte exact, whole lines between streams, nobody but its thread ever waits."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from musterpoint.core.processes.pump import BUFFER, HOLD_SECONDS, Pump
from musterpoint.core.processes.streams import FORWARD_ALL, OutputOptions, Prefix

from ....examples import examples

if sys.platform == "win32":
    pytest.skip("pipes of processes", allow_module_level=True)


class Reader:
    """Reads a pipe to its end in a thread, as the platform's log agent does."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        self.data = b""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Reader:
        self._thread.start()
        return self

    def _run(self) -> None:
        while data := os.read(self.read_end, 1 << 16):
            self.data += data

    def wait_for(self, text: bytes) -> None:
        until(lambda: text in self.data, f"{text!r} in the output")

    def close(self) -> bytes:
        os.close(self.write_end)
        self._thread.join(500)
        os.close(self.read_end)
        return self.data


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 500
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


@pytest.fixture
def out() -> Iterator[Reader]:
    yield Reader().start()


def shared(out: Reader, options: OutputOptions = FORWARD_ALL, streams: int = 1) -> Pump:
    pump = Pump(options, out_fd=out.write_end, err_fd=out.write_end, streams=streams)
    pump.start()
    return pump


def write_all(end: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(end, view) :]


def finish(pump: Pump, out: Reader, *write_ends: int) -> bytes:
    for end in write_ends:
        os.close(end)
    assert pump.drain(500)
    return out.close()


@pytest.mark.parametrize(
    "data",
    [b"plain\n", b"no newline at the end", b"\r 10%\r 20%\n", b"\xff\xfe\x00\n\xc3", b"\n\n\n", b"a\n" * 300_000,
     b"x" * 700_000],
    ids=["plain", "no-last-newline", "carriage-returns", "invalid-utf8", "empty-lines", "many-lines", "one-long-line"],
)  # fmt: skip
@pytest.mark.parametrize("streams", [1, 2])
def test_bytes_come_out_as_they_went_in(out: Reader, data: bytes, streams: int) -> None:
    pump = shared(out, streams=streams)
    ends = [pump.open(rank)[0] for rank in range(streams)]
    write_all(ends[0], data)
    assert finish(pump, out, *ends) == data


def test_one_stream_passes_a_partial_line_at_once(out: Reader) -> None:
    pump = shared(out)
    end, same = pump.open(0)
    assert end == same
    os.write(end, b"(Pdb) ")
    out.wait_for(b"(Pdb) ")
    finish(pump, out, end)


chunks = st.lists(
    st.tuples(st.integers(0, 2), st.binary(min_size=1, max_size=40) | st.sampled_from([b"\n", b"line\n", b"\r"])),
    max_size=40,
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chunks)
def test_each_of_several_streams_keeps_its_bytes_and_order(parts: list[tuple[int, bytes]]) -> None:
    # each stream draws its bytes from its own alphabet, so that its part of the output can be told
    out = Reader().start()
    pump = shared(out, streams=3)
    ends = [pump.open(rank)[0] for rank in range(3)]
    sent: dict[int, bytes] = {0: b"", 1: b"", 2: b""}
    for rank, part in parts:
        own = bytes(byte % 64 + 64 * (rank + 1) for byte in part if byte != 10)
        own += b"\n" if part.endswith(b"\n") else b""
        os.write(ends[rank], own)
        sent[rank] += own
    got = finish(pump, out, *ends)
    for rank, own in sent.items():
        assert bytes(b for b in got if b // 64 == rank + 1) == own.replace(b"\n", b"")
    assert got.count(b"\n") == sum(own.count(b"\n") for own in sent.values())
    assert [pump.tail(rank) for rank in range(3)] == [sent[0], sent[1], sent[2]]


@pytest.mark.parametrize(("hold", "buffer"), [(HOLD_SECONDS, BUFFER), (0.0, 1000)], ids=["usual", "on a slow machine"])
def test_several_ranks_never_break_each_others_lines(
    out: Reader, hold: float, buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("musterpoint.core.processes.pump.HOLD_SECONDS", hold)
    monkeypatch.setattr("musterpoint.core.processes.pump.BUFFER", buffer)
    program = "import os\nfor i in range(3000): os.write(1, b'%s' * 90 + b'\\n')"
    pump = Pump(out_fd=out.write_end, err_fd=out.write_end, streams=4)
    ranks = []
    for rank in range(4):
        end, _ = pump.open(rank)
        ranks.append(subprocess.Popen([sys.executable, "-I", "-S", "-c", program % "abcd"[rank]], stdout=end))
        os.close(end)
    pump.start()
    assert [rank.wait() for rank in ranks] == [0] * 4
    lines = finish(pump, out).split(b"\n")
    assert len(lines) == 4 * 3000 + 1
    assert {len(set(line)) for line in lines if line} == {1}
    assert {len(line) for line in lines} == {0, 90}


def test_stdout_and_stderr_of_one_file_keep_the_order_of_writing(out: Reader) -> None:
    program = "import os\nfor i in range(500): os.write(1 + i % 2, b'%d\\n' % i)"
    pump = shared(out)
    end, _ = pump.open(0)
    subprocess.run([sys.executable, "-I", "-S", "-c", program], stdout=end, stderr=end, check=True)
    assert finish(pump, out, end) == b"".join(b"%d\n" % i for i in range(500))


def test_separate_files_get_separate_streams(out: Reader) -> None:
    err = Reader().start()
    pump = Pump(out_fd=out.write_end, err_fd=err.write_end)
    pump.start()
    to_out, to_err = pump.open(0)
    os.write(to_out, b"result")
    os.write(to_err, b"warning\n")
    pump.write_message(b"musterpoint: hello\n")
    assert finish(pump, out, to_out, to_err) == b"result"
    assert sorted(err.close().splitlines()) == [b"musterpoint: hello", b"warning"]
    assert (pump.tail(0), pump.stdout_tail(0)) == (b"warning\n", b"result")


def test_a_partial_line_waits_for_its_end_then_goes_as_it_is(out: Reader) -> None:
    pump = Pump(out_fd=out.write_end, err_fd=out.write_end, streams=2)
    first, second = pump.open(0)[0], pump.open(1)[0]
    os.write(first, b"half")
    os.write(second, b"whole\n")
    started = time.monotonic()
    pump.start()
    out.wait_for(b"half")
    assert time.monotonic() - started >= HOLD_SECONDS / 2
    assert out.data == b"whole\nhalf"
    assert finish(pump, out, first, second) == b"whole\nhalf"


EVER = 10_000.0


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unfinished lines are held for ever, so what comes out wasn't waited for."""
    monkeypatch.setattr("musterpoint.core.processes.pump.HOLD_SECONDS", EVER)


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("end", [b"\n", b"\r"], ids=["line end", "carriage return"])
def test_a_held_piece_goes_out_with_its_end(out: Reader, end: bytes) -> None:
    pump = shared(out, streams=2)
    first, second = pump.open(0)[0], pump.open(1)[0]
    os.write(first, b"half")
    os.write(second, b"whole\n")
    out.wait_for(b"whole\n")
    os.write(first, b" done" + end + b"more")
    out.wait_for(b"half done" + end)
    assert out.data == b"whole\nhalf done" + end
    assert finish(pump, out, first, second) == b"whole\nhalf done" + end + b"more"


@pytest.mark.usefixtures("held")
def test_a_progress_bar_is_shown_beside_other_ranks(out: Reader) -> None:
    pump = shared(out, streams=2)
    first, second = pump.open(0)[0], pump.open(1)[0]
    for percent in range(5):
        os.write(first, b"\r%d %%" % percent)
    out.wait_for(b"\r3 %\r")
    assert finish(pump, out, first, second) == b"\r0 %\r1 %\r2 %\r3 %\r4 %"


def test_a_line_that_never_ends_is_held_from_its_first_byte_on(out: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("musterpoint.core.processes.pump.HOLD_SECONDS", 0.05)
    pump = shared(out, streams=2)
    first, second = pump.open(0)[0], pump.open(1)[0]
    dots = 0

    def shown_while_it_goes_on() -> bool:
        nonlocal dots
        os.write(first, b".")
        dots += 1
        return bool(out.data)

    until(shown_while_it_goes_on, "dots")
    assert finish(pump, out, first, second) == b"." * dots


@pytest.mark.usefixtures("held")
def test_messages_wait_no_longer_than_before_for_what_is_held(out: Reader) -> None:
    pump = shared(out, streams=2)
    first, second = pump.open(0)[0], pump.open(1)[0]
    os.write(first, b"half")
    os.write(second, b"whole\n")
    out.wait_for(b"whole\n")
    pump.write_message(b"musterpoint: one\n")
    out.wait_for(b"one\n")
    os.write(first, b" done\r")
    out.wait_for(b"done\r")
    pump.write_message(b"musterpoint: two\n")
    out.wait_for(b"two\n")
    os.write(first, b"more")
    expected = b"whole\nmusterpoint: one\nhalf done\r\nmusterpoint: two\nmore"
    assert finish(pump, out, first, second) == expected


@pytest.mark.usefixtures("held")
def test_one_stream_alone_is_never_held_beside_messages(out: Reader) -> None:
    pump = shared(out)
    end, _ = pump.open(0)
    for number in range(50):
        pump.write_message(b"musterpoint: %d\n" % number)
        for text in (b"half %d" % number, b" done\nnext %d" % number, b" too %d\n" % number):
            os.write(end, text)
            out.wait_for(text.splitlines(keepends=True)[-1])
    ours = b"musterpoint: "
    text = finish(pump, out, end)
    assert [line for line in text.splitlines() if ours in line] == [ours + b"%d" % number for number in range(50)]
    assert text.count(b" done\n") == text.count(b" too") == 50


def test_our_own_messages_stand_between_whole_lines(out: Reader) -> None:
    pump = shared(out)
    end, _ = pump.open(0)
    os.write(end, b"line\nhalf ")
    out.wait_for(b"half ")
    pump.write_message(b"musterpoint: one\n")
    os.write(end, b"done\nmore\n")
    out.wait_for(b"more")
    until(lambda: b"one" in out.data, "our line")
    text = finish(pump, out, end)
    assert sorted(line for line in text.splitlines() if line) in (
        [b"half done", b"line", b"more", b"musterpoint: one"],
        [b"done", b"half ", b"line", b"more", b"musterpoint: one"],  # the machine was busy for longer than that
    )


PREFIXED: dict[Prefix, bytes] = {
    "rank": b"[rank 0] a\n[rank 0] b\n[torchrun] start\n",
    "host": b"[algo-1:0] a\n[algo-1:0] b\n[algo-1:torchrun] start\n",
    "mpi": b"[1,mpirank:0,algo-1]<stdout>:a\n[1,mpirank:0,algo-1]<stdout>:b\nstart\n",
}


def test_a_message_when_all_is_over_begins_a_line_of_its_own(out: Reader) -> None:
    pump = shared(out)
    end, _ = pump.open(None, name="mpirun")
    os.write(end, b"its complaint\n\0")  # Open MPI's boxes may end so
    os.close(end)
    assert pump.drain(500)
    pump.write_message(b"musterpoint: first\n")
    pump.write_message(b"musterpoint: second\n")
    assert out.close() == b"its complaint\n\0\nmusterpoint: first\nmusterpoint: second\n"


def test_streams_that_a_prefix_tells_apart_stay_apart(out: Reader) -> None:
    pump = shared(out, OutputOptions(prefix="mpi", host="algo-1"), streams=2)
    ends = pump.open(0)
    for end, label in zip(ends, (b"<stdout>:line\n", b"<stderr>:line\n")):
        os.write(end, b"line\n")
        out.wait_for(label)
    assert finish(pump, out, *ends) == b"[1,mpirank:0,algo-1]<stdout>:line\n[1,mpirank:0,algo-1]<stderr>:line\n"


def test_chatter_ends_no_silence(out: Reader) -> None:
    pump = shared(out, OutputOptions(chatter=re.compile(rb"(?:\(autoscaler [^\n]*\n)+")))
    end, _ = pump.open(0)
    began = pump.last_output
    os.write(end, b"(autoscaler +6s) Tip\n(autoscaler +41s) Error\n")
    out.wait_for(b"Error\n")
    assert pump.last_output == began
    os.write(end, b"(autoscaler +77s) Error\nstep 1\n")
    out.wait_for(b"step 1\n")
    assert pump.last_output > began
    finish(pump, out, end)


@pytest.mark.parametrize("mode", PREFIXED)
def test_prefixes(out: Reader, mode: Prefix) -> None:
    pump = shared(out, OutputOptions(prefix=mode, host="algo-1"), streams=2)
    rank, launcher = pump.open(0)[0], pump.open(None, "torchrun")[0]
    os.write(rank, b"a\nb\n")
    out.wait_for(b"b\n")
    os.write(launcher, b"start\n")
    assert finish(pump, out, rank, launcher) == PREFIXED[mode]


def test_a_prefix_stands_at_the_start_of_each_line_only(out: Reader) -> None:
    pump = shared(out, OutputOptions(prefix="rank"))
    end, _ = pump.open(3)
    os.write(end, b"half")
    out.wait_for(b"half")
    os.write(end, b" done\nnext\nlast")
    assert finish(pump, out, end) == b"[rank 3] half done\n[rank 3] next\n[rank 3] last"


def test_ranks_of_a_launcher_that_is_a_rank_itself_are_told_apart(out: Reader) -> None:
    pump = shared(out, streams=2)
    ends = [pump.open(0, name)[0] for name in ("rank 0", "1.")]
    for end, text in zip(ends, (b"outer\n", b"inner\n"), strict=True):
        os.write(end, text)
    assert (pump.tail(0, "rank 0"), pump.tail(0, "1.")) == (b"outer\n", b"inner\n")
    finish(pump, out, *ends)


def test_only_the_chosen_ranks_are_forwarded_and_all_are_kept(out: Reader, tmp_path: Any) -> None:
    pump = shared(out, OutputOptions(log_ranks={0}, log_dir=str(tmp_path / "ranks")), streams=2)
    ends = [pump.open(rank)[0] for rank in (0, 1)]
    ends.append(pump.open(None, "torchrun")[0])
    for end, text in zip(ends, (b"zero\n", b"one", b"launcher\n"), strict=True):
        os.write(end, text)
    out.wait_for(b"launcher\n")
    assert sorted(out.data.splitlines()) == [b"launcher", b"zero"]
    pump.show(0)
    pump.show(1)
    assert finish(pump, out, *ends).endswith(b"one\n")
    assert (pump.tail(1), pump.tail(None, "torchrun")) == (b"one", b"launcher\n")
    assert {path.name: path.read_bytes() for path in (tmp_path / "ranks").iterdir()} == {
        "rank-0.log": b"zero\n", "rank-1.log": b"one", "torchrun.log": b"launcher\n",
    }  # fmt: skip


@contextlib.contextmanager
def full() -> Iterator[None]:
    """No file grows, as on a full disk; pipes work. No fixture: pytest's own report may be a file."""
    import resource

    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_a_full_disk_costs_the_file_and_one_warning_only(out: Reader, tmp_path: Any) -> None:
    with full():
        pump = shared(out, OutputOptions(log_dir=str(tmp_path)))
        end, _ = pump.open(0)
        for text in (b"one\n", b"two\n"):
            os.write(end, text)
            out.wait_for(text)
        text = finish(pump, out, end)
    assert text.count(b"File too large") == 1
    assert [line for line in text.splitlines() if b"musterpoint" not in line and line] == [b"one", b"two"]


def test_when_each_process_wrote_first_and_when_none_did(out: Reader) -> None:
    pump = shared(out)
    before = time.time()
    ends = [pump.open(rank)[0] for rank in range(2)]
    time.sleep(0.05)
    os.write(ends[0], b"first\n")
    out.wait_for(b"first\n")
    first, never = pump.first_output(0), pump.first_output(1)
    assert first is not None
    assert before + 0.05 <= first <= time.time()
    since, seconds = pump.longest_silence()
    assert (never, pump.first_output(7)) == (None, None)
    assert seconds >= 0.04
    assert since <= first
    finish(pump, out, *ends)


def test_a_rank_may_come_late(out: Reader) -> None:
    pump = shared(out)
    first, _ = pump.open(0)
    os.write(first, b"first\n")
    out.wait_for(b"first\n")
    late, _ = pump.open(1)
    os.write(late, b"late\n")
    assert finish(pump, out, first, late) == b"first\nlate\n"


def test_a_blocked_reader_blocks_nobody_else() -> None:
    out = Reader()  # not started: nobody reads
    pump = shared(out)
    end, _ = pump.open(0)
    os.set_blocking(end, False)
    written = 0
    deadline = time.monotonic() + 500
    while written < 300_000 and time.monotonic() < deadline:
        try:
            written += os.write(end, b"%09d\n" % (written // 10))
        except BlockingIOError:
            time.sleep(0.001)
    os.set_blocking(end, True)
    before = time.monotonic()
    pump.write_message(b"musterpoint: still here\n")
    tail = pump.tail(0)
    assert time.monotonic() - before < 100
    assert tail.endswith(b"%09d\n" % (written // 10 - 1))
    assert len(tail) == 64 << 10
    assert not pump.drain(0.05)
    out.start()
    out.wait_for(b"still here")
    os.close(end)
    until(lambda: len(out.data.replace(b"musterpoint: still here\n", b"")) >= written, "every byte")
    assert out.close().replace(b"musterpoint: still here\n", b"") == b"".join(
        b"%09d\n" % index for index in range(written // 10)
    )


def test_a_reader_that_went_away_does_not_stop_the_ranks(tmp_path: Any) -> None:
    out = Reader()
    os.close(out.read_end)
    pump = shared(out, OutputOptions(log_dir=str(tmp_path)))
    end, _ = pump.open(0)
    data = b"line\n" * 200_000
    write_all(end, data)
    os.close(end)
    assert pump.drain(500)
    assert (tmp_path / "rank-0.log").read_bytes() == data
    os.close(out.write_end)


def test_a_nonblocking_stdout_loses_nothing() -> None:
    out = Reader()
    os.set_blocking(out.write_end, False)
    pump = shared(out)
    end, _ = pump.open(0)
    out.start()
    data = bytes(range(256)) * 4000
    write_all(end, data)
    assert finish(pump, out, end) == data


def test_a_grandchild_that_holds_the_pipe_delays_nothing(out: Reader) -> None:
    pump = shared(out)
    end, _ = pump.open(0)
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE, stdout=end) as child:
        os.write(end, b"last words")
        before = time.monotonic()
        assert finish(pump, out, end) == b"last words"
        assert time.monotonic() - before < 200, "nobody waits for its end"
        child.communicate(b"\n")


def test_the_last_bytes_of_an_ended_rank_are_in_its_tail_at_once(out: Reader) -> None:
    for _ in range(20):
        pump = Pump(out_fd=out.write_end, err_fd=out.write_end)
        end, _ = pump.open(0)
        os.write(end, b"RuntimeError: boom\n")
        assert pump.tail(0) == b"RuntimeError: boom\n"  # the thread isn't even started
        os.close(end)
        assert pump.drain(500)
    assert out.close() == b"RuntimeError: boom\n" * 20
    assert pump.tail(1) == pump.stdout_tail(0) == b""
