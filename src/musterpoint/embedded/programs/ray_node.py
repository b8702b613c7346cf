"""A node of Ray's cluster: ``ray_node.py FOLDER SECONDS start OPTIONS...``, which is ``ray start OPTIONS...``.

Run by the user's Python as a program of its own, never imported by musterpoint. A worker first waits until its head
listens: ``ray start`` itself gives up after 20 s. What ``ray start`` prints on stdout is advice to people at a terminal
(``ray stop``, which would end other jobs' clusters too), so only its warnings and errors are shown. ``FOLDER`` is made
before Ray makes it, for this user alone. Where a signal killed one of Ray's processes, the same one ends this program:
``ray start`` would end with 1, as after any error.

While the node starts, the end of its GCS server or raylet is noticed at once (:class:`Starting`); Ray would go on
asking for the node. On a slow machine Ray's own limits would end a healthy start; only ``SECONDS`` count.
"""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Callable, TextIO

SAY_SECONDS = 30.0
TRY_SECONDS = 0.1
LEVEL = re.compile(r"[\d-]+ [\d:,]+\t(\w+) \S+ -- ")
QUIET = ("INFO", "SUCC")
KILLED = re.compile(r"\[exit code=-(\d+)\]")
INFORMATION = re.compile(r"\[state-dump\]|\[[\d-]+ [\d:,]+ I \d+ \d+\]")
"""Lines of a raylet's log that report nothing wrong."""
SEVERE = re.compile(r"\[[\d-]+ [\d:,]+ [CEF] \d+ \d+\]")
NEEDED = ("gcs_server", "raylet")
"""Processes without which a node doesn't come up, as ``services.start_ray_process`` names them."""
LONGEST_TAIL, TAIL_BYTES, LONGEST_LINE = 10, 1 << 16, 500


def main() -> None:
    folder, seconds, *words = sys.argv[1:]
    # Ray and what it needs are not the user's modules beside the program
    own = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path = [entry for entry in sys.path if os.path.abspath(entry) not in own]
    os.makedirs(folder, 0o700, exist_ok=True)
    head = next((word.partition("=")[2] for word in words if word.startswith("--address=")), "")
    if head:
        wait_for(head, float(seconds))
    try:
        from ray.scripts.scripts import main as ray  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        sys.exit(f"Ray can't start: {sys.executable} can't import ray.scripts.scripts ({error})")
    be_patient(float(seconds), Starting(sys.stderr))
    sys.stdout = Errors(sys.stderr, lambda signo: os.kill(os.getpid(), signo))
    sys.argv = ["ray", *words]
    ray()


def be_patient(seconds: float, starting: Starting) -> None:
    """Gives every step of a node's start ``seconds``, as long as its processes live. Ray's own limits, 15 to 60 s, are
    too short on a loaded machine.

    ``Node.__init__`` of ``ray/_private/node.py`` calls these functions.
    """
    try:
        from ray._private import node, services  # type: ignore[import-untyped,import-not-found,unused-ignore]
        from ray._private import ray_constants as limits  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        return  # another version, whose limits are its own
    if hasattr(limits, "NUM_REDIS_GET_RETRIES"):  # of connecting to the GCS server, a second or more each
        limits.NUM_REDIS_GET_RETRIES = max(limits.NUM_REDIS_GET_RETRIES, int(seconds))
    if hasattr(node, "get_all_node_info_until_retrieved"):
        node.get_all_node_info_until_retrieved = patient(node.get_all_node_info_until_retrieved, seconds)
    if hasattr(services, "get_node"):
        services.get_node = starting.until(patient(services.get_node, seconds))
    if hasattr(services, "start_ray_process"):
        services.start_ray_process = starting.watching(services.start_ray_process)
    if hasattr(services, "start_api_server"):
        services.start_api_server = without_dashboard(services.start_api_server)
    if hasattr(node, "Node"):
        node.Node.kill_all_processes = starting.before(node.Node.kill_all_processes)


def without_dashboard(function: Callable[..., object]) -> Callable[..., object]:
    """``function`` starts the dashboard's process where the dashboard was asked for; Ray would start it, and wait for
    it, for its usage statistics alone.
    """

    def asked(include_dashboard: bool | None, *words: object, **more: object) -> object:
        return (None, None) if include_dashboard is False else function(include_dashboard, *words, **more)

    return asked


