"""Checkpoints as SageMaker carries them: from S3 before a run, and to S3 as they are written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Mapping

from musterpoint.core.data import mover
from musterpoint.core.data.places import Channel
from musterpoint.embedded.programs.registry import UPLOADER, Texts
from musterpoint.serve import training_request as requested
from musterpoint.serve.settings import Settings
from musterpoint.serve.transfers import Transfers, access_of

LONGEST_FINISH = 600
"""Seconds that the last upload of a run may take."""


class Checkpoints:
    """The checkpoints of one run. Nothing happens for a job without a CheckpointConfig.

    ``endpoint``: where the server is reached, also while it is being started anew.
    """

    def __init__(self, settings: Settings, transfers: Transfers, request: Mapping[str, Any], endpoint: str) -> None:
        self._settings, self._transfers, self._request, self._endpoint = settings, transfers, request, endpoint
        self._texts = Texts()
        self._uploaders: dict[str, subprocess.Popen[str]] = {}

    @property
    def _uri(self) -> str:
        uri = str((self._request.get("CheckpointConfig") or {}).get("S3Uri", ""))
        return uri and uri.rstrip("/") + "/"

    def bring(self, host: str, tree: str) -> None:
        """Puts what there is into the host's ``tree``, and begins to send what changes there."""
        if not self._uri:
            return
        folder = os.path.join(tree, os.path.relpath(requested.checkpoint_path(self._request), "/opt/ml"))
        os.makedirs(folder, exist_ok=True)
        self._transfers.bring_if_any(Channel("checkpoints", self._uri), folder)
        access = access_of(self._settings, self._endpoint)
        wanted = {
            "directory": folder,
            "uri": self._uri,
            "access": mover.access_of(access),
            "record": self._texts.hold(f"checkpoints-{host}", ""),
        }
        self._uploaders[host] = subprocess.Popen(
            self._texts.command(sys.executable, UPLOADER, wanted),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env=dict(access.environ),
            cwd="/",
        )
        self._until_watching(host)

    def _until_watching(self, host: str) -> None:
        """A file that is written before it is watched would be seen at the end only."""
        said = self._uploaders[host].stdout
        assert said is not None
        for line in said:
            if "watching" in json.loads(line):
                return
        raise RuntimeError(f"the uploader of {host}'s checkpoints ended with code {self._uploaders[host].wait()}")

    def lose(self, host: str) -> None:
        """The host is gone, with what hadn't been sent yet."""
        uploader = self._uploaders.pop(host, None)
        if uploader is not None:
            uploader.kill()
            uploader.communicate()

    def finish(self) -> None:
        """Sends what is left, and returns when it is there."""
        for uploader in self._uploaders.values():
            assert uploader.stdin is not None
            uploader.stdin.write(f"finish {LONGEST_FINISH}\n")
            uploader.stdin.flush()
        for uploader in self._uploaders.values():
            assert uploader.stdout is not None
            for _ in uploader.stdout:  # until it has said everything; at the end of its stdin it would end at once
                pass
            uploader.communicate()
        self._uploaders.clear()
        self._texts.close()
