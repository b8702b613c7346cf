from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.code.source import has_route

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
ETH = "eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
SIX_LO = f"{1:032} 80 {0:032} 00 {0:032} 00000000 00000002 0 80200001       lo\n"
SIX_ETH = SIX_LO.replace("      lo", "    eth0")


@pytest.mark.parametrize(
    ("four", "six", "has"),
    [
        (HEAD + ETH, SIX_LO, True),
        (HEAD, SIX_LO, False),
        (HEAD, None, False),
        ("", "", False),
        (HEAD, SIX_LO + SIX_ETH, True),
        (None, None, True),
    ],
)
def test_routes(four: str | None, six: str | None, has: bool, tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    for name, text in (("route", four), ("ipv6_route", six)):
        if text is not None:
            (tmp_path / "net" / name).write_text(text)
    assert has_route(str(tmp_path)) is has
