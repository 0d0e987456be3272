"""The storm takes the same steps, to the same end, from the same seed: what it finds can be found again."""

import asyncio
import os
import re
import sys
from pathlib import Path

STORM = Path(__file__).with_name("test_controller_storm.py")


async def journal(path, hash_seed):
    """Run three examples, and return what their fabrics did, without the time of day."""
    variables = {
        "DRAWBAR_STORM_EXAMPLES": "3",
        "DRAWBAR_STORM_JOURNAL": str(path),
        "PYTHONHASHSEED": hash_seed,
    }
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=7")
    command = (sys.executable, "-m", "pytest", *options, str(STORM))
    process = await asyncio.create_subprocess_exec(
        *command, env=os.environ | variables, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return re.sub(r'"time":[0-9.]+', "", path.read_text())


async def test_two_processes_with_other_hash_seeds_see_the_same_storm(tmp_path):
    first, second = await asyncio.gather(*(journal(tmp_path / seed, seed) for seed in ("1", "2")))
    assert "started" in first
    assert first == second
