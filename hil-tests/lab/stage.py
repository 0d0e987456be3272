"""The stage of `drawbar demo --adapter qemu`: one guest as the node, its ports as the fabric, and disks as the pool.

Made of the same parts as the tests' cluster. What goes wrong is reported in the demo's own errors, with the folder of the
logs; these stay behind then.
"""

import asyncio
import contextlib
import json
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from drawbar.driver import logs as log_format
from drawbar.driver.kube import kinds
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import cluster as doubles
from drawbar.mocks import errors as mock_errors
from drawbar.mocks.demo import progress, stages
from drawbar.mocks.kube import client, connections
from lab import cluster, errors, fabric_journal, guest, laboratory, machine, plane, processes, waiting, worker

MACHINE = machine.Machine(name="node-1", ports=4, memory_mib=1536)
SPARE = 1
"""Disks that no claim asks for, so that there is something to choose from."""
REPORT_SECONDS = 10.0
CONSOLE_BYTES = 4096
LINE_CHARACTERS = 100
PREFIX = "drawbar-demo-"


class Progress:
    """Reports repeatedly what is being waited for, with the seconds and the kernel's latest words."""

    def __init__(self, report: Callable[[doubles.Happening], None], console: Path) -> None:
        self._report, self._console = report, console
        self._doing, self._since = "", 0.0
        self.listens = False

    def do(self, what: str, *, listens: bool = False) -> None:
        """Report a new wait; `listens`: the kernel's console shows its progress."""
        self._doing, self._since, self.listens = what, asyncio.get_running_loop().time(), listens
        self._report(doubles.Waiting(what=what))

    async def run(self) -> None:
        """Report the wait again and again, until cancelled."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            seconds = asyncio.get_running_loop().time() - self._since
            reports = await asyncio.to_thread(last_line, self._console) if self.listens else ""
            more = f", {reports}" if reports else ""
            self._report(doubles.Waiting(what=f"{self._doing}: {seconds:.0f} s so far{more}"))


def last_line(console: Path) -> str:
    """Return the last whole line of a console's log, without unprintable characters; empty without one."""
    try:
        with console.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - CONSOLE_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    whole = [line.strip() for line in text.split("\n")[:-1]]
    reports = next((line for line in reversed(whole) if line), "")
    return "".join(letter for letter in reports if letter.isprintable())[:LINE_CHARACTERS]


class RunningLab:
    """A running cluster with one real kernel; see `drawbar.mocks.demo.stages.World`."""

    def __init__(
        self,
        api: client.Client,
        pool: plane.Plane,
        events: processes.Process,
        slots: dict[str, str],
        folder: Path,
        logs: Path,
    ) -> None:
        self.keep_logs = False
        self.api = api
        self.journal = folder / "journal.jsonl"
        self.where = stages.Whereabouts(
            kubeconfig=folder / "admin.kubeconfig",
            directory=folder,
            logs=logs,
            notes=(f"What the node's kernel says: {pool.node.guest.paths.log}",),
        )
        self._pool, self._events, self._slots = pool, events, slots
        self._logs = logs

    async def witness(self, see: Callable[[progress.Sighting], None]) -> None:
        """Report new PCI functions in the slots, as the kernel announces them."""
        last = 0
        while True:
            fresh = [event for event in uevents(self._events.output) if int(event["SEQNUM"]) > last]
            for event in fresh:
                last = int(event["SEQNUM"])
                address = event.get("PCI_SLOT_NAME", "")
                slot = self._slots.get(address.rpartition(".")[0])
                if slot is not None and (event["ACTION"], event["SUBSYSTEM"]) == ("add", "pci"):
                    see(progress.KernelSaw(slot=slot, address=address))
            if self._events.status is not None:
                raise doubles.ClusterError(
                    f"the virtual machine {MACHINE.name} has ended, or lost its agent (logs: {self._logs})"
                )
            self._events.changed.clear()
            await self._events.changed.wait()

    async def read(self, view: progress.View) -> str:
        """Read the disk's first line in the pod's container, check it against the disk's file, return it."""
        with explaining(self._logs):
            node = self._pool.node
            pod = await self._pool.cluster.read(kinds.POD, view.pod)
            if pod is None:
                raise doubles.ClusterError(f"pod {view.pod} is gone")
            disk = await self._disk(pod)
            done = await node.run_in_container(pod, "head", "-n", "1", disk)
        there = await asyncio.to_thread(plane.first_line, self._pool.images[view.serial])
        if done.status != 0 or done.output != there:
            content = done.output.strip() if done.status == 0 else done.errors.strip()
            raise doubles.ClusterError(
                f'the container of {view.pod} read "{content[-200:]}" from {disk}, and not "{there.strip()}", which is on '
                f"the disk with serial {view.serial} (logs: {self._logs})"
            )
        return done.output.strip()

    async def _disk(self, pod: dict[str, Any]) -> str:
        """Return the path of the block device that the runtime gave to the pod's container."""
        path = f"{worker.KUBELET}/pods/{pod['metadata']['uid']}/config.json"
        spec = json.loads(await self._pool.node.guest.read(path))
        paths = [node["path"] for node in spec["linux"]["devices"] if node.get("type") == "b"]
        if not paths:
            name = pod["metadata"]["name"]
            raise doubles.ClusterError(f"the container of {name} got no disk (logs: {self._logs})")
        return paths[0]

    async def leaks(self) -> int:
        """Count attached devices of the fabric, attachments, CDI files, and disks that the kernel shows."""
        with explaining(self._logs):
            held = await self._pool.adapter.devices()
            return (
                sum(device.connection is not None for device in held.devices)
                + len(await self._pool.attachments())
                + len(await self._pool.node.cdi_files())
                + len(await self._pool.node.guest.names("/sys/class/nvme"))
            )


