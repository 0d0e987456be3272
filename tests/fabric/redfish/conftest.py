import asyncio
import itertools
from contextlib import AsyncExitStack

import msgspec
import pytest

from drawbar.fabric import contract
from drawbar.fabric.redfish import adapter as redfish_adapter
from drawbar.fabric.redfish.adapter import RedfishAdapter
from drawbar.mocks import redfish
from drawbar.mocks.redfish import paths
from drawbar.mocks.redfish.configuration import Device, Enclosure, Host
from drawbar.mocks.testing import virtualtime

CONFIGURATION = redfish.Configuration(
    hosts=(Host(id="h1"), Host(id="h2")),
    enclosures=(
        Enclosure(
            id="e1",
            devices=(
                Device(id="gpu-1", kind="gpu", model="A100", vendor="N", serial="S1"),
                Device(id="gpu-2", kind="gpu", model="A100", vendor="N", serial="S2"),
                Device(id="disk-1", kind="nvme", model="P5", vendor="I"),
            ),
        ),
    ),
)
# Connections are of memory chunks: the same devices, as memory.
MEMORY = tuple(
    msgspec.structs.replace(
        enclosure,
        devices=tuple(
            msgspec.structs.replace(device, kind="cxl-memory", memory_mib=65536)
            for device in enclosure.devices
        ),
    )
    for enclosure in CONFIGURATION.enclosures
)
# A pool besides, of which chunks can be made.
POOL = Device(
    id="pool-1", kind="cxl-memory", model="Pool", vendor="I", serial="S9", memory_mib=8192, slice_mib=1024
)
WITH_POOL = (Enclosure(id="e1", devices=(*MEMORY[0].devices, POOL)),)
USER, PASSWORD = "drawbar", "correct horse"


def connection_body(service, name, host_id):
    """Return a client's request to connect a memory device to a host."""
    configuration = service.configuration
    host, device = ({"@odata.id": paths.endpoint(end)} for end in (host_id, name))
    chunk = {"@odata.id": paths.chunk_uri("e1", name, configuration)}
    ends = {"InitiatorEndpoints": [host], "TargetEndpoints": [device]}
    return {
        "ConnectionType": "Memory",
        "MemoryChunkInfo": [{"MemoryChunk": chunk}],
        "Links": {"TargetEndpoints": [host]} if configuration.is_appliance else ends,
    }


def pytest_asyncio_loop_factories(item):
    """Run the tests in virtual time; with the mark `sockets`, over TCP of the host, for TLS and other processes."""
    if item.get_closest_marker("sockets"):
        return {"sockets": asyncio.SelectorEventLoop}
    return {"virtual": virtualtime.VirtualTimeLoop}


class RedfishLab:
    """Services and adapters to them, all closed at the end."""

    def __init__(self, stack):
        self._stack = stack
        self._numbers = itertools.count(1)

    async def serve(self, *, tls=None, **changes):
        if changes.get("method") == "connections":
            changes.setdefault("enclosures", MEMORY)
        configuration = msgspec.structs.replace(CONFIGURATION, **changes)
        return await self._stack.enter_async_context(redfish.serving(configuration, tls=tls))

    async def close(self):
        await self._stack.aclose()

    def config(self, service, **changes):
        changes.setdefault("timeout_seconds", 10)
        if service.configuration.is_appliance:
            changes["parameters"] = {"profile": "cma"} | dict(changes.get("parameters", {}))
        if service.configuration.username:
            changes.setdefault(
                "credentials",
                contract.Credentials(
                    username=service.configuration.username, password=service.configuration.password
                ),
            )
        return contract.AdapterConfig(name="fab", endpoint=service.url, **changes)

    async def adapter(self, service, **changes):
        """Connect an adapter that the caller closes."""
        return await RedfishAdapter.connect(self.config(service, **changes))

    async def connect(self, service, **changes):
        adapter = await self.adapter(service, **changes)
        return await self._stack.enter_async_context(adapter)

    def attach(self, device_id, host_id="h1", **changes):
        changes.setdefault("request_id", f"r{next(self._numbers)}")
        return contract.AttachRequest(device_id=device_id, host_id=host_id, **changes)

    def detach(self, device_id, host_id="h1", **changes):
        changes.setdefault("request_id", f"r{next(self._numbers)}")
        return contract.DetachRequest(device_id=device_id, host_id=host_id, host_prepared=True, **changes)


@pytest.fixture
async def redfish_lab():
    async with AsyncExitStack() as stack:
        yield RedfishLab(stack)


@pytest.fixture
def impatient(monkeypatch):
    """Answer with an unfinished operation soon, whatever the deadline of a call."""
    monkeypatch.setattr(redfish_adapter, "PATIENCE_SECONDS", 0.2)
