"""Where everything of a cluster is: one directory, short enough for the sockets in it."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from drawbar.driver import errors
from drawbar.driver.api import drivers
from drawbar.driver.node.plugin import sockets

PREFIX = "drawbar-"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """One node's files.

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
        """Where the CDI files are."""
        return self.kubelet / "cdi"

    @property
    def registration(self) -> Path:
        """The socket that is there once the node daemon serves."""
        return self.kubelet / "plugins_registry" / f"{drivers.DEFAULT}-reg.sock"

    @property
    def longest_bytes(self) -> int:
        """The length of the longest path of a socket."""
        return max(len(os.fsencode(path)) for path in (self.registration, self.uevents))


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """A cluster's directory."""

    directory: Path

    @property
    def logs(self) -> Path:
        """One log file per process."""
        return self.directory / "logs"

    @property
    def admin(self) -> Path:
        """The kubeconfig that may do everything."""
        return self.account("admin")

    @property
    def journal(self) -> Path:
        """What the fabric did."""
        return self.directory / "journal.jsonl"

    @property
    def fabric_state(self) -> Path:
        """What the fabric remembers."""
        return self.directory / "fabric-state.json"

    @property
    def fabric_configuration(self) -> Path:
        """What the fabric consists of."""
        return self.directory / "fabric.json"

    @property
    def endpoint(self) -> str:
        """Where the fabric listens."""
        return f"unix:{self.directory / 'fabric.sock'}"

    @property
    def controller_pages(self) -> str:
        """Where the controller answers probes and gives its metrics; a port might be another cluster's."""
        return f"unix:{self.directory / 'http.sock'}"

    @property
    def kubeconfigs(self) -> Path:
        """The folder of the kubeconfig files."""
        return self.directory / "kubeconfig"

    def account(self, name: str) -> Path:
        """The kubeconfig of one account."""
        return self.kubeconfigs / f"{name}.kubeconfig"

    def node(self, name: str) -> NodePlace:
        """One node's files."""
        home = self.directory / name
        return NodePlace(name=name, kubelet=home, sysfs=home / "sys", uevents=home / "uevents")


def create(nodes: tuple[str, ...]) -> Places:
    """Makes the directory, under the system's folder for temporary files.

    Raises:
        errors.UsageError: that folder's path is so long that sockets in it are impossible, or it cannot be written.
    """
    try:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    except OSError as error:
        raise errors.UsageError(
            f"no directory can be made in {tempfile.gettempdir()}: {error.strerror}; set TMPDIR to another folder"
        ) from error
    places = Places(directory=directory)
    longest = max(places.node(name).longest_bytes for name in nodes)
    if longest > sockets.PATH_LIMIT_BYTES:
        directory.rmdir()
        raise errors.UsageError(
            f"sockets in {directory} would have paths of {longest} bytes, {sockets.PATH_LIMIT_BYTES} are possible: "
            f"set TMPDIR to a folder with a shorter path"
        )
    for folder in (places.logs, *(places.node(name).kubelet for name in nodes)):
        folder.mkdir()
    return places
