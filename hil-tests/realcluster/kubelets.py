"""A real kubelet as a node of a control plane, on the container-runtime double or on a runtime that runs already.

Kubelets need root. What a kubelet has mounted under its root directory is unmounted when it is stopped, so that the
directory can be deleted.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from realcluster import control_plane, errors, processes, programs

READY_SECONDS = 120.0
DOUBLE = "drawbar.mocks.containerruntime"


def missing_root() -> str:
    """Return why no kubelet can run here; empty if one can."""
    return "" if os.geteuid() == 0 else "kubelets need root: run it as root, or the rest runs without them"


class Kubelet:
    """A running kubelet; make it with `running`.

    Attributes:
        node: its name.
        folder: for its state and logs.
        root: its root directory; `plugins` and `plugins_registry` lie below it.
        kubelet: its process, which may be killed and started again.
        runtime: the process of the container-runtime double; None on another runtime.
    """

    def __init__(
        self,
        plane: control_plane.ControlPlane,
        node: str,
        folder: Path,
        *,
        endpoint: str | None,
        root: Path,
        cdi: Path,
        port: int,
    ) -> None:
        self.node, self.folder, self.root = node, folder, root
        self._plane = plane
        self._socket = folder / "cri.sock"
        self.log = folder / "containers.jsonl"
        installed = plane.settings.binaries
        self.runtime: processes.Component | None = None
        if endpoint is None:
            argv = [sys.executable, "-P", "-m", DOUBLE, str(self._socket), str(self.log), str(cdi)]
            self.runtime = processes.Component(f"runtime of {node}", argv, folder / "runtime.log")
            endpoint = f"unix://{self._socket}"
        gates = programs.kubelet_gates(installed.release, plane.settings.gates)
        content = programs.kubelet_configuration(runtime=endpoint, port=port, gates=gates)
        content |= programs.kubelet_extras(installed.release)
        (folder / "kubelet.yaml").write_text(programs.as_json(content))
        user = programs.NODE_PREFIX + node
        argv = programs.kubelet(
            installed, node=node, folder=folder, kubeconfig=plane.kubeconfig(user), root=self.root
        )
        self.kubelet = processes.Component(f"kubelet of {node}", argv, folder / "kubelet.log")

    @classmethod
    @contextlib.contextmanager
    def running(
        cls,
        plane: control_plane.ControlPlane,
        node: str,
        *,
        folder: Path | None = None,
        root: Path | None = None,
        endpoint: str | None = None,
        cdi: Path | None = None,
        wait: bool = True,
    ) -> Iterator[Self]:
        """Run a kubelet for as long as the block lasts; once entered, its Node is Ready.

        Args:
            plane: the control plane, which must know the node's name.
            node: its name.
            folder: for its files; None: below those of the control plane.
            root: its root directory; None: below its folder.
            endpoint: of a container runtime, such as `unix:///run/containerd.sock`; None: the double.
            cdi: the directory of CDI files that the double reads; None: `cdi` below the root directory.
            wait: whether to wait until the Node is Ready.

        Raises:
            errors.Unavailable: there is no kubelet, or no root.
            errors.ComponentFailed: it ends, or the Node is not Ready in time.
        """
        if why := missing_root():
            raise errors.Unavailable(why)
        if not plane.settings.binaries.has_kubelet:
            raise errors.Unavailable(f"in {plane.settings.binaries.folder} kubelet is not there")
        folder = folder or plane.settings.folder / node
        root = root or folder / "k"
        cdi = cdi or root / "cdi"
        for path in (folder, root, cdi):
            path.mkdir(parents=True, exist_ok=True)
        (port,) = control_plane.free_ports(1)
        made = cls(plane, node, folder, endpoint=endpoint, root=root, cdi=cdi, port=port)
        try:
            made.start()
            if wait:
                made.wait_ready()
            yield made
        finally:
            made.stop()

    def start(self) -> None:
        """Start the double and the kubelet, whichever does not run; in the main thread."""
        if self.runtime is not None and not self.runtime.running:
            self._socket.unlink(missing_ok=True)
            self.runtime.start()
            self.runtime.until(self._socket.exists, READY_SECONDS)
        self.kubelet.start()

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until the Node is Ready. May be called in any thread.

        Raises:
            errors.ComponentFailed: the kubelet ended, or the Node is not by then.
        """
        self.kubelet.until(self._is_ready, seconds)

    def kill(self) -> None:
        """End the kubelet as `kill -9` does; containers go on."""
        self.kubelet.kill()

    def stop(self) -> None:
        """End the kubelet and the double, and unmount what the kubelet mounted."""
        self.kubelet.stop()
        if self.runtime is not None:
            self.runtime.stop()
        unmount_below(self.root)

    def containers(self) -> list[dict[str, object]]:
        """Return `pod`, `container`, `cdi` and CDI's environment of each container that was asked for."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def _is_ready(self) -> bool:
        try:
            stored = json.loads(self._plane.request("GET", f"/api/v1/nodes/{self.node}"))
        except errors.RealClusterError:
            return False
        conditions = stored.get("status", {}).get("conditions", [])
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def mounts_below(folder: Path, mountinfo: str) -> list[str]:
    """Return the mount points below a folder and the folder itself, the deepest first.

    A kubelet mounts its root directory on itself, to make it shared.

    Args:
        folder: an absolute path.
        mountinfo: the text of /proc/self/mountinfo.
    """
    points = [line.split()[4].encode().decode("unicode_escape") for line in mountinfo.splitlines() if line]
    return sorted((point for point in points if f"{point}/".startswith(f"{folder}/")), key=len, reverse=True)


def unmount_below(folder: Path) -> None:
    """Unmount everything below a folder, lazily where it is in use."""
    text = Path("/proc/self/mountinfo").read_text()
    for point in mounts_below(folder.resolve(), text):
        subprocess.run(["umount", "-l", point], check=False, capture_output=True, timeout=30)
