"""Keys of a terminal, read one by one.

Source: termios(3), ECMA-48 section 5.4 (control sequences), as xterm sends them.
"""

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections import deque
from collections.abc import Callable, Iterator

from drawbar.driver import errors
from drawbar.driver.cli.terminal import screen

READ_BYTES = 1024
QUEUE_LIMIT = 100
_SEQUENCES = {
    b"\x1b[A": screen.UP,
    b"\x1bOA": screen.UP,
    b"\x1b[B": screen.DOWN,
    b"\x1bOB": screen.DOWN,
    b"\x1b[5~": screen.PAGE_UP,
    b"\x1b[6~": screen.PAGE_DOWN,
    b"\x1b[H": screen.HOME,
    b"\x1bOH": screen.HOME,
    b"\x1b[1~": screen.HOME,
    b"\x1b[F": screen.END,
    b"\x1bOF": screen.END,
    b"\x1b[4~": screen.END,
    b"\x1b": screen.ESCAPE,
    b"\r": screen.ENTER,
    b"\n": screen.ENTER,
    b"\x7f": screen.BACKSPACE,
    b"\x08": screen.BACKSPACE,
}


def decode(raw: bytes) -> tuple[str, ...]:
    """Return the keys in the bytes of one read; sequences of other keys are left out."""
    keys = []
    while raw:
        length = _length(raw)
        key = _SEQUENCES.get(raw[:length])
        if key is not None:
            keys.append(key)
        elif not raw.startswith(b"\x1b"):
            keys += [letter for letter in raw[:length].decode(errors="ignore") if letter.isprintable()]
        raw = raw[length:]
    return tuple(keys)


def _length(raw: bytes) -> int:
    """Return the number of bytes of the first key."""
    if raw[:1] != b"\x1b":
        end = next((index for index, byte in enumerate(raw) if byte < 0x20 or byte == 0x7F), len(raw))
        return max(1, end)
    if raw[1:2] == b"O":
        return min(3, len(raw))
    if raw[1:2] != b"[":
        return 1
    # A sequence has parameters, then a final byte.
    return next((index + 1 for index in range(2, len(raw)) if 0x40 <= raw[index] <= 0x7E), len(raw))


@contextlib.contextmanager
def keys(pressed: Callable[[], None]) -> Iterator[deque[str]]:
    """Yield the pressed keys, and call `pressed` for more; restore the terminal afterwards.

    Raises:
        errors.DrawbarError: standard input is no terminal.
    """
    descriptor = sys.stdin.fileno()
    waiting: deque[str] = deque(maxlen=QUEUE_LIMIT)
    try:
        before = termios.tcgetattr(descriptor)
    except termios.error as error:
        raise errors.DrawbarError(
            "standard input is not a terminal; redirect neither input nor output, or add -o json"
        ) from error

    def read() -> None:
        raw = os.read(descriptor, READ_BYTES)
        # A closed terminal reads as empty.
        waiting.extend(decode(raw) if raw else ("q",))
        pressed()

    loop = asyncio.get_running_loop()
    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield waiting
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
