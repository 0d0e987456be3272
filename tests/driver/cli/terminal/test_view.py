"""`drawbar status --watch` in a terminal, on the mock cluster."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

SECONDS = 100


class Terminal:
    """A process in a terminal of 30 lines of 140 columns."""

    def __init__(self, *words):
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 140, 0, 0))
        self.before = termios.tcgetattr(theirs)
        command = [sys.executable, "-m", "drawbar.driver.main", "status", "--watch", *words]
        environment = os.environ | {"TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        self._theirs = theirs
        self._screen = ""

    def press(self, keys):
        os.write(self._ours, keys)

    def until(self, pattern):
        """Read until the newest screen matches."""
        ends = time.monotonic() + SECONDS
        while not re.search(pattern, self._newest(), re.DOTALL):
            readable, _, _ = select.select([self._ours], [], [], max(0, ends - time.monotonic()))
            assert readable, self._screen[-3000:]
            self._screen += os.read(self._ours, 65536).decode(errors="replace")

    def _newest(self):
        """Return the screen without colours."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self._screen.rpartition("\x1b[H")[2])

    def end(self):
        # Its last write waits until it is read.
        while self.process.poll() is None:
            if select.select([self._ours], [], [], 0.1)[0]:
                self._screen += os.read(self._ours, 65536).decode(errors="replace")
        return self.process.returncode, termios.tcgetattr(self._theirs) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal(cluster):
    del cluster
    opened = []

    def start(*words):
        opened.append(Terminal(*words))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_it_follows_the_cluster_and_leaves_the_terminal_as_it_was(terminal, cluster):
    top = terminal()
    top.until(r"3 devices  1 tainted  2 in use.*gpu-1 +Ready.*3 of 3 devices")
    top.until(r"1 without a pod")
    cluster(delete_attachment)
    top.until(r"gpu-1 +Allocated")
    top.press(b"/disk")
    top.until(r"disk-9.*/disk_")
    top.press(b"\r\r")
    top.until(r"claim +default/local")
    top.press(b"\x1b")
    top.until(r"1 of 3 devices")
    top.press(b"q")
    assert top.end() == (0, True)


def test_an_interrupt_ends_it_and_leaves_the_terminal_as_it_was(terminal):
    top = terminal("fabric/rack-1")
    top.until(r"2 of 3 devices +filter: rack-1")
    top.process.send_signal(signal.SIGINT)
    assert top.end() == (130, True)


async def delete_attachment(api):
    from drawbar.driver.kube import kinds

    await api.delete(kinds.ATTACHMENT, "rack-1.gpu-1")
