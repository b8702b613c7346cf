"""One container from its start to its end, with everything it says."""

from __future__ import annotations

import os
import signal
import threading
from typing import Callable

from musterpoint.local.docker_engine import Engine, EngineError
from musterpoint.supervise.tree import catches

_LAST_WORDS = 10.0


class Running:
    """A started container: a thread carries its output to the descriptor ``output`` and waits for its end."""

    def __init__(self, engine: Engine, identity: str, output: int, on_end: Callable[[], None]) -> None:
        self.identity = identity
        self.out_of_memory = False
        self._engine = engine
        self._output = output
        self._on_end = on_end
        self._code: int | None = None
        self._thread = threading.Thread(target=self._run, name="container", daemon=True)

    def start(self) -> None:
        """Listens first, so that nothing is lost of a container that ends at once."""
        try:
            self._chunks = self._engine.attach(self.identity)
            self._engine.start(self.identity)
        except BaseException:
            os.close(self._output)
            raise
        self._thread.start()

    def poll(self) -> int | None:
        return self._code

    def wait(self) -> int:
        self._thread.join()
        assert self._code is not None
        return self._code

    def is_idle(self, engine: Engine) -> bool:
        """Whether the container's first process neither hears SIGTERM nor has a child; False where it can't be seen."""
        pid = engine.state(self.identity).get("Pid", 0)
        try:
            with open(f"/proc/{pid}/cgroup", encoding="ascii") as file:
                if self.identity not in file.read():
                    return False  # a process of this machine, while the daemon is on another one
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                return not file.read().strip() and not catches(pid, signal.SIGTERM)
        except OSError:
            return False

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join(_LAST_WORDS)

    def _run(self) -> None:
        code = 137
        try:
            for chunk in self._chunks:
                self._write(chunk)
            code = self._engine.wait(self.identity)
            self.out_of_memory = code == 137 and bool(self._engine.state(self.identity).get("OOMKilled"))
        except EngineError as error:
            if not error.is_gone:
                self._write(f"musterpoint: lost the Docker daemon: {error}\n".encode())
        finally:
            os.close(self._output)
            self._engine.close()
            self._code = code
            self._on_end()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._output, view) :]
            except BrokenPipeError:
                return  # nobody listens any more; the container goes on
