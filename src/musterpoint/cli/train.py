"""``train``: what SageMaker runs. No arguments; everything comes from the platform."""

from __future__ import annotations

import gc
import os
import sys

HELP = """usage: train

train is what a training platform runs in a container: it reads the job that the platform describes, brings the
program's code, gathers the job's hosts, starts the program on each under the launcher that the job asks for, and ends
with the program's exit code. It takes no arguments; options are variables (MUSTER_LAUNCHER, MUSTER_SLOTS, ...).

An image needs Python 3.10 or newer and this command on PATH; no entry point, no sshd, no root. train reads, below
/opt/ml (or SAGEMAKER_BASE_DIR):

  input/config/resourceconfig.json     the hosts, and which one this is
  input/config/hyperparameters.json    the program (sagemaker_program; or SAGEMAKER_PROGRAM in the image), its arguments
  input/config/inputdataconfig.json    the input channels, which lie in input/data
  code                                 the program, unless sagemaker_submit_directory says where it comes from

and leaves model, output/data, output/failure and output/outcome.json there.

To try an image, where musterpoint and Docker are installed:

  muster local --hosts 2 --image IMAGE train.py --epochs 3

In a container, muster plan shows what train would run, and muster env what a program would see. The documentation is in
docs/ of musterpoint's repository: images.md for who builds images, sagemaker.md for what is read and set, options.md
for the variables.
"""


def main() -> int:
    if sys.argv[1:2] in (["--help"], ["-h"]):
        sys.stdout.write(HELP)
        return 0
    gc.disable()  # objects made by imports stay alive; searching them for garbage takes 3 ms
    from musterpoint.core.processes.received_signals import hear_all

    hear_all()
    from musterpoint.cli.job import Request, train

    gc.freeze()
    gc.enable()
    return train(Request(os.environ.copy()))


if __name__ == "__main__":
    sys.exit(main())
