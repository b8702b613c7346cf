"""What a training job's hosts get from S3 before they start, and what goes there when they have ended."""

from __future__ import annotations

import os
import shutil
from typing import Any, Callable, Iterator, Mapping

from musterpoint.core.data.places import Channel, Share
from musterpoint.local.tree import Layout
from musterpoint.serve import training_request as requested
from musterpoint.serve.transfers import Transfers


class TrainingFiles:
    """The files of one run.

    ``begins`` is called before the first download.
    """

    def __init__(
        self, transfers: Transfers, request: Mapping[str, Any], directory: str, begins: Callable[[], None]
    ) -> None:
        self._transfers = transfers
        self._request = request
        self._kept = os.path.join(directory, "input")
        self._begins = begins
        self._begun = False

    def bring(self, host: str, tree: str) -> None:
        """Puts the channels and checkpoints of ``host`` into its ``tree``."""
        if not self._begun:
            self._begun = True
            self._begins()
        for channel in self._request.get("InputDataConfig") or ():
            if requested.is_on(self._request, channel, host):
                place = os.path.join(tree, "input", "data", channel["ChannelName"])
                self._bring_files(channel, host, place)

    def _share(self, channel: Mapping[str, Any], host: str) -> Share | None:
        """The part of a sharded channel that the host gets; None: all get everything."""
        if channel["DataSource"]["S3DataSource"].get("S3DataDistributionType") != "ShardedByS3Key":
            return None
        hosts = [each for each in requested.hosts(self._request) if requested.is_on(self._request, channel, each)]
        return Share(hosts.index(host), len(hosts))

    def _bring_files(self, channel: Mapping[str, Any], host: str, folder: str) -> None:
        share = self._share(channel, host)
        wanted = _wanted(channel, share)
        if share is not None:
            os.makedirs(folder, exist_ok=True)
            self._transfers.bring(wanted, folder, share)
            return
        kept = os.path.join(self._kept, wanted.name)
        if not os.path.isdir(kept):
            os.makedirs(kept)
            self._transfers.bring(wanted, kept)
        os.makedirs(folder, exist_ok=True)
        copy_tree(kept, folder)

    def upload_model(self, layout: Layout) -> None:
        """``/opt/ml/model`` of all hosts, as one archive or as it is."""
        uri = requested.model_uri(self._request)
        if requested.compressed(self._request):
            self._transfers.upload(layout.artifact("model.tar.gz"), os.path.dirname(uri))
            return
        for host in requested.hosts(self._request):
            self._transfers.upload_tree(os.path.join(layout.tree(host), "model"), uri)

    def upload_output(self, layout: Layout) -> None:
        """``/opt/ml/output/data`` of all hosts, where there is anything in it."""
        trees = [os.path.join(layout.tree(host), "output", "data") for host in requested.hosts(self._request)]
        if not any(os.path.isdir(tree) and os.listdir(tree) for tree in trees):
            return
        uri = requested.output_uri(self._request)
        if requested.compressed(self._request):
            self._transfers.upload(layout.artifact("output.tar.gz"), uri)
            return
        for tree in trees:
            self._transfers.upload_tree(tree, f"{uri}/data")


def _wanted(channel: Mapping[str, Any], share: Share | None) -> Channel:
    """The channel as :mod:`musterpoint.core.data` knows it."""
    source = channel["DataSource"]["S3DataSource"]
    manifest, prefix = source["S3DataType"] == "ManifestFile", source["S3DataType"] == "S3Prefix"
    return Channel(channel["ChannelName"], source["S3Uri"], sharded=share is not None, manifest=manifest, prefix=prefix)


def copy_tree(source: str, target: str) -> None:
    """The same files under another path, without their bytes twice."""
    for name, path in _files(source):
        place = os.path.join(target, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        try:
            os.link(path, place)
        except OSError:
            shutil.copyfile(path, place)


def _files(folder: str) -> Iterator[tuple[str, str]]:
    """The regular files below ``folder``: relative path, and path."""
    for where, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(where, name)
            if os.path.isfile(path):
                yield os.path.relpath(path, folder), path
