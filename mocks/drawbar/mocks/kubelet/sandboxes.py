"""The pods' sandboxes and containers, which are files.

    DIR/pods/<uid>/sandbox             there is a sandbox
    DIR/pods/<uid>/config.json         OCI runtime spec of the first container: it runs
    DIR/pods/<uid>/config-<name>.json  the same of each other container, and of each init container

They outlive the kubelet double, as containers outlive a kubelet.
"""

import shutil
from pathlib import Path
from typing import Any

from drawbar.mocks.claims import documents
from drawbar.mocks.kubelet import files, runtime


class Sandboxes:
    """All pods of one node, by uid."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def uids(self) -> list[str]:
        """The pods that have a folder."""
        return sorted(folder.name for folder in self._directory.glob("*") if folder.is_dir())

    def exists(self, uid: str) -> bool:
        """Whether the pod has a sandbox."""
        return self._marker(uid).exists()

    def make(self, uid: str) -> None:
        """Makes the pod's sandbox."""
        files.replace(self._marker(uid), b"")

    def missing(self, pod: documents.Document) -> list[dict[str, Any]]:
        """The containers of the pod that do not run, the first container of the pod last.

        So whoever waits for `config.json` finds the others there too.
        """
        containers = pod.spec["containers"]
        wanted = [*(pod.spec.get("initContainers") or ()), *containers[1:], containers[0]]
        return [container for container in wanted if not self.config(pod, container["name"]).exists()]

    def run(self, pod: documents.Document, container: str, spec: dict[str, Any]) -> None:
        """Runs a container, on paper."""
        runtime.write(self.config(pod, container), spec)

    def config(self, pod: documents.Document, container: str) -> Path:
        """Where the runtime spec of a container is, or would be."""
        first = pod.spec["containers"][0]["name"]
        name = "config.json" if container == first else f"config-{container}.json"
        return self._directory / pod.metadata.uid / name

    def kill(self, uid: str) -> None:
        """Ends the pod's containers and its sandbox."""
        self._marker(uid).unlink(missing_ok=True)
        for spec in (self._directory / uid).glob("config*.json"):
            spec.unlink(missing_ok=True)

    def remove(self, uid: str) -> None:
        """Removes all that is left of the pod."""
        shutil.rmtree(self._directory / uid, ignore_errors=True)

    def _marker(self, uid: str) -> Path:
        return self._directory / uid / "sandbox"
