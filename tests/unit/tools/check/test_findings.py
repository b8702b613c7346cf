"""The codes of findings, and findings that travel between hosts."""

from __future__ import annotations

import json

import pytest

from musterpoint.tools.check.findings import CODES, Finding, finding, in_order, worst


def test_the_codes_are_those_promised() -> None:
    """They are the public interface: one that is taken away or renamed breaks somebody's script."""
    assert list(CODES) == [
        "shm-small", "shm-full", "disk-full", "place-unusable", "place-slow", "place-measured",
        "inodes-few", "not-writable", "memlock-low", "open-files-low",
        "processes-few", "memory-low", "cpus-few", "gpus-missing", "gpus-unchecked", "gpu-recovery", "gpu-memory",
        "gpu-xid", "gpu-throttled", "gpu-link-narrow", "gpu-busy", "rdma-down", "rdma-hidden",
        "rdma-errors", "nic-down", "nic-errors",
        "name-unresolved", "name-loopback", "name-differs", "host-missing", "host-silent", "port-blocked",
        "large-packets-lost", "clock-skew", "devices-differ", "versions-differ", "mtu-differs", "link-speed-differs",
        "looked-at",
    ]  # fmt: skip


def test_the_worst_counts_and_comes_first() -> None:
    rows = (("looked-at", "ok", "a"), ("shm-small", "fail", "b"), ("disk-full", "warn", "c"))
    found = [finding(*row, "x") for row in rows]
    assert (worst(found), worst(found[:1]), worst([])) == ("fail", "ok", "ok")
    assert [each.host for each in in_order(found)] == ["b", "c", "a"]


def test_a_finding_comes_back_from_json() -> None:
    sent = finding("shm-small", "fail", "algo-2", "/dev/shm has 64 MiB", "1 GiB or more")
    assert Finding.from_wire(json.loads(json.dumps(sent))) == sent
    assert sent.sentence.startswith("shm-small on algo-2: /dev/shm has 64 MiB; expected 1 GiB or more; give the")


@pytest.mark.parametrize(
    "value",
    [None, [], ["a"] * 6, ["shm-small", "bad", "", "", "", ""], ["shm-small", "ok", 1, "", "", ""], {"code": "x"}],
)
def test_what_is_no_finding_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        Finding.from_wire(value)
