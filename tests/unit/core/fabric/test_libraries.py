"""Versions of libraries, from the places where images have them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from musterpoint.core.fabric.cuda_compat import (
    COMPAT,
    VARIABLE,
    compat_version,
    cuda_settings,
    driver_version,
    supported_branches,
)
from musterpoint.core.fabric.libraries import Libraries, survey_libraries, version_of

PLUGIN = "\0\x7f\0NET/OFI Initializing aws-ofi-nccl 1.14.2\0"
DPKG = (
    "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\n\n"
    "Package: libnccl2\nStatus: install ok installed\nVersion: 2.18.5-1+cuda12.2\n\n"
    "Package: libfabric1\nVersion: 1.17.0-3\n\nPackage: libnccl-ofi\nVersion: 1.19.0-1\n"
)
RPMS = (
    "# EFA installer version: 1.39.0\n# Packages installed:\nlibfabric-aws-2.1.0amzn2.0-1.x86_64 libnccl-ofi-1.14.2-1\n"
)
DEBS = "# EFA installer version: 1.47.0\nlibfabric1-aws_2.4.0amzn1.0_amd64 libnccl-ofi-ngc-v3_1.18.0-1_amd64\n"


@pytest.mark.parametrize(
    ("files", "environ", "expected"),
    [
        ({}, {}, {}),
        ({"var/lib/dpkg/status": DPKG}, {},
         {"nccl": "2.18.5-1+cuda12.2", "libfabric": "1.17.0-3", "ofi_nccl": "1.19.0-1"}),
        ({"opt/amazon/efa_installed_packages": RPMS}, {},
         {"libfabric": "2.1.0amzn2.0", "ofi_nccl": "1.14.2", "efa_installer": "1.39.0"}),
        ({"opt/amazon/efa_installed_packages": DEBS}, {},
         {"libfabric": "2.4.0amzn1.0", "ofi_nccl": "1.18.0", "efa_installer": "1.47.0"}),
        # what the plugin itself says counts more than the list of what was installed once
        ({"opt/amazon/efa_installed_packages": DEBS, "mine/libnccl-net.so": PLUGIN}, {"LD_LIBRARY_PATH": "/a:/mine"},
         {"libfabric": "2.4.0amzn1.0", "ofi_nccl": "1.14.2", "efa_installer": "1.47.0"}),
        ({"etc/ld.so.conf.d/aws-ofi-nccl.conf": "/opt/amazon/x\n# no\n", "opt/amazon/x/libnccl-net-ofi.so": PLUGIN}, {},
         {"ofi_nccl": "1.14.2"}),
        ({"usr/lib64/libnccl.so.2.16.2": "", "usr/lib64/libnccl.so.2.9.9": "", "usr/lib64/libnccl.so.2": ""}, {},
         {"nccl": "2.16.2"}),
        ({"opt/venv/lib/python3.12/site-packages/nvidia_nccl_cu13-2.28.9.dist-info/RECORD": "",
          "usr/lib64/libnccl.so.2.16.2": ""}, {}, {"nccl": "2.28.9"}),
        ({"sys/module/efa/version": "2.17.2\n", "sys/module/nv_peer_mem/refcnt": "0\n",
          "proc/sys/kernel/osrelease": "5.10.1-x\n", "usr/bin/ofed_info": "MLNX_OFED_LINUX-23.10-0.5.5.0 (OFED)"}, {},
         {"efa": "2.17.2", "peermem": "nv_peer_mem", "kernel": "5.10.1-x", "ofed": "23.10-0.5.5.0"}),
    ],
)  # fmt: skip
def test_where_versions_are(
    files: dict[str, str], environ: dict[str, str], expected: dict[str, str], tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert survey_libraries(environ, "/opt/venv/bin/python", str(tmp_path)) == Libraries(**expected)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1.18.0amzn1.0", (1, 18, 0)), ("5.4-1.0.3.0", (5, 4, 1)), ("v1.7.4-aws", (1, 7, 4)), ("2.27", (2, 27)),
     ("5.15.0-1042-azure", (5, 15, 0)), ("", ()), ("amzn", ())],
)  # fmt: skip
def test_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert version_of(text) == numbers


CLOSED = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
    "GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (dvs-builder@U22-I3-AF03-09-1)"
    "  Sun Mar 30 21:20:37 UTC 2025\nGCC version:  gcc version 12.3.0\n"
)
ARM = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\n"
INFORMATION = "Model: \t\t {}\nIRQ:   \t\t 62\nGPU UUID: \t GPU-1\nVideo BIOS: \t 92.00.a0\nBus Type: \t PCIe\n"
BRANCHES_575 = (535, 550, 560, 565, 570, 575)


def library(branches: tuple[int, ...] | None, owner: bytes = b"NVIDIA Corporation\0") -> bytes:
    """An ELF file with a note section as libcuda has one: name, then a JSON object, each padded to four bytes."""
    if branches is None:
        sections = b""
    else:
        text = json.dumps({"Format": 1, "CUDA Version": "12.9", "Driver": branches, "Device": [1, 7]}).encode() + b"\0"
        name = owner + bytes(-len(owner) % 4)
        sections = struct.pack("<III", len(owner), len(text), 1) + name + text + bytes(-len(text) % 4)
    at = 64 + len(sections)
    header = b"\x7fELF\x02\x01\x01".ljust(40, b"\0") + struct.pack("<Q", at) + bytes(10) + struct.pack("<HHH", 64, 2, 0)
    table = bytes(64) + struct.pack("<IIQQQQ", 1, 7, 0, 0, 64, len(sections)).ljust(64, b"\0")
    return header + sections + table


class Root:
    """A host's driver and an image's CUDA."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.driver = path / "proc" / "driver" / "nvidia"

    def host(self, version: str, *models: str) -> Root:
        self.driver.mkdir(parents=True, exist_ok=True)
        (self.driver / "version").write_text(version)
        for number, model in enumerate(models):
            folder = self.driver / "gpus" / f"0000:00:1{number}.0"
            folder.mkdir(parents=True)
            (folder / "information").write_text(INFORMATION.format(model))
        return self

    def image(self, version: str, content: bytes = b"", link: bool = True) -> Root:
        """``/usr/local/cuda`` is a link to the toolkit's own folder, as packages make it."""
        toolkit = self.path / "usr" / "local" / "cuda-12"
        (toolkit / "compat").mkdir(parents=True)
        (toolkit.parent / "cuda").symlink_to("cuda-12")
        (toolkit / "compat" / f"libcuda.so.{version}").write_bytes(content)
        (toolkit / "compat" / "libnvidia-ptxjitcompiler.so.1").touch()
        if link:
            (toolkit / "compat" / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
            (toolkit / "compat" / "libcuda.so").symlink_to("libcuda.so.1")
        return self

    def settings(self, own: str | None = None) -> tuple[str, str]:
        """The value, empty where none is set, and what the plan says: the reason or the refusal."""
        found, note = cuda_settings({} if own is None else {VARIABLE: own}, str(self.path))
        if not found:
            return "", note
        assert [setting.name for setting in found] == [VARIABLE]
        return found[0].value, found[0].reason


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


@pytest.mark.parametrize(
    ("text", "version"),
    [(CLOSED, "535.183.01"), (OPEN, "570.133.20"), (ARM, "580.95.05"), ("NVRM version: none\n", ""), ("", "")],
)
def test_driver(root: Root, text: str, version: str) -> None:
    assert driver_version(str(root.host(text).path)) == version


def test_an_older_driver_gets_the_images_library(root: Root) -> None:
    root.host(CLOSED, "Tesla T4", "NVIDIA A10G").image("570.124.06")
    reason = (
        "this host's NVIDIA driver 535.183.01 is older than /usr/local/cuda/compat of the image, 570.124.06: CUDA's "
        "forward compatibility"
    )
    assert root.settings() == (COMPAT, reason)
    assert root.settings("") == (COMPAT, reason), "an empty entry would be the current folder"
    own = "/opt/venv/lib:/usr/local/cuda/lib64"
    assert root.settings(own) == (f"{COMPAT}:{own}", f"{reason}, in front of the path that was given")


@pytest.mark.parametrize("own", [COMPAT, f"/opt/lib:{COMPAT}/", "/usr/local/cuda-12/compat:/opt/lib"])
def test_a_path_that_has_it_stays(root: Root, own: str) -> None:
    root.host(CLOSED).image("570.124.06")
    assert root.settings(own) == ("", "")


@pytest.mark.parametrize("version", ["570.86.15", "570.211.01", "550.54.15", "1.1"])
def test_a_driver_of_the_same_branch_or_a_newer_one_needs_none(root: Root, version: str) -> None:
    """Within a branch CUDA's version is the same; an older library under a newer driver is error 803."""
    assert root.host(OPEN, "NVIDIA H200").image(version).settings() == ("", "")


def test_branches_are_numbers(root: Root) -> None:
    assert root.host(CLOSED).image("1010.10").settings()[0] == COMPAT


def test_no_driver_or_no_library(tmp_path: Path) -> None:
    for number, root in enumerate((Root(tmp_path), Root(tmp_path / "image").image("570.124.06"))):
        assert root.settings() == ("", ""), number
    assert Root(tmp_path).host(CLOSED).settings() == ("", "")


def test_the_library_is_found_without_its_links(root: Root) -> None:
    root.host(CLOSED).image("570.124.06", link=False)
    assert compat_version(str(root.path)) == "570.124.06"
    (root.path / "usr/local/cuda-12/compat/libcuda.so.550.54.15").touch()
    assert compat_version(str(root.path)) == "", "one of two: which is meant?"


@pytest.mark.parametrize("model", ["NVIDIA GeForce RTX 4090", "NVIDIA TITAN V"])
def test_cards_that_refuse_it(root: Root, model: str) -> None:
    root.host(CLOSED, "NVIDIA L40S", model).image("570.124.06")
    value, note = root.settings()
    assert value == ""
    assert note.endswith(f"which is left out: {model} doesn't support it (data center GPUs do)")


@pytest.mark.parametrize("model", ["NVIDIA RTX PRO 6000 Blackwell Server Edition", "Tesla V100-SXM2-16GB"])
def test_cards_that_take_it(root: Root, model: str) -> None:
    assert root.host(CLOSED, model).image("570.124.06").settings()[0] == COMPAT


def test_the_library_names_the_drivers_it_supports(root: Root) -> None:
    root.image("575.57.08", library(BRANCHES_575))
    assert root.host(CLOSED).settings()[0] == COMPAT
    root.host(CLOSED.replace("535.183.01", "470.256.02"))
    assert root.settings() == (
        "",
        "this host's NVIDIA driver 470.256.02 is older than /usr/local/cuda/compat of the image, 575.57.08, which is "
        "left out: it supports drivers 535, 550, 560, 565, 570, 575",
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x7fELF\x02\x01",
        library(None),
        library((535,), b"GNU\0"),
        library((535,)).replace(b'"Driver"', b'"Drivel"'),
        library((535,)).replace(b'"Format"', b"'Format'"),
        library((535,))[:90],
        b"\x7fELF\x02\x01".ljust(64, b"\xff"),
    ],
)
def test_a_library_that_names_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(content)
    assert supported_branches(str(tmp_path / "libcuda.so.1")) == ()
    assert supported_branches(str(tmp_path / "nowhere")) == ()
