"""The stage `guest`: nothing is a double but the chassis, which is QEMU.

A virtual machine has the kernel's own hot-plug. In it run containerd, a kubelet and the node daemon; outside the control
plane, and the controller with a Fabric of the adapter `qemu`. Pods read disks that are plugged in for them. The machine
is the lab's (docs/lab.md); what it lacks there, it lacks here.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from lab import chassis, guest, initrd, laboratory, machine, packages
from lab import errors as lab_errors

from drawbar.driver.kube import client, config, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.mocks.cluster import deployment
from realcluster import chart_stage, container_node, control_plane, images, processes, programs, stages

NODE = "guest-1"
FABRIC = "rack"
DISKS = 2
PORTS = 4
MEMORY_MIB = 4096
FOLDER = "/run/node"
KUBELET = "/var/lib/kubelet"
MODULES = (*initrd.MODULES, "veth")
READY_SECONDS = 420.0
"""For everything in the guest: one emulated processor, and containerd, kubelet and daemon begin with a boot."""
POLL_SECONDS = 1.0
IMAGE_BYTES = 32 << 20
MEMORY_MIB_OF_CXL, MEMORY_SERIAL = 256, 0x35200
PCIEHP = "/sys/bus/pci_express/drivers/pciehp"
"""The kernel's driver of hot-plug slots."""
FAILED = "drawbar.dev/attach-failed"
PROBATION_SECONDS = 3600
READS = (
    "for disk in /dev/nvme*n1; do exec 3<$disk; done; "
    "line=$(head -c 64 <&3 | tr -d '\\000' | head -n 1); echo ${line:-nothing}; exec sleep 3600"
)
"""It keeps the disk open, as what uses one does."""
NOTHING = "nothing"
LOOKS = "echo $(env) $(ls /dev/cxl); exec sleep 3600"


def run(context: stages.Context) -> stages.Outcome:
    """Try two pods at once, a pulled disk, slots without power, CXL memory, an erased disk, a power cut."""
    if context.installed.release.minor < chart_stage.MODERN_SINCE:
        return stages.Outcome(
            skipped=True, text=f"{context.installed.release.name} has no resource.k8s.io/v1"
        )
    node = chart_stage.make_node(Path(FOLDER))
    if missing := container_node.describe_missing(node):
        return stages.Outcome(skipped=True, text=missing)
    try:
        asyncio.run(_run(context, node))
    except lab_errors.Unavailable as error:
        return stages.Outcome(skipped=True, text=str(error))
    except (lab_errors.LabError, kube_errors.KubeError) as error:
        return stages.Outcome(failed=True, text=str(error))
    return stages.Outcome(
        text="two disks at once, surprise removal, a slot without power, CXL memory, an erased disk, and a power cycle of the "
        "node"
    )


async def _run(context: stages.Context, node: container_node.Node) -> None:
    async with contextlib.AsyncExitStack() as stack:
        laboratory = await _laboratory(context)
        plane = stack.enter_context(context.plane(nodes=(NODE,)))
        image = images.busybox(context.folder / "busybox.tar")
        files = _kubelet_files(plane, context.folder)
        made = machine.Machine(name=NODE, ports=PORTS, cxl_ports=1, memory_mib=MEMORY_MIB)
        api = await stack.enter_async_context(client.connecting(config.from_kubeconfig(plane.admin)))
        await deployment.apply(api, policies=True)
        stack.enter_context(_controller(plane, context.folder))
        whole = dataclasses.replace(node, images=(str(image),), kubelet=tuple(files), memory=())
        cluster = Cluster(api, plane, whole, context.folder, context.say)
        async with laboratory.guest(made) as running, cluster.booting(running):
            await cluster.offer()
            await cluster.try_two_pods()
            await cluster.try_surprise()
            await cluster.try_slot_without_power()
            await cluster.try_memory()
            await cluster.try_erase()
            line, plugged = await cluster.use_and_cut_power()
        async with laboratory.guest(made, plugged=plugged) as running, cluster.booting(running):
            await cluster.go_on_after_power_cut(line)


async def _laboratory(context: stages.Context) -> laboratory.Lab:
    """Return a lab whose guests have what containers need."""
    cache = packages.cache()
    kernel = await asyncio.to_thread(packages.kernel, cache)
    busybox = await asyncio.to_thread(packages.busybox, cache)
    image = await asyncio.to_thread(initrd.ensure_archive, cache, kernel, busybox, MODULES)
    packages.tools()
    return laboratory.Lab(
        context.folder, context.folder, laboratory.Kit(qemu=packages.qemu(), kernel=kernel, image=image)
    )


