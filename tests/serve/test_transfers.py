"""A job's transfers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from musterpoint.core.data import moves
from musterpoint.core.data.places import Channel
from musterpoint.serve import Server, job_process
from musterpoint.serve.credentials import Pair
from musterpoint.serve.job_process import TransferError, Transfers, url_of
from musterpoint.serve.settings import REGION, Settings

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


def test_a_small_file_goes_in_one_request_and_else_by_the_program(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, sent, send = f"s3://{BUCKET}/archives", list[str](), moves.send_file

    def counted(path: str, *more: Any, **named: Any) -> object:
        sent.append(Path(path).name)
        return send(path, *more, **named)

    monkeypatch.setattr(moves, "send_file", counted)
    monkeypatch.setattr(job_process, "LARGEST_WHOLE", 8)
    settings = settings_of(account.server)
    pair = Pair(settings.access_key, settings.secret_key)
    urls = {name: pair.presigned(f"{settings.url}/{BUCKET}/archives/{name}", REGION, 60) for name in ("small", "large")}
    urls["refused"] = urls["small"].replace("small", "refused")
    urls["unreachable"] = "http://127.0.0.1:1/"
    transfers = Transfers(settings, lambda: None, {f"{place}/{name}": url for name, url in urls.items()})
    contents = {"small": b"12345678", "large": b"123456789", "refused": b"1", "unreachable": b"2", "unknown": b"3"}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
        transfers.upload(str(tmp_path / name), place)
    assert {key.rpartition("/")[2]: account.get(key) for key in account.keys("archives/")} == contents
    assert sent == ["large", "refused", "unreachable", "unknown"]
    with pytest.raises(TransferError):
        transfers.upload(str(tmp_path / "nothing"), place)


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
