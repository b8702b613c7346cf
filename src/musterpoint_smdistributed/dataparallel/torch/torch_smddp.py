"""``import smdistributed.dataparallel.torch.torch_smddp``: everything happens on import, and a second one does nothing.

Afterwards the launcher's variables are there by torch's names, ``init_process_group(backend="smddp")`` works, and rank
0 may evaluate alone.
"""

import logging
import os

from ...shared import backend, rank_environment
from .. import __version__
from . import evaluation

rank_environment.export(os.environ)
if backend.register():
    evaluation.patch()
    logging.getLogger("smdistributed.dataparallel").info("musterpoint's smdistributed.dataparallel %s", __version__)
