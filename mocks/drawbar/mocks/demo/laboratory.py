"""The QEMU lab, whose guests are nodes of the demo with a real kernel.

The lab belongs to the tests of a checkout, not to the package, because a guest runs the checkout itself. This module
looks for it relative to its own file. It imports the lab only on first use.
"""

import importlib
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from drawbar.mocks import errors

if TYPE_CHECKING:
    from drawbar.mocks.demo import stages

CHECKOUT = Path(__file__).parents[4]
MOST_PODS = 4
"""The number of ports of the guest."""


def validate(*, pods: int, options: Mapping[str, object], deadline_seconds: float) -> None:
    """Check the options for a run with a real kernel.

    Args:
        pods: the number of pods.
        options: the simulated stage's options by name; None if the user does not set them.
        deadline_seconds: the time limit of the run, in seconds.

    Raises:
        errors.UsageError: an option is wrong; the message lists all problems.
    """
    problems = []
    if not 1 <= pods <= MOST_PODS:
        problems.append(
            f"--pods {pods} is not possible: the demo on QEMU runs 1 to {MOST_PODS} pods, a port for each"
        )
    problems += [
        f"{option} is for the simulated fabric alone: leave it out"
        for option, value in options.items()
        if value is not None
    ]
    if deadline_seconds <= 0:
        problems.append(f"--deadline {deadline_seconds:g} is not a positive number of seconds")
    if problems:
        raise errors.UsageError("; ".join(problems))


def find(checkout: Path = CHECKOUT, system: str = sys.platform, machine: str = platform.machine()) -> Path:
    """Return the folder of the lab.

    Raises:
        errors.UsageError: there is none here, or it cannot work on this machine.
    """
    if system != "linux" or machine != "x86_64":
        raise errors.UsageError(
            f"--adapter qemu boots this machine's own programs on Debian's kernel for x86-64, and this is {system} on "
            f"{machine}: run it on a Debian machine of that kind"
        )
    folder = checkout / "hil-tests"
    if not (folder / "lab" / "stage.py").is_file():
        raise errors.UsageError(
            "--adapter qemu needs the QEMU lab, which is in a checkout of Drawbar and not in the package: "
            'run make demo ARGS="--adapter qemu" there (docs/lab.md)'
        )
    if not (Path(sys.executable).parent / "drawbar").is_file():
        raise errors.UsageError(
            f"--adapter qemu needs the program drawbar beside {sys.executable}, for the guest to run: "
            f'run make demo ARGS="--adapter qemu" in the checkout'
        )
    return folder


def stage(pods: int) -> "stages.Stage":
    """Return the lab as a stage with one node.

    Raises:
        errors.UsageError: as `find`; also if QEMU or a tool is not installed.
    """
    folder = str(find())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    packages, lab_errors = importlib.import_module("lab.packages"), importlib.import_module("lab.errors")
    # Checked first, because the import of the stage takes seconds.
    try:
        packages.qemu()
        packages.tools()
    except lab_errors.Unavailable as error:
        raise errors.UsageError(str(error)) from error
    made: stages.Stage = importlib.import_module("lab.stage").Stage(pods)
    return made
