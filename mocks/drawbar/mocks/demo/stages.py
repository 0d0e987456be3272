"""The interface of a stage: the place of a demonstration, with a simulated fabric or a real kernel.

A stage describes its world. Entering it makes the world; leaving it ends every process and removes every file.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import cluster
from drawbar.mocks.demo import progress
from drawbar.mocks.kube import client


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """The paths of a running world, for people.

    Attributes:
        kubeconfig: the administrator's file.
        directory: the folder that is removed at the end.
        logs: the folder of the logs.
        notes: further sentences for people.
        fabric_control: the simulated fabric's socket for commands; None where another kind of fabric runs.
    """

    kubeconfig: Path
    directory: Path
    logs: Path
    notes: tuple[str, ...] = ()
    fabric_control: Path | None = None


class World(Protocol):
    """A cluster with a fabric whose whole pool is published.

    Attributes:
        keep_logs: keep the logs after the end; set after a failure.
    """

    keep_logs: bool

    @property
    def api(self) -> client.Client:
        """Return a client with all rights."""

    @property
    def journal(self) -> Path:
        """Return the path of the fabric's journal, with a line per entry; see `drawbar.mocks.fabric.journal`."""

    @property
    def where(self) -> Whereabouts:
        """Return the paths for people."""

    async def witness(self, see: Callable[[progress.Sighting], None]) -> None:
        """Report the sightings missing from the API server and the journal, until cancelled or until there are no more.

        Raises:
            cluster.ClusterError: a process of the world ended.
        """

    async def read(self, view: progress.View) -> str:
        """Let the container of a running pod read its device; return the beginning of the content.

        Only stages with the step READ support it.

        Raises:
            cluster.ClusterError: the read failed, or its content is wrong.
        """

    async def leaks(self) -> int:
        """Return the number of leaked things after every device was returned."""


class Stage(Protocol):
    """A description of the world of a demonstration."""

    @property
    def wanted(self) -> Mapping[str, DeviceClass]:
        """Return the class of device for each pod, by the pod's name."""

    @property
    def steps(self) -> Sequence[progress.Step]:
        """Return the steps of a device here, in their order."""

    def running(self, report: Callable[[cluster.Happening], None]) -> AbstractAsyncContextManager[World]:
        """Run the world until the block ends, and yield it.

        Raises:
            errors.UsageError: this machine does not meet a requirement; the message names the remedy.
            cluster.ClusterError: it does not start, or one of its processes ended.
        """
