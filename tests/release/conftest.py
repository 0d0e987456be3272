"""The scripts of `release/` are no package: they are imported from there."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "release"))