def _kubelet_files(plane: control_plane.ControlPlane, folder: Path) -> Sequence[str]:
    """Write the kubelet's configuration; return its command line. The guest sees the host's files."""
    installed = plane.settings.binaries
    gates = programs.kubelet_gates(installed.release, plane.settings.gates)
    runtime = f"unix://{FOLDER}/containerd.sock"
    content = programs.kubelet_configuration(runtime=runtime, port=10250, gates=gates)
    (folder / "kubelet.yaml").write_text(
        programs.as_json(content | programs.kubelet_extras(installed.release))
    )
    command = programs.kubelet(
        installed,
        node=NODE,
        folder=folder,
        kubeconfig=plane.kubeconfig(programs.NODE_PREFIX + NODE),
        root=Path(KUBELET),
    )
    return [*command, f"--node-ip={container_node.ADDRESS}"]


@contextlib.contextmanager
def _controller(plane: control_plane.ControlPlane, folder: Path) -> Any:
    account = plane.service_account_kubeconfig(folder / "controller.kubeconfig", "drawbar:drawbar-controller")
    program = str(Path(sys.executable).with_name("drawbar"))
    argv = [
        program,
        "controller",
        "--kubeconfig",
        str(account),
        "--no-leader-election",
        "--http-address",
        "off",
    ]
    component = processes.Component("controller", argv, folder / "controller.log")
    component.start()
    try:
        yield
    finally:
        component.stop()


