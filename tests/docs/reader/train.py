"""What stands for a reader's own program: any arguments, no packages."""

import os
import sys

print("rank", os.environ.get("RANK", "0"), "of", os.environ.get("WORLD_SIZE", "1"), "was given", sys.argv[1:])
