"""Files of a tree whose reading hangs, as during a device's reset."""

import contextlib
import os


@contextlib.contextmanager
def hanging(path):
    """Let each reader of this file wait; in the end they get the file."""
    kept = path.with_name(f"{path.name}.kept")
    path.rename(kept)
    os.mkfifo(path)
    try:
        yield
    finally:
        # A reader that waits goes on without an answer, and a later one has the file.
        writer = os.open(path, os.O_RDWR)
        kept.rename(path)
        os.close(writer)


def hanging_function(tree, address):
    """Let each reader of a function's configuration space wait."""
    (path,) = tree.root.glob(f"devices/**/{address}/config")
    return hanging(path)
