"""The health of GPUs: the kernel's log, and NVML: the real nvidia-ml-py, over a library that answers as NVML does."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from musterpoint.tools.check.machine import RECOVERY, THROTTLES, Gpu, Gpus, System, Xid, kernel_xids, survey_gpus

from ...running import result_of
from .test_machine import tree

LOG = """6,1,5,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15
3,2,6,-;NVRM: Xid (PCI:0000:00:1e): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
3,3,7,-;NVRM: Xid (PCI:0000:00:1e): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
3,4,8,-;NVRM: Xid (0000:81:00): 31, pid=77, name=python, Ch 00000008
"""
NVML = r"""
#include <string.h>
typedef void *dev;
int nvmlInitWithFlags(unsigned f) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *v, unsigned n) { strncpy(v, "550.54.15", n); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, dev *d) { if (at == 2) return 15; *d = (dev)(long)(at + 1); return 0; }
int nvmlDeviceGetName(dev d, char *v, unsigned n) { strncpy(v, "NVIDIA A100-SXM4-40GB", n); return 0; }
int nvmlDeviceGetTotalEccErrors(dev d, int e, int c, unsigned long long *n) { *n = e == 1 && !c ? 7 : 99; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(dev d, unsigned long long *r) { *r = d == (dev)1 ? 0x5 : 0xc8; return 0; }
int nvmlDeviceGetMemoryInfo(dev d, unsigned long long *m) { m[0] = 40; m[1] = 30; m[2] = 10; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(dev d, unsigned *w) { *w = 8; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(dev d, unsigned *w) { *w = 16; return 0; }
int nvmlDeviceGetRemappedRows(dev d, unsigned *c, unsigned *u, unsigned *p, unsigned *f) {
    *c = 1; *u = 0; *p = d == (dev)2; *f = 0; return 0;
}
int nvmlDeviceGetRetiredPagesPendingStatus(dev d, int *p) { return 3; }
typedef struct { unsigned id, scope; long long at, took; int type, ret; unsigned long long value; } field;
int nvmlDeviceGetFieldValues(dev d, int n, field *f) {
    f->ret = f->id == 230 ? 0 : 3; f->type = 1; f->value = d == (dev)2 ? 2 : 0; return 0;
}
"""
ASK = """
import ctypes, json, sys
real = ctypes.CDLL
ctypes.CDLL = lambda name, *more, **by: real(sys.argv[1] if "nvidia-ml" in str(name) else name, *more, **by)
from musterpoint.tools.check.machine import survey_gpus
from musterpoint.tools.check.machine import System
print(json.dumps(survey_gpus(3, System(sys.argv[2]))))
"""


def test_the_kernels_log_tells_each_xid_once(tmp_path: Path) -> None:
    tree(tmp_path, {"dev/kmsg": LOG})
    assert kernel_xids(str(tmp_path)) == (Xid("0000:00:1e", 79), Xid("0000:81:00", 31))
    assert kernel_xids(str(tmp_path / "none")) == ()


@pytest.mark.lane("gpu")
def test_what_nvml_answers(tmp_path: Path, environ: dict[str, str], root: Path) -> None:
    (tmp_path / "nvml.c").write_text(NVML)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "nvml.c"], check=True)
    done = result_of([sys.executable, "-c", ASK, library, tmp_path], {**environ, "PYTHONPATH": str(root / "src")})
    assert done.returncode == 0, done.stderr
    unlooked, driver, gpus, xids = json.loads(done.stdout)
    assert (unlooked, driver, xids) == ("", "550.54.15", [])
    name = "NVIDIA A100-SXM4-40GB"
    assert [Gpu(*row)._replace(throttled=tuple(row[5])) for row in gpus] == [
        Gpu(0, name, "", 7, "", (), 8, 16, 10),
        Gpu(1, name, "reboot", 7, "rows of its memory are to be remapped at the next reset",
            ("hardware slowdown", "heat, by the hardware", "power brake"), 8, 16, 10),
        Gpu(2, recovery="an answer at all: it is lost"),
    ]  # fmt: skip


def test_without_a_driver_it_says_that_nobody_looked(tmp_path: Path) -> None:
    tree(tmp_path, {"sys/module/nvidia/version": "550.1\n"})
    found = survey_gpus(1, System(str(tmp_path)))
    assert found.unlooked.startswith("NVML doesn't answer: ") and found.driver == "550.1"
    assert survey_gpus(0, System(str(tmp_path))) == Gpus(driver="550.1"), "no GPU is expected, so NVML isn't asked"


def test_without_the_library_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert survey_gpus(1, System(str(tmp_path))).unlooked == "nvidia-ml-py isn't installed for musterpoint's Python"


def test_the_numbers_are_those_of_the_library() -> None:
    import pynvml

    nvml: Any = pynvml
    bits = {value for name, value in vars(nvml).items() if name.startswith("nvmlClocksThrottleReason")}
    assert set(THROTTLES) <= bits
    actions = {value for name, value in vars(nvml).items() if name.startswith("NVML_GPU_RECOVERY_ACTION_")}
    assert actions == set(range(len(RECOVERY)))
    assert ctypes.sizeof(nvml.c_nvmlFieldValue_t) == 40, "the C library above has the same record"
