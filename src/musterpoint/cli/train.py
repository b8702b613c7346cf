"""``train``: what SageMaker runs. No arguments; everything comes from the platform."""

from __future__ import annotations

import os
import sys


def main() -> int:
    from musterpoint import road

    return road.travel(road.Request(os.environ.copy()))


if __name__ == "__main__":
    sys.exit(main())
