"""The harness of real Kubernetes components is not installed: it lies in hil-tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "hil-tests"))
