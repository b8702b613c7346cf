"""Open packages under the names of AWS's closed ones: ``smdistributed.dataparallel`` and ``.modelparallel``.

Importing this module is one way to switch them on: it installs the finder (:mod:`musterpoint_smdistributed.finder`),
which answers ``import smdistributed.…`` where nothing else does. The packages themselves are imported by their own
names only. They need torch, and nothing of the rest of musterpoint.
"""

from . import finder

finder.install()
