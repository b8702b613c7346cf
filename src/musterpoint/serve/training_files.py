"""What a training job's hosts get from S3 before they start, and what goes there when they have ended."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping

from musterpoint.local.tree import Layout
from musterpoint.serve import training_request as requested
from musterpoint.serve.transfers import Transfers, copy_tree


class TrainingFiles:
    """The files of one run. ``begins`` is called before the first download."""

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
                self._bring_channel(channel, host, os.path.join(tree, "input", "data", channel["ChannelName"]))

    def _bring_channel(self, channel: Mapping[str, Any], host: str, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        source = channel["DataSource"]["S3DataSource"]
        prefix = requested.split_uri(source["S3Uri"])[1]
        found = self._transfers.objects(source["S3Uri"])
        if source.get("S3DataDistributionType") == "ShardedByS3Key":
            hosts = [each for each in requested.hosts(self._request) if requested.is_on(self._request, channel, each)]
            found = found[hosts.index(host) :: len(hosts)]
            for each in found:
                self._transfers.download(each, os.path.join(folder, _below(each.key, prefix)))
            return
        kept = os.path.join(self._kept, channel["ChannelName"])
        if not os.path.isdir(kept):
            os.makedirs(kept)
            for each in found:
                self._transfers.download(each, os.path.join(kept, _below(each.key, prefix)))
        copy_tree(kept, folder)

    def upload_model(self, layout: Layout) -> None:
        """``/opt/ml/model`` of all hosts, as one archive or as it is."""
        uri = requested.model_uri(self._request)
        if requested.compressed(self._request):
            self._transfers.upload(layout.artifact("model.tar.gz"), uri)
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
            self._transfers.upload(layout.artifact("output.tar.gz"), f"{uri}/output.tar.gz")
            return
        for tree in trees:
            self._transfers.upload_tree(tree, f"{uri}/data")


def _below(key: str, prefix: str) -> str:
    """The path of an object in its channel: what follows the last folder that the prefix names."""
    return (
        key[prefix.rfind("/") + 1 :] if not key.startswith(prefix.rstrip("/") + "/") else key[len(prefix) :].lstrip("/")
    )
