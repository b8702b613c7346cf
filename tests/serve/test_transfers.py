"""A job's transfers."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.core.data.places import Channel
from musterpoint.serve import Server
from musterpoint.serve.job_process import TransferError, Transfers, url_of
from musterpoint.serve.settings import Settings

from .jobs import BUCKET, Account


def settings_of(server: Server) -> Settings:
    variables = server.variables
    return Settings(
        str(server.data),
        port=int(server.url.rpartition(":")[2]),
        access_key=variables["AWS_ACCESS_KEY_ID"],
        secret_key=variables["AWS_SECRET_ACCESS_KEY"],
    )


class GivenUp(Exception):
    pass


def test_what_is_refused_is_told_at_once(account: Account, tmp_path: Path) -> None:
    transfers = Transfers(settings_of(account.server), lambda: None)
    (tmp_path / "tree").mkdir()
    transfers.upload_tree(str(tmp_path), "tree", "s3://nobodys/out")  # nothing to send
    (tmp_path / "tree" / "weights").write_bytes(b"w")
    with pytest.raises(TransferError, match="there is no bucket 'nobodys'"):
        transfers.upload_tree(str(tmp_path), "tree", "s3://nobodys/out")
    nothing = Channel("train", f"s3://{BUCKET}/nothing/")
    transfers.bring_if_any(nothing, str(tmp_path / "here"))
    with pytest.raises(TransferError, match=f"channel train: there is nothing at s3://{BUCKET}/nothing/"):
        transfers.bring(nothing, str(tmp_path / "here"))


@pytest.mark.lane("sdk")
def test_a_stop_ends_a_transfer_that_has_begun(account: Account, tmp_path: Path) -> None:
    asked = list[int]()

    def give_up() -> None:
        asked.append(1)
        if len(asked) > 1:
            raise GivenUp

    account.put("stopped/one", b"1")
    with pytest.raises(GivenUp):
        Transfers(settings_of(account.server), give_up).bring(Channel("a", f"s3://{BUCKET}/stopped"), str(tmp_path))


@pytest.mark.parametrize(
    ("host", "seen"), [("localhost", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("", "127.0.0.1"), ("::1", "[::1]")]
)
def test_a_name_would_have_the_buckets_name_before_it(host: str, seen: str) -> None:
    assert url_of(Settings("/nowhere", host=host, port=1)) == f"http://{seen}:1"
