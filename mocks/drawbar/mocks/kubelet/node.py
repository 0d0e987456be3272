"""The Node object of one node of the kubelet double, and its folder.

    DIR/boot_id           made at the first start; delete it while the double is down, and the node has rebooted
    DIR/plugins_registry/ registration sockets
    DIR/plugins/          folders of the plugins
    DIR/cdi/              CDI spec files; /var/run/cdi on a real node
    DIR/etc_cdi/          CDI spec files that exist from the start, as in /etc/cdi; optional
    DIR/pods/<uid>/       see `sandboxes`
    DIR/dra_manager_state claims and their prepared devices, in the real kubelet's format

Not emulated: the lease and the heartbeat; a node stays Ready when its kubelet double ends.
"""

import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import client, errors, kinds
from drawbar.mocks.kubelet import sandboxes


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A description of one node.

    Attributes:
        name: the name of the Node object.
        directory: its folder, made if missing.
        labels: the labels in addition to `kubernetes.io/hostname`.
    """

    name: str
    directory: Path
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def registry(self) -> Path:
        """Return the folder for the plugins' registration sockets."""
        return self.directory / "plugins_registry"

    @property
    def cdi(self) -> Path:
        """Return the folder of CDI specs for the runtime."""
        return self.directory / "cdi"

    @property
    def cdi_directories(self) -> tuple[Path, ...]:
        """Return all directories with CDI specs, the last one with the highest priority."""
        return self.directory / "etc_cdi", self.cdi

    @property
    def pods(self) -> Path:
        """Return the folder of the pods' folders, by uid."""
        return self.directory / "pods"


def prepare_directory(node: NodeSpec) -> str:
    """Make the node's folders; return its boot id.

    After a reboot all sandboxes and CDI files are removed. The kubelet's state files and the plugins' sockets stay,
    because they are not on a tmpfs.
    """
    for folder in (node.registry, node.directory / "plugins", node.cdi, node.pods):
        folder.mkdir(parents=True, exist_ok=True)
    file = node.directory / "boot_id"
    if not file.exists():
        pods = sandboxes.Sandboxes(node.pods)
        for uid in pods.uids():
            pods.kill(uid)
        for content in node.cdi.iterdir():
            # The real directory is a tmpfs, emptied by a reboot.
            shutil.rmtree(content) if content.is_dir() else content.unlink()
        file.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
    return file.read_text(encoding="ascii").strip()


async def register(api: client.Client, node: NodeSpec, *, boot_id: str, release: str, now: str) -> None:
    """Create or update the Node object, and report it as ready."""
    labels = {"kubernetes.io/hostname": node.name, **node.labels}
    metadata = {"name": node.name, "labels": labels}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    try:
        await api.create(kinds.NODE, body, into=documents.Document)
    except errors.AlreadyExists:
        await _patch(api, node.name, {"metadata": {"labels": labels}})
    await _patch(api, node.name, {"status": _status(node, boot_id, release, now)}, subresource="status")


async def _patch(
    api: client.Client, name: str, body: dict[str, Any], *, subresource: str | None = None
) -> None:
    await api.patch(
        kinds.NODE,
        name,
        body,
        content=client.Patch.MERGE,
        into=documents.Document,
        subresource=subresource,
    )


def _status(node: NodeSpec, boot_id: str, release: str, now: str) -> dict[str, Any]:
    system = str(uuid.uuid5(uuid.NAMESPACE_DNS, node.name))
    return {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "the kubelet double is at work",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
        ],
        "nodeInfo": {
            "machineID": system.replace("-", ""),
            "systemUUID": system,
            "bootID": boot_id,
            "kernelVersion": "",
            "osImage": "kubelet double",
            "containerRuntimeVersion": "emulated://1",
            "kubeletVersion": f"v{release}.0",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }
