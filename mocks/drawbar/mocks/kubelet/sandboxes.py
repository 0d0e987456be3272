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
        """Return the pods with folders."""
        return sorted(folder.name for folder in self._directory.glob("*") if folder.is_dir())

    def exists(self, uid: str) -> bool:
        """Return true if the pod has a sandbox."""
        return self._marker(uid).exists()

    def make(self, uid: str) -> None:
        """Make the pod's sandbox."""
        files.replace(self._marker(uid), b"")

    def list_missing_containers(self, pod: documents.Document) -> list[dict[str, Any]]:
        """Return the pod's containers that do not run, its first container last.

        So a reader that waits for `config.json` finds the others there too.
        """
        containers = pod.spec["containers"]
        wanted = [*(pod.spec.get("initContainers") or ()), *containers[1:], containers[0]]
        return [container for container in wanted if not self.config(pod, container["name"]).exists()]

    def run(self, pod: documents.Document, container: str, spec: dict[str, Any]) -> None:
        """Run a container by writing its runtime spec."""
        runtime.write(self.config(pod, container), spec)

    def config(self, pod: documents.Document, container: str) -> Path:
        """Return the path for a container's runtime spec."""
        first = pod.spec["containers"][0]["name"]
        name = "config.json" if container == first else f"config-{container}.json"
        return self._directory / pod.metadata.uid / name

    def kill(self, uid: str) -> None:
        """End the pod's containers and its sandbox."""
        self._marker(uid).unlink(missing_ok=True)
        for spec in (self._directory / uid).glob("config*.json"):
            spec.unlink(missing_ok=True)

    def remove(self, uid: str) -> None:
        """Remove all remains of the pod."""
        shutil.rmtree(self._directory / uid, ignore_errors=True)

    def _marker(self, uid: str) -> Path:
        return self._directory / uid / "sandbox"
