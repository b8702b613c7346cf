"""What a processing job's hosts get from S3 before they start, and what goes there when they have ended."""

from __future__ import annotations

import os
from typing import Any, Mapping

from musterpoint.core.data.places import ALONE, Channel, Share
from musterpoint.local import tree
from musterpoint.local.tree import Layout
from musterpoint.serve import processing_request as requested
from musterpoint.serve.training_request import to_file
from musterpoint.serve.transfers import Transfers

MESSAGE = "output/message"
"""Below ``/opt/ml``: what the program wants said of its end. Source: SageMaker's guide, "Save and Access Metadata
Information About Your Processing Job".
"""
_LONGEST_MESSAGE, _LARGEST_MESSAGE = 1024, 1 << 20
"""Bytes of an ExitMessage, and of one file that are looked at."""


class ProcessingFiles:
    """The files of one run."""

    def __init__(self, transfers: Transfers, request: Mapping[str, Any], arn: str) -> None:
        self._transfers, self._request, self._arn = transfers, request, arn

    def prepare(self, host: str, place: str, private: bool) -> None:
        """Makes the tree of ``host`` at ``place``, with its configuration and its inputs."""
        for name in ("config", "output", "processing"):
            os.makedirs(os.path.join(place, name), exist_ok=True)
        for name, content in requested.config_files(self._request, host, self._arn).items():
            tree.write_text(os.path.join(place, "config", name), to_file(content), private=private)
        for each in requested.inputs(self._request):
            self._bring(each, host, os.path.join(place, requested.below(each["S3Input"]["LocalPath"])))
        for each in requested.outputs(self._request):
            os.makedirs(os.path.join(place, requested.below(each["S3Output"]["LocalPath"])), exist_ok=True)

    def _bring(self, given: Mapping[str, Any], host: str, folder: str) -> None:
        source = given["S3Input"]
        os.makedirs(folder, exist_ok=True)
        hosts = requested.hosts(self._request)
        sharded = source.get("S3DataDistributionType") == "ShardedByS3Key"
        share = Share(hosts.index(host), len(hosts)) if sharded else ALONE
        manifest = source["S3DataType"] == "ManifestFile"
        wanted = Channel(given["InputName"], source["S3Uri"], sharded=sharded, manifest=manifest, prefix=not manifest)
        self._transfers.bring(wanted, folder, share)

    def upload(self, layout: Layout) -> None:
        """The outputs of all hosts."""
        for each in requested.outputs(self._request):
            for host in requested.hosts(self._request):
                folder = os.path.join(layout.tree(host), requested.below(each["S3Output"]["LocalPath"]))
                self._transfers.upload_tree(folder, each["S3Output"]["S3Uri"])

    def message(self, layout: Layout) -> str:
        """What all hosts' programs want said, one after the other.

        Raises:
            UnicodeDecodeError: one isn't UTF-8.
        """
        found = b""
        for host in requested.hosts(self._request):
            path = os.path.join(layout.tree(host), MESSAGE)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    whole = file.read(_LARGEST_MESSAGE)
                whole.decode()
                found += whole
        return found[:_LONGEST_MESSAGE].decode("utf-8", "ignore")
