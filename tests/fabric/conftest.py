import asyncio
import json
import os
import shutil
import subprocess
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.scenes import waiting

from drawbar.fabric import budget, contract
from drawbar.fabric.qemu import qmp
from drawbar.fabric.qemu.adapter import QemuAdapter
from drawbar.mocks import qemu

POOL = [
    {"driver": "nvme", "id": "nvme-1", "serial": "S1", "file": "/pool/nvme-1.img"},
    {"driver": "edu", "id": "edu-1"},
    {"driver": "edu", "id": "edu-2"},
    {
        "driver": "cxl-type3",
        "id": "mem-1",
        "serial": 4660,
        "file": "/pool/mem-1",
        "labelsFile": "/pool/mem-1.labels",
        "sizeMiB": 256,
    },
]
PORTS = {"rp1": "pcie-root-port", "rp2": "pcie-root-port", "crp1": "cxl-rp", "uplink": "x3130-upstream"}


class QemuLab:
    """Two doubles of QEMU that share a pool, and adapters to them."""

    def __init__(self, folder, stack):
        self.folder, self._stack = folder, stack
        files = qemu.Files()
        self.machines = {name: qemu.VirtualMachine(ports=dict(PORTS), files=files) for name in ("vm1", "vm2")}
        self.stumbles = {name: qemu.Stumble() for name in self.machines}
        self.running = {}
        self.pool = [dict(device) for device in POOL]
        self.detach_seconds = 5.0

    async def start(self, name):
        running = qemu.serving(self.machines[name], self.socket(name), self.stumbles[name])
        self.running[name] = running
        await running.__aenter__()

    async def stop(self, name):
        await self.running.pop(name).__aexit__(None, None, None)

    def socket(self, name):
        return self.folder / f"{name}.qmp"

    def config(self, **changes):
        hosts = [{"id": name, "qmp": str(self.socket(name))} for name in self.machines]
        described = {"hosts": hosts, "devices": self.pool, "detachSeconds": self.detach_seconds}
        path = self.folder / "fabric.json"
        path.write_text(json.dumps(described | changes))
        return contract.AdapterConfig(name="lab", endpoint=f"file:{path}", timeout_seconds=20)

    async def connect(self, **changes):
        return await self._stack.enter_async_context(await QemuAdapter.connect(self.config(**changes)))

    def list_added_devices(self):
        return [name for machine in self.machines.values() for name in machine.added]


@pytest.fixture
async def qemu_lab(tmp_path):
    """Run both machines with nothing attached; assert at the end that no port ever had two devices."""
    async with AsyncExitStack() as stack:
        lab = QemuLab(tmp_path, stack)
        for name in lab.machines:
            await lab.start(name)
        yield lab
        await stack.aclose()
        for name in tuple(lab.running):
            await lab.stop(name)
        assert not any(machine.accidents for machine in lab.machines.values())


@pytest.fixture
def endpoint(tmp_path):
    """Return the endpoint of a plugin of the test's own."""
    return f"unix:{tmp_path}/f.sock"


class Calls:
    """What the tests ask of an adapter, in few words."""

    @staticmethod
    def attach(device_id, host_id="vm1", request_id="r1", **more):
        return contract.AttachRequest(request_id=request_id, device_id=device_id, host_id=host_id, **more)

    @staticmethod
    def detach(device_id, host_id="vm1", request_id="d1"):
        return contract.DetachRequest(
            request_id=request_id, device_id=device_id, host_id=host_id, host_prepared=True
        )

    @staticmethod
    async def wait_until_done(adapter, operation):
        while not operation.done:
            await asyncio.sleep(0.02)
            operation = await adapter.operation(operation_id=operation.id)
        return operation

    @staticmethod
    async def attach_and_wait(adapter, *what, **more):
        """Return an attach at its end: the adapter answers before that where it takes longer than the adapter's patience."""
        return await Calls.wait_until_done(adapter, await adapter.attach(Calls.attach(*what, **more)))

    @staticmethod
    async def connection(adapter, device_id):
        return (await adapter.devices()).device(device_id).connection


