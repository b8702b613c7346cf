"""``python -m musterpoint`` is ``muster``."""

import sys

from musterpoint.cli.main import main

sys.exit(main())
