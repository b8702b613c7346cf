"""What the one-file launcher calls: which command it is follows from the file's name. Imports only that one."""

from __future__ import annotations

import os
import sys


def main(path: str) -> int:
    """Runs the file at ``path`` as ``train``, as ``muster``, as SDK v3's driver or, by any other name, as launcher."""
    name = os.path.splitext(os.path.basename(path))[0]
    if name == "train":
        from musterpoint.cli import train

        return train.main()
    if name == "muster":
        from musterpoint.cli import main as muster

        return muster.main(sys.argv[1:])
    if name == "muster_driver":
        from musterpoint.cli import driver

        return driver.main()
    from musterpoint.cli import launch

    return launch.main(sys.argv[1:])