@pytest.fixture(name="calls")
def calls_fixture():
    return Calls


@pytest.fixture(name="eventually")
def eventually_fixture():
    return waiting.eventually


# --- QEMU itself ---

QEMU = shutil.which("qemu-system-x86_64")
LIFE_SECONDS = 400
BOOT_SECONDS = 100

# Only where one is named: an emulated guest takes a processor core for most of a minute.
KERNEL = Path(os.environ["DRAWBAR_KERNEL"]) if "DRAWBAR_KERNEL" in os.environ else None
PATHS = (os.environ.get("DRAWBAR_BUSYBOX", "/bin/busybox"), "/bin/busybox", "/usr/bin/busybox")
BUSYBOX = next((path for path in map(Path, PATHS) if path.exists()), None)

REASON = None
if QEMU is None:
    REASON = "QEMU IS NOT TESTED: apt-get install qemu-system-x86, and the qemu adapter is tried on it"
NO_GUEST = REASON
if REASON is None and (KERNEL is None or BUSYBOX is None):
    NO_GUEST = "NO GUEST IS TESTED HERE: `make hil` does it, or name DRAWBAR_KERNEL and DRAWBAR_BUSYBOX"

INIT = b"""#!/bin/busybox sh
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
echo GUEST-UP
while read line; do eval "$line"; echo "DONE"; done
"""


def initrd():
    """Return an archive in cpio's newc form with busybox and INIT."""
    folder, file, device = 0o40755, 0o100755, 0o20600
    entries = [(name, folder, b"", (0, 0)) for name in ("bin", "proc", "sys", "dev")]
    entries += [("dev/console", device, b"", (5, 1)), ("bin/busybox", file, BUSYBOX.read_bytes(), (0, 0))]
    entries += [("init", file, INIT, (0, 0)), ("TRAILER!!!", 0, b"", (0, 0))]
    archive = b""
    for number, (name, mode, data, major_minor) in enumerate(entries, 1):
        path = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *major_minor, len(path), 0)
        head = b"070701" + "".join(f"{field:08x}" for field in fields).encode() + path
        archive += head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)
    return archive


