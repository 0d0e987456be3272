import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from drawbar.fabric import contract
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
        return contract.AdapterConfig(name="lab", endpoint=f"file:{path}", timeout_seconds=5)

    async def connect(self, **changes):
        return await self._stack.enter_async_context(await QemuAdapter.connect(self.config(**changes)))

    def added(self):
        return [name for machine in self.machines.values() for name in machine.added]


@pytest.fixture
async def qemu_lab(tmp_path):
    """Both machines run, nothing is attached; at the end no port was ever given a second device."""
    async with AsyncExitStack() as stack:
        lab = QemuLab(tmp_path, stack)
        for name in lab.machines:
            await lab.start(name)
        yield lab
        await stack.aclose()
        for name in tuple(lab.running):
            await lab.stop(name)
        assert not any(machine.accidents for machine in lab.machines.values())


async def eventually(condition, seconds=5.0):
    """Waits until a condition holds; it may be a coroutine function."""
    async with asyncio.timeout(seconds):
        while True:
            value = condition()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.01)


@pytest.fixture(name="eventually")
def eventually_fixture():
    return eventually
