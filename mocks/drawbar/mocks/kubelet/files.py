"""Files that are replaced completely, so that a killed kubelet double leaves the old or the new one.

Source: pkg/kubelet/util/store/filestore.go (`writeFile`), which syncs the file but not its folder.
"""

import os
import tempfile
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Replace a file in one step; make its folder if needed.

    After a crash of the host the file has the old or the new content, never a part.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)