class Machine:
    """A QEMU with two PCIe root ports and a CXL root port, and two QMP sockets; stopped by `stop`."""

    def __init__(self, folder, name, *, boots):
        self.qmp, self.monitor = folder / f"{name}.qmp", folder / f"{name}.monitor"
        self.log, self.console = folder / f"{name}.log", folder / f"{name}.console"
        command = [
            *("timeout", str(LIFE_SECONDS), QEMU, "-M", "q35,cxl=on,accel=tcg", "-cpu", "max"),
            *("-m", "256M,maxmem=4G,slots=4", "-nodefaults", "-display", "none", "-no-reboot"),
            *("-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"),
            *("-qmp", f"unix:{self.qmp},server=on,wait=off"),
            *("-qmp", f"unix:{self.monitor},server=on,wait=off"),
            *("-device", "pcie-root-port,id=port-1,bus=pcie.0,chassis=1,slot=1"),
            *("-device", "pcie-root-port,id=port-2,bus=pcie.0,chassis=2,slot=2"),
            *("-device", "pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl"),
            *("-device", "cxl-rp,port=0,bus=cxl,id=cxl-1,chassis=3,slot=3"),
            *("-M", "cxl-fmw.0.targets.0=cxl,cxl-fmw.0.size=1G"),
        ]
        if boots:
            (folder / "initrd").write_bytes(initrd())
            command += ["-kernel", str(KERNEL), "-initrd", str(folder / "initrd")]
            command += ["-append", "console=ttyS0 quiet"]
            # A pipe of the file system: what the guest reads; what it says is in the log.
            for end in ("in", "out"):
                os.mkfifo(f"{self.console}.{end}")
            command += ["-chardev", f"pipe,id=console,path={self.console},logfile={self.log}"]
            command += ["-serial", "chardev:console"]
        else:
            command += ["-S"]
        self._ends = [os.open(f"{self.console}.{end}", os.O_RDWR) for end in ("in", "out")] if boots else []
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def says(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    async def wait_until_booted(self, eventually):
        await eventually(lambda: self._drain_output() and "GUEST-UP" in self.says(), BOOT_SECONDS)

    async def run(self, command, eventually):
        """Run one line in the guest's shell; return what the guest prints."""
        before = len(self.says())
        os.write(self._ends[0], command.encode() + b"\n")
        await eventually(lambda: self._drain_output() and "DONE" in self.says()[before:], 20)
        return self.says()[before:]

    def _drain_output(self):
        """Discard the guest's output: no other process reads it, and a full pipe would hold it up."""
        os.set_blocking(self._ends[1], False)
        try:
            while os.read(self._ends[1], 65536):
                pass
        except BlockingIOError:
            pass
        return True

    def stop(self):
        self.process.terminate()
        self.process.wait()
        for end in self._ends:
            os.close(end)


def config(folder, machines, *, detach_seconds=40):
    disk = folder / "disk.img"
    disk.touch()
    os.truncate(disk, 16 << 20)
    described = {
        "hosts": [
            {"id": f"vm{number}", "qmp": str(machine.qmp)} for number, machine in enumerate(machines, 1)
        ],
        "devices": [
            {"driver": "nvme", "id": "nvme-1", "serial": "S1", "file": str(disk)},
            {"driver": "edu", "id": "edu-1"},
            {"driver": "e1000e", "id": "nic-1", "mac": "52:54:00:12:34:56"},
            {"driver": "ivshmem-plain", "id": "shm-1", "file": str(folder / "shm")},
            {"driver": "cxl-type3", "id": "mem-1", "serial": 4660, "sizeMiB": 256}
            | {"file": str(folder / "mem"), "labelsFile": str(folder / "labels")},
        ],
        "detachSeconds": detach_seconds,
    }
    path = folder / "fabric.json"
    path.write_text(json.dumps(described))
    return contract.AdapterConfig(name="lab", endpoint=f"file:{path}", timeout_seconds=20)


def until_they_listen(machines):
    deadline = time.monotonic() + 20
    while not all(machine.qmp.exists() and machine.monitor.exists() for machine in machines):
        assert time.monotonic() < deadline, "QEMU does not start"
        assert all(machine.process.poll() is None for machine in machines), "QEMU has ended"
        time.sleep(0.05)


@asynccontextmanager
async def open_monitor(machine, events):
    """Yield a QMP client of the test's own, beside the adapter's."""
    client = await qmp.Client.connect(
        str(machine.monitor),
        on_event=lambda name, data: events.append((name, data)),
        on_lost=lambda: None,
        flow=budget.Flow(budget.Limits(), "lab", clock=time.monotonic),
    )
    try:
        yield client
    finally:
        client.close()


@pytest.fixture(scope="module")
def real_qemu(tmp_path_factory):
    """Run two machines without a kernel: their slots are off, and no guest has to consent to a removal."""
    if REASON:
        pytest.skip(REASON)
    folder = tmp_path_factory.mktemp("qemu")
    machines = [Machine(folder, name, boots=False) for name in ("vm1", "vm2")]
    try:
        until_they_listen(machines)
        yield RealQemu(folder, machines)
    finally:
        for machine in machines:
            machine.stop()


@pytest.fixture(scope="module")
def real_guest(tmp_path_factory):
    """Run one machine with a booted guest."""
    if NO_GUEST:
        pytest.skip(NO_GUEST)
    folder = tmp_path_factory.mktemp("guest")
    machine = Machine(folder, "vm1", boots=True)
    try:
        until_they_listen([machine])
        yield RealQemu(folder, [machine])
    finally:
        machine.stop()


class RealQemu:
    """Machines, and how an adapter reaches them."""

    def __init__(self, folder, machines):
        self.folder, self.machines = folder, machines

    async def connect(self, **more):
        return await QemuAdapter.connect(config(self.folder, self.machines, **more))

    def open_monitor(self, number=0, events=None):
        return open_monitor(self.machines[number], [] if events is None else events)
