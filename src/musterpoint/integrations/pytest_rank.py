"""What each rank of a test with ``@pytest.mark.muster`` runs: pytest, on that test alone."""

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:]))
