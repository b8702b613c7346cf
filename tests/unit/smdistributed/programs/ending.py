"""How a rank of these tests ends."""

import json
import os
from typing import Any


def leave(**result: Any) -> None:
    """Prints what the test looks at and ends at once: gloo's threads may not outlive Python (docs/torchrun.md)."""
    print(json.dumps(result), flush=True)
    os._exit(0)
