"""Files that are replaced whole, so that a kubelet double that is killed leaves the old or the new one.

Source: pkg/kubelet/util/store/filestore.go (`writeFile`), which syncs the file and not its folder.
"""

import os
import tempfile
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Write a file, making its folder, and put it in place of the old one at once.

    After a crash of the host the old content or the new is there, never a part.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)
