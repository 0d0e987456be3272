"""The paths of a cluster: one directory, with a path short enough for the sockets in it."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from drawbar.mocks import attachments, errors

PREFIX = "drawbar-"
SOCKET_PATH_BYTES = 107
"""The longest path of a UNIX socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePaths:
    """The paths of one node.

    Attributes:
        name: the node's name.
        kubelet: the kubelet's directory, with `cdi` and the plugins' sockets in it.
        sysfs: the mocked tree.
        uevents: the socket that receives the hot-plug uevents.
    """

    name: str
    kubelet: Path
    sysfs: Path
    uevents: Path

    @property
    def cdi(self) -> Path:
        """Return the folder of the CDI files."""
        return self.kubelet / "cdi"

    @property
    def registration(self) -> Path:
        """Return the path of the node daemon's registration socket; it exists once the daemon serves."""
        return self.kubelet / "plugins_registry" / f"{attachments.DRIVER}-reg.sock"

    @property
    def longest_bytes(self) -> int:
        """Return the length of the longest socket path, in bytes."""
        return max(len(os.fsencode(path)) for path in (self.registration, self.uevents))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPaths:
    """The paths of a cluster."""

    directory: Path

    @property
    def logs(self) -> Path:
        """Return the folder of the logs, one file per process."""
        return self.directory / "logs"

    @property
    def admin(self) -> Path:
        """Return the path of the administrator's kubeconfig."""
        return self.account("admin")

    @property
    def journal(self) -> Path:
        """Return the path of the fabric's journal."""
        return self.directory / "journal.jsonl"

    @property
    def fabric_state(self) -> Path:
        """Return the path of the fabric's saved state."""
        return self.directory / "fabric-state.json"

    @property
    def fabric_configuration(self) -> Path:
        """Return the path of the fabric's configuration."""
        return self.directory / "fabric.json"

    @property
    def endpoint(self) -> str:
        """Return the fabric's address."""
        return f"unix:{self.directory / 'fabric.sock'}"

    @property
    def fabric_control(self) -> Path:
        """Return the path of the simulated fabric's socket for commands."""
        return self.directory / "control.sock"

    @property
    def controller_pages(self) -> str:
        """Return the address of the controller's probes and metrics; a port could collide with another cluster's."""
        return f"unix:{self.directory / 'http.sock'}"

    @property
    def kubeconfigs(self) -> Path:
        """Return the folder of the kubeconfig files."""
        return self.directory / "kubeconfig"

    def account(self, name: str) -> Path:
        """Return the path of an account's kubeconfig."""
        return self.kubeconfigs / f"{name}.kubeconfig"

    def node(self, name: str) -> NodePaths:
        """Return the paths of a node."""
        home = self.directory / name
        return NodePaths(name=name, kubelet=home, sysfs=home / "sys", uevents=home / "uevents")


def create(nodes: tuple[str, ...]) -> ClusterPaths:
    """Make the directory in the system's folder for temporary files; return its paths.

    Raises:
        errors.UsageError: that folder's path is too long for sockets, or the folder is not writable.
    """
    try:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    except OSError as error:
        raise errors.UsageError(
            f"no directory can be made in {tempfile.gettempdir()}: {error.strerror}; set TMPDIR to another folder"
        ) from error
    paths = ClusterPaths(directory=directory)
    longest = max(paths.node(name).longest_bytes for name in nodes)
    if longest > SOCKET_PATH_BYTES:
        directory.rmdir()
        raise errors.UsageError(
            f"sockets in {directory} would have paths of {longest} bytes, {SOCKET_PATH_BYTES} are possible: "
            f"set TMPDIR to a folder with a shorter path"
        )
    for folder in (paths.logs, *(paths.node(name).kubelet for name in nodes)):
        folder.mkdir()
    return paths