class Cluster(chart_stage.Cluster):
    """The guest as a node, and what pods of it see."""

    ready_seconds, pause_seconds = READY_SECONDS, POLL_SECONDS

    def __init__(
        self,
        api: client.Client,
        plane: control_plane.ControlPlane,
        node: container_node.Node,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(api, say)
        self._plane, self._about, self._folder = plane, node, folder
        self._guest: guest.Guest

    @contextlib.asynccontextmanager
    async def booting(self, running: guest.Guest) -> AsyncIterator[None]:
        """Run the programs of a node after its boot, while the block lasts; once entered, they are ready."""
        self._guest = running
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            yield

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        begun, enter = time.monotonic(), stack.enter_async_context
        port = self._plane.settings.ports.apiserver
        await enter(self._guest.offering("apiserver", to_port=port))
        await self._guest.output("mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")
        await self._guest.make_folder(FOLDER)
        await self._guest.write(f"{FOLDER}/node.json", container_node.as_json(self._about))
        inside = (sys.executable, "-I", "-S", container_node.__file__, "--inside", f"{FOLDER}/node.json")
        await enter(self._guest.process(*inside, log=self._folder / "node.log"))
        await self.settle(self._node_unready)
        self.say(f"the node is Ready after {time.monotonic() - begun:.0f} s")
        token = self._plane.service_account_kubeconfig(
            self._folder / "node.kubeconfig", "drawbar:drawbar-node", node=NODE
        )
        await self._guest.write(f"{FOLDER}/node.kubeconfig", token.read_text(), mode=0o600)
        program = str(Path(sys.executable).with_name("drawbar"))
        # A checkout that is not installed is found by the same path there.
        environment = {"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {}
        daemon = await enter(
            self._guest.process(
                *(program, "node", "--node-name", NODE, "--kubeconfig", f"{FOLDER}/node.kubeconfig"),
                env=environment,
                log=self._folder / "node-daemon.log",
            )
        )
        await daemon.says("the kubelet registered the driver", READY_SECONDS)

    async def offer(self) -> None:
        """Make the Fabric; its disks and its memory are offered."""
        disks: list[dict[str, Any]] = []
        for number in range(DISKS):
            image = self._folder / f"disk-{number}.img"
            with image.open("wb") as file:
                file.write(f"this is disk {number}\n".encode())
                file.truncate(IMAGE_BYTES)
            disks.append(
                {"driver": "nvme", "id": f"disk-{number}", "serial": f"DISK{number:04}", "file": str(image)}
            )
        memory = {
            "driver": "cxl-type3",
            "id": "memory-0",
            "serial": MEMORY_SERIAL,
            "sizeMiB": MEMORY_MIB_OF_CXL,
            "file": str(self._folder / "memory-0"),
            "labelsFile": str(self._folder / "labels-0"),
        }
        ports = [*self._guest.machine.port_names, *self._guest.machine.cxl_port_names]
        hosts = [{"id": NODE, "qmp": str(self._guest.paths.fabric), "ports": ports}]
        described = self._folder / "fabric.json"
        described.write_text(json.dumps({"hosts": hosts, "devices": [*disks, memory]}))
        spec = {
            "adapter": "qemu",
            "endpoint": f"file:{described}",
            "policy": {"probationSeconds": 0, "clean": {"nvme": "none"}},
        }
        await self.create(kinds.FABRIC, FABRIC, spec)

    async def try_two_pods(self) -> None:
        """Let two pods read their own disks at once, and wait until both disks are released."""
        begun = time.monotonic()
        for name in ("reads-1", "reads-2"):
            await self._pod(name)
        lines = {await self._line(name) for name in ("reads-1", "reads-2")}
        self.expect(
            lines == {f"this is disk {number}" for number in range(DISKS)}, f"each reads its own: {lines}"
        )
        self.say(f"two pods read their disks after {time.monotonic() - begun:.0f} s")
        begun = time.monotonic()
        for name in ("reads-1", "reads-2"):
            await self._delete(name)
        await self.settle(self._list_unreleased)
        self.say(f"both disks are back after {time.monotonic() - begun:.0f} s")

    async def try_surprise(self) -> None:
        """Pull a disk out under its pod, and wait until the pod is evicted and the device is released."""
        await self._pod("loses")
        await self._line("loses")
        (device,) = [attachment["spec"]["deviceID"] for attachment in await self.objects(kinds.ATTACHMENT)]
        begun = time.monotonic()
        await self._guest.monitor.ask("device_del", {"id": f"drawbar.{device}"})
        await self.settle(lambda: self.list_leftovers(kinds.POD))
        self.say(f"the pod was evicted {time.monotonic() - begun:.0f} s after its disk was pulled out")
        await self._delete("loses")
        await self.settle(self._list_unreleased)

    async def try_slot_without_power(self) -> None:
        """Try slots without power: the claim gets the reason, the disk a taint, and the pod another disk."""
        await self._policy(probationSeconds=PROBATION_SECONDS)
        begun = time.monotonic()
        # Slots without a driver: a card is plugged in, and gets no power.
        slots = [name for name in await self._guest.names(PCIEHP) if ":pcie" in name]
        for slot in slots:
            await self._guest.write(f"{PCIEHP}/unbind", slot)
        await self._pod("waits")

        async def find_missing_event() -> list[str]:
            return [] if await self._warnings("waits") else ["the claim got no Event of its disk"]

        await self.settle(find_missing_event)
        reasons = await self._warnings("waits")
        self.expect(set(reasons) == {"DeviceNotFound"}, f"the claim gets the right reason: {reasons}")
        self.say(
            f"the claim got the Event of the disk that did not come up after {time.monotonic() - begun:.0f} s"
        )
        for slot in slots:
            await self._guest.write(f"{PCIEHP}/bind", slot)
        line = await self._line("waits")
        (tainted,) = await self._list_tainted_devices()
        self.expect(
            line in {f"this is disk {number}" for number in range(DISKS)} and not line.endswith(tainted[-1]),
            f"with {tainted} tainted the pod reads the other disk: {line!r}",
        )
        await self.settle(lambda: self._still_attached(tainted))
        self.say(
            f"the pod read the other disk after {time.monotonic() - begun:.0f} s, with {tainted} released"
        )
        await self._delete("waits")
        await self.settle(self._list_unreleased)
        await self._policy(probationSeconds=0)
        await self.settle(self._still_tainted)

    async def try_memory(self) -> None:
        """Give a pod CXL memory as a device file: Linux 6.1 makes nothing of persistent memory."""
        begun = time.monotonic()
        await self._pod("remembers", "cxl-memory", LOOKS)
        line = await self._line("remembers")
        (name,) = await self._memories()
        for wanted in (f"_SERIAL={MEMORY_SERIAL:#x}", "_PCI_ADDRESS=0000:", name):
            self.expect(wanted in line, f"the container sees {wanted}: {line!r}")
        self.say(f"a pod has CXL memory after {time.monotonic() - begun:.0f} s")
        await self._delete("remembers")
        await self.settle(self._list_unreleased)

    async def try_erase(self) -> None:
        """Check that the next pod finds nothing on a disk that is erased, and everything on the other one."""
        await self._policy(clean={"nvme": "erase"})
        await self._pod("leaves")
        line = await self._line("leaves")
        begun = time.monotonic()
        await self._delete("leaves")
        await self.settle(self._list_unreleased)
        self.say(f"a disk is erased and back after {time.monotonic() - begun:.0f} s")
        for name in ("finds-1", "finds-2"):
            await self._pod(name)
        lines = {await self._line(name) for name in ("finds-1", "finds-2")}
        left = {f"this is disk {number}" for number in range(DISKS)} - {line}
        self.expect(lines == {NOTHING, *left}, f"of {line!r} nothing is left: {lines}")
        for name in ("finds-1", "finds-2"):
            await self._delete(name)
        await self.settle(self._list_unreleased)

    async def use_and_cut_power(self) -> tuple[str, list[str]]:
        """Cut the node's power under a pod; return what the pod had read, and what is in the node's ports."""
        await self._pod("stays")
        line = await self._line("stays")
        there = await chassis.build_disk_arguments(self._guest)
        await self._guest.cut_power()
        return line, there

    async def go_on_after_power_cut(self, line: str) -> None:
        """Check that the node, switched on again, starts its pod with the disk that it had."""
        begun = time.monotonic()
        again = await self._line("stays")
        self.expect(again == line, f"after the power cut the pod reads {line!r} again: {again!r}")
        self.say(
            f"the pod reads its disk again {time.monotonic() - begun:.0f} s after the node's programs are back"
        )
        await self._delete("stays")
        await self.settle(self._list_unreleased)

    async def _pod(self, name: str, device_class: str = "nvme", command: str = READS) -> None:
        await self.pod(name, device_class, command, automountServiceAccountToken=False)

    async def _line(self, pod: str) -> str:
        """Wait until the pod runs and has printed something, and return the last line."""
        printed: list[str] = []

        async def silent() -> list[str]:
            files = f"/var/log/pods/default_{pod}_*/main/*.log"
            done = await self._guest.run("sh", "-c", f"cat {files} | tail -n 1")
            printed[:] = [done.output.strip().partition(" F ")[2]]
            phase = await self.phase(pod)
            return (
                []
                if phase == "Running" and printed[0]
                else [f"pod {pod} is {phase} and printed {printed[0]!r}"]
            )

        await self.settle(silent)
        return printed[0]

    async def _list_unreleased(self) -> list[str]:
        problems = await self.list_leftovers(kinds.POD, kinds.CLAIM, kinds.ATTACHMENT)
        there = await self._guest.monitor.ask("qom-list", {"path": "/machine/peripheral"})
        problems += [
            f"{entry['name']} is still plugged in" for entry in there if entry["name"].startswith("drawbar.")
        ]
        names = await self._guest.names("/sys/bus/pci/drivers/nvme")
        names = [name for name in names if name.startswith("0000:")] + await self._memories()
        return problems + [f"the kernel still has {name}" for name in names]

    async def _memories(self) -> list[str]:
        """Return the names of the kernel's CXL memory devices."""
        return [name for name in await self._guest.names("/sys/bus/cxl/devices") if name.startswith("mem")]

    async def _warnings(self, name: str) -> list[str]:
        """Return the reasons of Warnings on the claims of a pod."""
        return [
            event["reason"]
            for event in await self.objects(kinds.EVENT)
            if event.get("type") == "Warning"
            and event.get("regarding", {}).get("kind") == "ResourceClaim"
            and event["regarding"]["name"].startswith(f"{name}-")
        ]

    async def _list_tainted_devices(self) -> list[str]:
        """Return the names of the devices that failed."""
        return [
            device["name"]
            for published in await self.objects(kinds.SLICE)
            for device in published["spec"].get("devices", ())
            if any(taint["key"] == FAILED for taint in device.get("taints", ()))
        ]

    async def _still_tainted(self) -> list[str]:
        return [f"{name} is still tainted" for name in await self._list_tainted_devices()]

    async def _still_attached(self, device: str) -> list[str]:
        attached = [attachment["spec"]["device"] for attachment in await self.objects(kinds.ATTACHMENT)]
        return [f"{device} is still attached"] if device in attached else []

    async def _policy(self, **policy: Any) -> None:
        change = {"spec": {"policy": policy}}
        await self.api.patch(kinds.FABRIC, FABRIC, change, content=client.Patch.MERGE, into=dict)

    async def _node_unready(self) -> list[str]:
        nodes = {stored["metadata"]["name"]: stored for stored in await self.objects(kinds.NODE)}
        status = nodes.get(NODE, {}).get("status", {})
        conditions = status.get("conditions", [])
        ready = any(
            condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
        )
        # A node that lost its power is Ready for a while.
        booted = status.get("nodeInfo", {}).get("bootID") == self._guest.boot_id
        return [] if ready and booted else [f"the Node is not Ready since this boot: {conditions}"]

    async def _delete(self, name: str) -> None:
        for kind in (kinds.POD, kinds.CLAIM_TEMPLATE):
            with contextlib.suppress(kube_errors.NotFound):
                await self.api.begin_delete(kind, name, namespace="default", into=dict)
