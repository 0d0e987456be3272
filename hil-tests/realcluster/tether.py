"""Becomes a program that the kernel kills when its parent dies: python -I -S tether.py PARENT_PID PROGRAM [ARGUMENT...]

Source: PR_SET_PDEATHSIG, prctl(2); kept across execve(2). The signal comes when the *thread* ends that started the
child, so children are started by the main thread.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the request was made.
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
    os.execv(sys.argv[2], sys.argv[2:])
