"""A guest as a node of the cluster: the node daemon on the guest's own /sys, the kubelet double beside it.

Both are this checkout's, run as an administrator runs them. They reach the API server through the lab's channel at the
address that it has on the host. /var/lib/kubelet is a disk of its own and outlives a reboot, as on a real node; CDI
files are in memory and do not.
"""

import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import chassis, cluster, guest, processes, reached

KUBELET = "/var/lib/kubelet"
CONFIGURATION = "/run/lab/configuration"
READY_SECONDS = 480.0
"""Two Python programs on one emulated processor take 25 s on an idle machine."""
_BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where things are on the node.

    Attributes:
        program: `drawbar`.
        kubelet: the kubelet double's folder.
        cdi: where CDI files go.
        configuration: the folder of the kubeconfigs.
        flags: further flags of the node daemon.
    """

    program: str = str(_BIN / "drawbar")
    kubelet: str = KUBELET
    cdi: str = "/run/cdi"
    configuration: str = CONFIGURATION
    flags: tuple[str, ...] = ()


class Worker:
    """A node. Make it with `working`.

    Attributes:
        guest: the machine.
        chassis: what is plugged into it.
        cluster: what it belongs to.
        daemon: the node daemon's process; None while it does not run.
    """

    def __init__(
        self,
        machine: guest.Guest | reached.Reached,
        plugs: Any,
        belongs: cluster.Cluster,
        logs: Path,
        layout: Layout = Layout(),
    ) -> None:
        self.guest, self.chassis, self.cluster, self.layout = machine, plugs, belongs, layout
        self._logs = logs
        self._boot = contextlib.AsyncExitStack()
        self._daemon = contextlib.AsyncExitStack()
        self.daemon: processes.Process | None = None

    @property
    def name(self) -> str:
        """Return the name of the node and of the machine."""
        return self.guest.name

    async def start(self, *flags: str) -> None:
        """Start kubelet and daemon after a boot, and let them reach the API server."""
        configuration, kubelet_folder = self.layout.configuration, self.layout.kubelet
        for folder in (configuration, kubelet_folder, self.layout.cdi):
            await self.guest.make_folder(folder)
        if self.layout.cdi != f"{kubelet_folder}/cdi":
            await self.guest.output("ln", "-sfn", self.layout.cdi, f"{kubelet_folder}/cdi")
        # A new boot to the kubelet double: what ran does not run any more.
        await self.guest.output("rm", "-f", f"{kubelet_folder}/boot_id")
        node = self.cluster.kubeconfig(f"{self.name}-node", "drawbar:drawbar-node", node=self.name)
        await self.guest.write(f"{configuration}/node", node, mode=0o600)
        await self.guest.write(
            f"{configuration}/kubelet", self.cluster.kubeconfig(f"{self.name}-kubelet", "admin")
        )
        enter = self._boot.enter_async_context
        await enter(self.guest.offering("apiserver", to_port=self.cluster.port))
        kubelet = await enter(
            self.guest.process(
                self.layout.program,
                *("mock", "kubelet", "--kubeconfig", f"{configuration}/kubelet"),
                *("--node", f"{self.name}={kubelet_folder}", "--check-device-nodes"),
                *("--time", "unprepare=2", "--time", "retry_max=2", "--time", "resync=10"),
                log=self._logs / f"{self.name}.kubelet.log",
            )
        )
        await self.start_daemon(*flags)
        await kubelet.says('"ready": true', READY_SECONDS)
        assert self.daemon is not None
        await self.daemon.says("the kubelet registered the driver", READY_SECONDS)

    async def start_daemon(self, *flags: str) -> None:
        """Start the node daemon; it is not ready when this returns."""
        self.daemon = await self._daemon.enter_async_context(
            self.guest.process(
                self.layout.program, *self.arguments(*flags), log=self._logs / f"{self.name}.node.log"
            )
        )

    def arguments(self, *flags: str) -> tuple[str, ...]:
        """Return the node daemon's arguments, which follow `drawbar`."""
        return (
            *("node", "--node-name", self.name, "--kubeconfig", f"{self.layout.configuration}/node"),
            *("--log-format", "json", "--health-interval", "2", "--health-recovery", "2"),
            *self.layout.flags,
            *flags,
        )

    async def ready(self, seconds: float = READY_SECONDS) -> None:
        """Return when the daemon serves the kubelet."""
        assert self.daemon is not None
        await self.daemon.says("the kubelet registered the driver", seconds)

    async def end_daemon(self, number: signal.Signals = signal.SIGTERM) -> processes.Done:
        """End the node daemon; return how it ended."""
        assert self.daemon is not None
        await self.daemon.signal(number)
        done = await self.daemon.wait()
        self.daemon = None
        await self._daemon.aclose()
        return done

    async def reset(self, *flags: str) -> None:
        """Reset the machine, and start everything again, the daemon with these flags."""
        await self.stop()
        await self.guest.reset()
        await self.start(*flags)

    async def stop(self) -> None:
        """Let go of what runs."""
        self.daemon = None
        await self._daemon.aclose()
        await self._boot.aclose()

    async def run_in_container(self, pod: dict[str, Any], *argv: str) -> processes.Done:
        """Run a program as in the pod's container: its devices alone, its environment, its mounts."""
        spec = f"{self.layout.kubelet}/pods/{pod['metadata']['uid']}/config.json"
        return await self.guest.run(*self.guest.module("lab.container", spec, "--", *argv))

    async def device_nodes(self, pod: dict[str, Any]) -> list[str]:
        """Return the paths of the device nodes that the pod was given."""
        spec = await self.guest.read(f"{self.layout.kubelet}/pods/{pod['metadata']['uid']}/config.json")
        return [node["path"] for node in json.loads(spec)["linux"]["devices"]]

    async def slot(self, name: str) -> tuple[str, str]:
        """Return a slot's `power` and `adapter`."""
        folder = f"/sys/bus/pci/slots/{name}"
        power, adapter = await self.guest.read(f"{folder}/power"), await self.guest.read(f"{folder}/adapter")
        return power.strip(), adapter.strip()

    async def cdi_files(self) -> list[str]:
        """Return the names of the CDI files on the node."""
        return await self.guest.names(self.layout.cdi)

    def log(self) -> list[dict[str, Any]]:
        """Return the entries that the daemon has logged since its start."""
        if self.daemon is None:
            return []
        lines = self.daemon.errors.splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


@contextlib.asynccontextmanager
async def working(
    machine: guest.Guest, belongs: cluster.Cluster, *, folder: Path, logs: Path
) -> AsyncIterator[Worker]:
    """Start a node, and yield it once it is ready.

    Raises:
        lab.errors.GuestSilent: it does not become ready.
    """
    made = Worker(machine, chassis.Chassis(machine, folder), belongs, logs)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()