class Starting:
    """Ends this program when one of :data:`NEEDED` ends before the node is up, and says what its log says."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._over = threading.Event()

    def watching(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """``start``, Ray's function that starts a process of the node; each one in :data:`NEEDED` is watched."""

        def started(command: list[str], process_type: str, *words: object, **more: object) -> Any:
            if process_type == "raylet":
                write_agent_port(command)
            info = start(command, process_type, *words, **more)
            if process_type in NEEDED:
                logs = [word.partition("=")[2] for word in command if re.match("--std(err|out)[_-]filepath=", word)]
                threading.Thread(target=self._follow, args=(info.process, process_type, logs), daemon=True).start()
            return info

        return started

    def until(self, function: Callable[..., object]) -> Callable[..., object]:
        """``function``, after which the node is up: ``ray start`` watches its processes from then on."""

        def called(*words: object, **more: object) -> object:
            result = function(*words, **more)
            self._over.set()
            return result

        return called

    def before(self, function: Callable[..., object]) -> Callable[..., object]:
        """``function``, which ends the node's processes."""

        def called(*words: object, **more: object) -> object:
            self._over.set()
            return function(*words, **more)

        return called

    def _follow(self, process: subprocess.Popen[bytes], name: str, logs: list[str]) -> None:
        """Waits for the end of a child; Ray's own look at it (``poll``) sees the same end."""
        code = process.wait()
        if self._over.is_set():
            return
        for line in tail(logs):
            print(line, file=self._stream)
        print(f"Ray's processes that ended here, before the node was up: {name} [exit code={code}]", file=self._stream)
        self._stream.flush()
        if code < 0:
            os.kill(os.getpid(), -code)
        os._exit(1)


def write_agent_port(command: list[str]) -> None:
    """Tells a raylet its dashboard agent's port before the agent does.

    It would wait 15 s for the file, and abort then; importing the agent takes longer on a loaded machine. ``command``
    is the raylet's.
    """
    flags = {name: value for name, equals, value in (word.partition("=") for word in command) if equals}
    agent = flags.get("--dashboard_agent_command", "")
    port = re.search(r"--listen-port=(\d+)", agent)
    folder, node = flags.get("--session_dir"), flags.get("--node_id")
    if port is None or port[1] == "0" or not folder or not node:
        return  # only the agent knows the port
    # an agent without its optional packages has no server, and says -1
    with open(os.path.join(folder, f"dashboard_agent_listen_port_{node}"), "w", encoding="ascii") as file:
        file.write("-1" if "--minimal" in agent else port[1])


def tail(paths: list[str]) -> list[str]:
    """The last lines that matter in logs of one process: its errors, or without any, whatever it said last."""
    lines: list[str] = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                lines += file.read().decode(errors="replace").splitlines()
        except OSError:
            continue
    severe = [line for line in lines if SEVERE.match(line)]
    said = severe or [line for line in lines if line.strip() and not INFORMATION.match(line)]
    return [line[:LONGEST_LINE] for line in dict.fromkeys(said)][-LONGEST_TAIL:]


def patient(function: Callable[..., object], seconds: float) -> Callable[..., object]:
    """``function``, called again while it raises, for ``seconds``."""

    def tried(*words: object, **more: object) -> object:
        until = time.monotonic() + seconds
        while True:
            try:
                return function(*words, **more)
            except Exception:
                if time.monotonic() >= until:
                    raise
            time.sleep(TRY_SECONDS)

    return tried


class Errors(io.TextIOBase):
    """Passes on what is no advice, of what ``ray start`` prints to a stream that is no terminal.

    Each of its messages begins with a time and a level (``ray/autoscaler/_private/cli_logger.py``). The last line then
    says which of Ray's processes ended, without the end of their logs. ``end`` gets the signal that killed one of them.
    """

    def __init__(self, stream: TextIO, end: Callable[[int], None]) -> None:
        self._stream, self._end = stream, end
        self._ended: list[str] | None = None

    def write(self, text: str) -> int:
        level = LEVEL.match(text)
        message = text[level.end() :] if level else text
        if message.strip() and not (level and level[1] in QUIET):
            lines = [line for line in message.splitlines() if line.strip() and not INFORMATION.match(line)]
            print("\n".join(lines), file=self._stream, flush=True)
            self._follow(message)
        return len(text)

    def _follow(self, message: str) -> None:
        if message.rstrip().endswith("exited unexpectedly:"):
            self._ended = []
        elif self._ended is not None and "[exit code=" in message:
            self._ended.append(message.strip())
        elif self._ended and "will be killed" in message:
            print(f"Ray's processes that ended here: {', '.join(self._ended)}", file=self._stream, flush=True)
            for signo in KILLED.findall(" ".join(self._ended)):
                self._end(int(signo))


def wait_for(head: str, seconds: float) -> None:
    """Returns when something listens at ``head``; ends this program when nothing does for ``seconds``."""
    host, _, port = head.rpartition(":")
    began = said = time.monotonic()
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), 5).close()
            return
        except OSError as error:
            now = time.monotonic()
            if now - began >= seconds:
                sys.exit(f"Ray's head at {head} can't be reached after {seconds:g} s: {error}")
            if now - said >= SAY_SECONDS:
                said = now
                print(f"waiting for Ray's head at {head} for {now - began:.0f} s: {error}", file=sys.stderr, flush=True)
        time.sleep(TRY_SECONDS)


if __name__ == "__main__":
    main()
