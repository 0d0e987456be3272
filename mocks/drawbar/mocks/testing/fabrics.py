"""The simulated fabric as a process, for the fixture `drawbar_fabric`."""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drawbar.mocks.testing import processes

USUAL = {
    "hosts": [{"id": "host-1", "name": "node-1"}],
    "enclosures": [
        {
            "id": "chassis-1",
            "devices": [
                {"id": f"gpu-{number}", "class": "gpu", "model": "H100", "serial": f"SN{number}"}
                for number in (1, 2)
            ],
        }
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningFabric:
    """A running fabric manager.

    Attributes:
        endpoint: its address, as `unix:/PATH`.
        configuration: its configuration file.
    """

    endpoint: str
    configuration: Path
    _journal: Path

    def journal(self) -> list[dict[str, Any]]:
        """Return the journal so far: one record for the start and one for the end of each operation."""
        if not self._journal.exists():
            return []
        return [json.loads(line) for line in self._journal.read_text(encoding="utf-8").splitlines()]


@contextlib.contextmanager
def running(folder: Path, wanted: str | dict[str, Any] | None) -> Iterator[RunningFabric]:
    """Run a fabric until the block ends, and yield it.

    Args:
        folder: the folder for its files.
        wanted: the configuration, as a file name or as content; None for `USUAL`.

    Raises:
        processes.NotReady: it does not start, for example because its configuration is wrong.
    """
    file = Path(wanted) if isinstance(wanted, str) else folder / "fabric.json"
    if not isinstance(wanted, str):
        file.write_text(json.dumps(USUAL if wanted is None else wanted), encoding="utf-8")
    # pytest's folders are too deep for sockets.
    with tempfile.TemporaryDirectory(prefix="drawbar-") as short:
        endpoint = f"unix:{short}/fabric.sock"
        journal = folder / "journal.jsonl"
        arguments = ("--config", str(file), "--listen", endpoint, "--journal", str(journal))
        with processes.running("fabric", folder / "fabric.log", *arguments):
            yield RunningFabric(endpoint=endpoint, configuration=file, _journal=journal)
