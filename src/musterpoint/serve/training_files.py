"""What a training job's hosts get from S3 before they start, and what goes there when they have ended."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterator, Mapping

from musterpoint.core.data.places import Channel, Share
from musterpoint.embedded.programs import pipes
from musterpoint.embedded.programs.pipes import Part, Pipe, Piped
from musterpoint.local.tree import Layout
from musterpoint.serve import training_request as requested
from musterpoint.serve.transfers import Transfers, copy_tree


class TrainingFiles:
    """The files of one run.

    ``begins`` is called before the first download, ``failed`` with the reason when a pipe can't be fed any more.
    """

    def __init__(
        self,
        transfers: Transfers,
        request: Mapping[str, Any],
        directory: str,
        begins: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._transfers = transfers
        self._request = request
        self._kept = os.path.join(directory, "input")
        self._begins, self._failed = begins, failed
        self._begun = False

    def bring(self, host: str, tree: str) -> None:
        """Puts the channels and checkpoints of ``host`` into its ``tree``."""
        if not self._begun:
            self._begun = True
            self._begins()
        for channel in self._request.get("InputDataConfig") or ():
            if requested.is_on(self._request, channel, host):
                place = os.path.join(tree, "input", "data", channel["ChannelName"])
                if requested.input_mode(self._request, channel) == "Pipe":
                    Pipe(place, self._piped(channel, host), self._opened, self._failed)
                else:
                    self._bring_files(channel, host, place)

    def _share(self, channel: Mapping[str, Any], host: str) -> Share | None:
        """The part of a sharded channel that the host gets; None: all get everything."""
        if channel["DataSource"]["S3DataSource"].get("S3DataDistributionType") != "ShardedByS3Key":
            return None
        hosts = [each for each in requested.hosts(self._request) if requested.is_on(self._request, channel, each)]
        return Share(hosts.index(host), len(hosts))

    def _bring_files(self, channel: Mapping[str, Any], host: str, folder: str) -> None:
        source, share = channel["DataSource"]["S3DataSource"], self._share(channel, host)
        manifest = source["S3DataType"] == "ManifestFile"
        name = channel["ChannelName"]
        wanted = Channel(name, source["S3Uri"], sharded=share is not None, manifest=manifest)
        if share is not None:
            os.makedirs(folder, exist_ok=True)
            self._transfers.bring(wanted, folder, share)
            return
        kept = os.path.join(self._kept, name)
        if not os.path.isdir(kept):
            os.makedirs(kept)
            self._transfers.bring(wanted, kept)
        os.makedirs(folder, exist_ok=True)
        copy_tree(kept, folder)

    def _piped(self, channel: Mapping[str, Any], host: str) -> Piped:
        source, share = channel["DataSource"]["S3DataSource"], self._share(channel, host) or Share()
        kind, uri = source["S3DataType"], source["S3Uri"]
        if kind == "AugmentedManifestFile":
            names = source.get("AttributeNames") or ()
            parts = pipes.of_augmented_manifest(self._transfers.read(uri).decode(), names)
            lines = [parts[at : at + len(names)] for at in range(0, len(parts), len(names) or 1)]
            parts = [part for line in lines[share.place :: share.hosts] for part in line]
        elif kind == "ManifestFile":
            parts = pipes.of_manifest(self._transfers.read(uri).decode())[share.place :: share.hosts]
        else:
            found = self._transfers.objects(uri)[share.place :: share.hosts]
            parts = [Part(uri=f"s3://{each.bucket}/{each.key}") for each in found]
        shuffle = channel.get("ShuffleConfig")
        return Piped(
            parts,
            channel.get("RecordWrapperType") == "RecordIO",
            channel.get("CompressionType") == "Gzip",
            int(shuffle["Seed"]) if shuffle else None,
        )

    def _opened(self, uri: str) -> Iterator[bytes]:
        return self._transfers.stream(uri)

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
