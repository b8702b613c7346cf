"""A job's transfers: by the server's own account, and while the server is away."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from musterpoint.core.data.places import Channel
from musterpoint.serve import Server
from musterpoint.serve.settings import Settings
from musterpoint.serve.transfers import TransferError, Transfers, access_of, url_of

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


@pytest.mark.lane("sdk")
def test_a_transfer_waits_for_the_next_server(environ: Mapping[str, str], tmp_path: Path) -> None:
    """Whoever has started it may reach AWS otherwise."""
    first = Server(tmp_path / "data", environ=environ)
    Account(first)
    transfers = Transfers(settings_of(first), lambda: None)
    (tmp_path / "weights").write_bytes(b"w" * 100)
    first.kill()
    uploading = threading.Thread(target=transfers.upload, args=(str(tmp_path / "weights"), f"s3://{BUCKET}/out"))
    uploading.start()
    with Server(tmp_path / "data", environ=environ) as second:
        transfers.server_is_back(settings_of(second))
        uploading.join()
        assert Account(second, make_bucket=False).get("out/weights") == b"w" * 100


def test_what_is_refused_is_told_at_once(account: Account, tmp_path: Path) -> None:
    transfers = Transfers(settings_of(account.server), lambda: None)
    (tmp_path / "tree").mkdir()
    transfers.upload_tree(str(tmp_path / "tree"), "s3://nobodys/out")  # nothing to send
    (tmp_path / "tree" / "weights").write_bytes(b"w")
    with pytest.raises(TransferError, match="there is no bucket 'nobodys'"):
        transfers.upload_tree(str(tmp_path / "tree"), "s3://nobodys/out")
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


def test_whoever_has_started_the_server_reaches_aws_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "theirs")
    settings = Settings("/nowhere", access_key="a", secret_key="b")
    access = access_of(settings, settings.url)
    assert "theirs" not in access.environ.values() and access.environ["AWS_ACCESS_KEY_ID"] == "a"
    assert (access.region, access.endpoint) == (settings.region, settings.url)
