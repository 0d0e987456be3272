"""One component as a process of its own: start, stop, kill and wait, by its process id.

The kernel kills it when this process dies (`tether`). Start components in the main thread: the kernel takes the end of
the thread that started a child for the end of its parent.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from realcluster import errors

TETHER = Path(__file__).with_name("tether.py")
STOP_SECONDS = 15.0
POLL_SECONDS = 0.1
TAIL_CHARACTERS = 600


class Component:
    """A program that can be started again and again; its log is appended to.

    Attributes:
        name: for people.
        log: what it prints.
    """

    def __init__(
        self, name: str, argv: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Return its process id while it runs."""
        return self._process.pid if self.running and self._process is not None else None

    @property
    def running(self) -> bool:
        """Return whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Return its exit status; None while it runs, and once it was stopped."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it without waiting until it serves. Nothing happens if it runs.

        Raises:
            errors.ComponentFailed: it cannot be started.
        """
        if self.running:
            return
        if threading.current_thread() is not threading.main_thread():
            raise errors.ComponentFailed(
                f"{self.name} must be started in the main thread: the kernel ends it with it"
            )
        command = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *self.argv]
        with self.log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=None if self._environment is None else {**os.environ, **self._environment},
                    # Ctrl-C in a terminal reaches only the parent, which then stops its children in order.
                    process_group=0,
                )
            except OSError as error:
                raise errors.ComponentFailed(f"{self.name} cannot be started: {error}") from error

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End it in order, and kill it where it does not end by then."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._process = None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Kill it as `kill -9` does, and wait until it is gone."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait()
        self._process = None

    def until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until it serves. May be called in any thread.

        Raises:
            errors.ComponentFailed: it ended, or did not serve by then.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.running:
                raise errors.ComponentFailed(
                    f"{self.name} ended; its log {self.log} ends with: {self.tail()}"
                )
            if time.monotonic() > deadline:
                raise errors.ComponentFailed(
                    f"{self.name} is not ready after {seconds:.0f} s; its log {self.log} ends with: {self.tail()}"
                )
            time.sleep(POLL_SECONDS)

    def tail(self) -> str:
        """Return the end of its log."""
        if not self.log.exists():
            return ""
        return self.log.read_text(errors="replace")[-TAIL_CHARACTERS:].strip()
