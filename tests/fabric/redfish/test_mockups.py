"""The adapter reads services that other people described: the mock-ups of the DMTF, with their mistakes."""

import json
import os
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from drawbar.fabric import contract
from drawbar.fabric.redfish.adapter import RedfishAdapter

MOCKUPS = os.environ.get("MOCKUPS", "")
pytestmark = pytest.mark.tool("mock-ups")


@asynccontextmanager
async def serving(folder):
    """Serve the `index.json` of each folder, and nothing else."""
    root = folder / "redfish" / "v1" if (folder / "redfish").is_dir() else folder

    async def answer(request):
        path = request.path.strip("/").removeprefix("redfish/v1").strip("/")
        file = root / path / "index.json"
        if request.method != "GET" or not file.is_file():
            return web.json_response(
                {"error": {"code": "Base.1.0.GeneralError", "message": "none"}}, status=404
            )
        return web.json_response(json.loads(file.read_text()))

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def adapting(name, **parameters):
    async with serving(Path(MOCKUPS) / name) as url:
        config = contract.AdapterConfig(
            name="mockup", endpoint=url, timeout_seconds=30, parameters=parameters
        )
        async with await RedfishAdapter.connect(config) as adapter:
            yield adapter


async def test_devices_of_a_cxl_fabric_are_read_and_its_switch_is_none():
    async with adapting("public-cxl") as adapter:
        devices = {device.id: device for device in (await adapter.devices()).devices}
        (host,) = await adapter.hosts()
    classes = {device_id: device.device_class for device_id, device in devices.items()}
    assert classes == {
        "CXL.T1": contract.DeviceClass.FPGA,
        "CXL.T2": contract.DeviceClass.GPU,
        "CXL.T3": contract.DeviceClass.CXL_MEMORY,
        "CXL.T4": contract.DeviceClass.CXL_MEMORY,
        "CXL.T5": contract.DeviceClass.CXL_MEMORY,
    }
    assert [each.value for each in devices["CXL.T5"].identifiers] == ["4c-1d-96-ff-fe-dd-d8-35"]
    assert devices["CXL.T5"].memory_bytes == 16 << 30
    assert devices["CXL.T5"].enclosure == "CXLType3"
    assert {device.connection.host_id for device in devices.values()} == {"CXL-System"}
    assert host.identifiers["system-uuid"] == "68d5e212-165b-4ca0-909b-c86b9cee0112"


async def test_connections_of_memory_chunks_are_read():
    async with adapting("public-cxl", profile="connections") as adapter:
        devices = (await adapter.devices()).devices
    hosts = {device.id: device.connection and device.connection.host_id for device in devices}
    system = "CXL-System"
    # The connection of T4 is there, and not in the collection.
    slices = {"PooledCXLType2.1.1": system, "PooledCXLType3.1.1": system, "PooledCXLType3.6.1": None}
    pools = dict.fromkeys(("PooledCXLType2.1", "PooledCXLType3.1", "PooledCXLType3.6"))
    assert hosts == {"CXL.T5": None} | slices | pools


async def test_memory_chunks_are_read_and_those_of_the_host_itself_are_no_devices():
    async with adapting("public-cxl", profile="cma") as adapter:
        devices = (await adapter.devices()).devices
        hosts = {host.id for host in await adapter.hosts()}
    attached = {device.id: device.connection and device.connection.host_id for device in devices}
    assert attached == {
        "CXLType2.1.1": None,
        "CXLType3.1.1": None,
        "PooledCXLType2.1.1": "CXL-System",
        "PooledCXLType3.1.1": "CXL-System",
        "PooledCXLType3.6.1": None,
    }
    assert {device.device_class for device in devices} == {contract.DeviceClass.CXL_MEMORY}
    assert {device.serial for device in devices} == {"4c-1d-96-ff-fe-dd-d8-35"}
    assert hosts == {"CXL-System", "T1", "T2", "T3", "T4", "T5"}


@pytest.mark.parametrize(
    ("name", "attached"),
    [
        (
            "public-composability",
            {
                "DriveBlock10": "SystemAfterAddResourceAction",
                "DriveBlock3": "ComposedSystem",
                "DriveBlock4": "ComposedSystem",
                "NetworkBlock8": "ComposedSystem2",
            },
        ),
        (
            "public-constrained-composition",
            {
                "DriveBlock3": "ComposedSystem",
                "DriveBlock4": "ComposedSystem",
                "NetworkBlock8": "ComposedSystem2",
            },
        ),
        ("public-compose-action", {"NVMe-TargetsAppliance-1": "BladeServer-1", "26021": "BladeServer-1"}),
    ],
)
async def test_resource_blocks_and_the_systems_that_have_them_are_read(name, attached):
    async with adapting(name) as adapter:
        devices = (await adapter.devices()).devices
        hosts = {host.id for host in await adapter.hosts()}
    connections = {device.id: device.connection.host_id for device in devices if device.connection}
    assert connections == attached
    assert len(devices) > len(attached)
    assert set(attached.values()) <= hosts


async def test_two_blocks_of_one_id_cost_one_of_them_and_nothing_else():
    async with adapting("public-compose-action") as adapter:
        listed = [device.id for device in (await adapter.devices()).devices]
    assert listed.count("SASSled-3") == 1
    assert len(listed) == len(set(listed))
