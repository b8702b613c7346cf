"""Versions of libraries, from the places where images have them."""

from __future__ import annotations

from pathlib import Path

import pytest

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
