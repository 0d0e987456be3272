"""Files that are replaced whole, so that a kubelet double that is killed leaves the old or the new one."""

import os
import tempfile
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Writes a file, making its folder, and puts it in place of the old one at once.

    It is not synced: the double survives its own end, not the host's.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(name).replace(path)