class Stage:
    """The lab; see `drawbar.mocks.demo.stages.Stage`."""

    steps = tuple(progress.Step)

    def __init__(self, pods: int) -> None:
        self.wanted = {f"demo-{number + 1}": DeviceClass.NVME for number in range(pods)}

    @contextlib.asynccontextmanager
    async def running(self, report: Callable[[doubles.Happening], None]) -> AsyncIterator[RunningLab]:
        """Boot a node, publish a pool for it, and yield the running cluster.

        Raises:
            mock_errors.UsageError: this machine lacks something; the message names what to install.
            doubles.ClusterError: the guest does not come up, or something in it.
        """
        logs = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=PREFIX))
        keep = False
        try:
            with _keeping_log(logs / "control-plane.log"):
                async with self._starting(report, logs) as world:
                    try:
                        yield world
                    finally:
                        keep = world.keep_logs
        except Exception as error:
            keep = not isinstance(error, mock_errors.UsageError)
            raise
        finally:
            if not keep:
                await asyncio.to_thread(shutil.rmtree, logs)

    @contextlib.asynccontextmanager
    async def _starting(
        self, report: Callable[[doubles.Happening], None], logs: Path
    ) -> AsyncIterator[RunningLab]:
        console = machine.MachinePaths.from_folders(logs, logs, MACHINE.name).log
        doing = Progress(report, console)
        async with waiting.tasks() as tasks, contextlib.AsyncExitStack() as stack:
            ticker = tasks.create_task(doing.run(), name="progress")
            try:
                with explaining(logs):
                    world = await self._assemble_world(doing, logs, stack)
            finally:
                ticker.cancel()
            yield world

    async def _assemble_world(
        self, doing: Progress, logs: Path, stack: contextlib.AsyncExitStack
    ) -> RunningLab:
        enter = stack.enter_async_context
        doing.do("looking for QEMU and Debian's kernel, which is downloaded once (70 MB)")
        lab = await enter(laboratory.Lab.running(logs))
        doing.do(f"booting {MACHINE.name} (20 to 100 s)", listens=True)
        booted = await enter(lab.guest(MACHINE))
        release = (await booted.read("/proc/sys/kernel/osrelease")).strip()
        doing.do(f"{MACHINE.name} runs Linux {release}; starting the API server")
        belongs = await enter(cluster.Cluster.running(lab.folder))
        events = await enter(booted.process(*booted.module("lab.kernel_probe", "events")))
        await events.says("{}")
        slots = await _slots(booted)
        doing.do(f"starting the node daemon and the kubelet in {MACHINE.name} (60 to 150 s)")
        node = await enter(worker.working(booted, belongs, folder=lab.folder, logs=logs))
        doing.do("waiting for the controller to publish the pool")
        pool = await enter(
            plane.giving_out(node, lab.folder, disks=len(self.wanted) + SPARE, withdrawn=False)
        )
        connection = connections.from_kubeconfig(lab.folder / "admin.kubeconfig")
        api = await enter(client.connecting(connection))
        world = RunningLab(api, pool, events, slots, lab.folder, logs)
        await enter(fabric_journal.writing(pool.adapter, world.journal))
        return world


async def _slots(booted: guest.Guest) -> dict[str, str]:
    """Return the hot-plug slots by the PCI address of what may be in them, such as `0000:01:00`."""
    folder = "/sys/bus/pci/slots"
    return {
        (await booted.read(f"{folder}/{slot}/address")).strip(): slot for slot in await booted.names(folder)
    }


def uevents(output: str) -> Iterator[dict[str, str]]:
    """Return the uevents that `lab.kernel_probe` has written, without half a line at the end."""
    for line in output.split("\n")[:-1]:
        event = json.loads(line) if line.startswith("{") and line.endswith("}") else {}
        if {"SEQNUM", "ACTION", "SUBSYSTEM"} <= event.keys():
            yield event


@contextlib.contextmanager
def _keeping_log(path: Path) -> Iterator[None]:
    """Write the control plane's log to a file, not between the demo's lines: both run in this process."""
    with path.open("w") as file:
        log_format.configure("text", level="INFO")
        for handler in logging.getLogger().handlers:
            assert isinstance(handler, logging.StreamHandler)
            handler.setStream(file)
        try:
            yield
        finally:
            log_format.configure("text", level="ERROR")


@contextlib.contextmanager
def explaining(logs: Path) -> Iterator[None]:
    """Raise the lab's errors as the demo's."""
    try:
        yield
    except errors.Unavailable as error:
        raise mock_errors.UsageError(str(error)) from error
    except (errors.LabError, AssertionError) as error:
        # Its first sentence: the rest is the end of a log, which is kept.
        reports = str(error).partition("; its console ends with")[0].partition("\n")[0]
        raise doubles.ClusterError(f"{reports} (logs: {logs})") from error
