"""Reads of files, each for a bounded time: the kernel lets the reader of some files wait for the device.

Such a read cannot be interrupted, so each runs in a thread. The thread of a read that hangs is left to it.
"""

import os
from concurrent import futures

from drawbar.driver.node.discovery.hangingreads import FURTHER_SHARE, PATIENCE_SECONDS, Worker

_OPEN = os.O_RDONLY | os.O_CLOEXEC


class TimedReads:
    """A thread for reads, one after the other; another one takes its place after a read that hangs."""

    def __init__(self) -> None:
        self._patience_seconds = PATIENCE_SECONDS
        self._worker = Worker()

    def read(self, path: str, most: int) -> bytes | None:
        """Return the file's content, cut after `most` + 1 bytes, or None if the read hangs.

        Raises:
            OSError: the kernel refuses.
        """
        answer: futures.Future[bytes] = futures.Future()
        self._worker.begin(lambda: _answer(answer, path, most))
        futures.wait((answer,), self._patience_seconds)
        if answer.done():
            return answer.result()
        self._worker, self._patience_seconds = Worker(), PATIENCE_SECONDS / FURTHER_SHARE
        return None


def _answer(answer: futures.Future[bytes], path: str, most: int) -> None:
    try:
        answer.set_result(_read(path, most))
    except OSError as error:
        answer.set_exception(error)


def _read(path: str, most: int) -> bytes:
    descriptor = os.open(path, _OPEN)
    try:
        parts = []
        left = most + 1
        while left > 0 and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
