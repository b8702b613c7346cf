"""``train``: what SageMaker runs. No arguments; everything comes from the platform."""

from __future__ import annotations

import gc
import os
import sys


def main() -> int:
    gc.disable()  # what an import makes is kept: to look through it for garbage takes 3 ms
    from musterpoint import road
    from musterpoint.scene import Request

    gc.freeze()
    gc.enable()
    return road.travel(Request(os.environ.copy()))


if __name__ == "__main__":
    sys.exit(main())
