"""Runs a module as a program, in a process that the kernel ends when its parent dies.

    python -P tethered.py PARENT_PID MODULE [ARGUMENT...]

Started as a file and not as a module, so that the package around it is not imported into every child. The request to
the kernel is made here, after exec: between fork and exec Python code is not safe in a parent that has threads.

Source: PR_SET_PDEATHSIG, prctl(2). The signal comes when the *thread* ends that started the child. Not on Linux:
children of a killed parent live on.
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def _tether(parent: int) -> bool:
    """Let the kernel kill this process when the parent dies; return true if the parent still lives."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have died before the request was made.
    return os.getppid() == parent


if __name__ == "__main__":
    if not _tether(int(sys.argv[1])):
        sys.exit(1)
    module = sys.argv[2]
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
