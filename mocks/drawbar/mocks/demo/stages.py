"""Where a demonstration plays: on a simulated fabric, or before a real kernel. What every such place must offer.

A stage is what there will be; entering it makes the world, and leaving it ends every process and removes every file.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from drawbar.driver.kube import client
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import cluster
from drawbar.mocks.demo import progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where people find what runs.

    Attributes:
        kubeconfig: of a caller who may do everything.
        directory: what is removed at the end.
        logs: the folder of the logs.
        notes: further sentences for people.
    """

    kubeconfig: Path
    directory: Path
    logs: Path
    notes: tuple[str, ...] = ()


class World(Protocol):
    """A cluster with a fabric, whose whole pool is published.

    Attributes:
        keep_logs: leave the logs behind; set when something went wrong.
    """

    keep_logs: bool

    @property
    def api(self) -> client.Client:
        """A client with all rights."""

    @property
    def journal(self) -> Path:
        """What the fabric did, a line per entry; see `drawbar.mocks.fabric.journal`."""

    @property
    def where(self) -> Whereabouts:
        """For people."""

    async def witness(self, see: Callable[[progress.Sighting], None]) -> None:
        """Report what the API server and the fabric do not record, until cancelled or for as long as there is any.

        Raises:
            cluster.ClusterError: the world has come to an end.
        """

    async def read(self, view: progress.View) -> str:
        """Has the container of a running pod read its device; gives the beginning of what is on it.

        Asked for on stages with the step READ alone.

        Raises:
            cluster.ClusterError: it reads something else than what is on the device, or cannot.
        """

    async def leaks(self) -> int:
        """How many things are left after everything was given back."""


class Stage(Protocol):
    """What will be shown."""

    @property
    def wanted(self) -> Mapping[str, DeviceClass]:
        """The pods by name, and the class of device that each asks for."""

    @property
    def steps(self) -> Sequence[progress.Step]:
        """Those that a device takes here, in their order."""

    def running(self, report: Callable[[cluster.Happening], None]) -> AbstractAsyncContextManager[World]:
        """The world for as long as the block lasts.

        Raises:
            driver.errors.UsageError: this machine lacks something; the message names the remedy.
            cluster.ClusterError: it does not start, or one of its processes ended.
        """
