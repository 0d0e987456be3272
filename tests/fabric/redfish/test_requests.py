"""How many requests a service without $expand is sent: for a listing, for the next one, and while nothing happens."""

import asyncio

import pytest
from tests.scenes import redfish_servers, waiting
from tests.scenes.redfish_servers import ROOT, adapting, link

from drawbar.fabric import contract
from drawbar.fabric.redfish import polling

BLOCKS = f"{ROOT}/CompositionService/ResourceBlocks"
SYSTEMS = f"{ROOT}/Systems"
# Root, composition service, and the collections of blocks and systems.
COLLECTIONS = 4


class Counting(redfish_servers.Service):
    """A service that counts the requests that are on their way at once."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0

    async def answer(self, request):
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0.002)
            return await super().answer(request)
        finally:
            self.now -= 1


def gpu_uris(number):
    return f"{BLOCKS}/gpu-{number}/Processors/0", f"{ROOT}/Chassis/c/PCIeDevices/{number}"


def make_composition_service(*, gpus, hosts):
    """Return a service of blocks with a processor, each on a PCIe device, as NEC's emulator has them."""
    made = Counting()
    blocks = {}
    for number in range(gpus):
        processor, card = gpu_uris(number)
        made.put(
            processor,
            ProcessorType="GPU",
            Model="A100",
            SerialNumber=f"S{number}",
            Status={"Health": "OK", "State": "Enabled"},
            Links={"PCIeDevice": link(card)},
        )
        made.put(
            card,
            **{"@odata.type": "#PCIeDevice.v1_9_0.PCIeDevice"},
            Manufacturer="NVIDIA",
            PartNumber="699-21010",
        )
        blocks[f"gpu-{number}"] = {"Processors": [link(processor)], "Status": {"Health": "OK"}}
    for number in range(hosts):
        processor = f"{BLOCKS}/cpu-{number}/Processors/0"
        made.put(processor, ProcessorType="CPU")
        blocks[f"cpu-{number}"] = {
            "Processors": [link(processor)],
            "Memory": [link(f"{BLOCKS}/cpu-{number}/Memory/0")],
        }
    made.put_blocks(blocks, {f"s{number}": [f"cpu-{number}"] for number in range(hosts)})
    return made


async def show(adapter, device_id):
    return (await adapter.devices()).device(device_id)


@pytest.mark.parametrize(("gpus", "hosts"), [(5, 1), (40, 10), (90, 10)])
async def test_a_listing_takes_a_request_for_each_resource_and_the_next_one_for_each_block(gpus, hosts):
    made = make_composition_service(gpus=gpus, hosts=hosts)
    async with adapting(made) as adapter:
        assert len((await adapter.devices()).devices) == gpus
        # A block, a processor and a PCIe device; a host, its block and its CPU. The connections are read twice.
        assert len(made.reads) <= COLLECTIONS + 3 * gpus + 3 * hosts + hosts + 1
        assert not [uri for uri in made.reads if "/cpu-" in uri and "/Memory" in uri]
        before = len(made.reads)
        assert len((await adapter.devices()).devices) == gpus
        assert len(made.reads) - before <= COLLECTIONS + gpus + 2 * hosts


async def test_the_reading_of_connect_is_the_first_listing():
    made = make_composition_service(gpus=10, hosts=2)
    async with adapting(made) as adapter:
        made.reads.clear()
        assert len((await adapter.devices()).devices) == 10
        assert len(made.reads) <= 1 + 2


async def test_an_idle_service_is_read_part_by_part_within_each_poll():
    made = make_composition_service(gpus=40, hosts=10)
    async with adapting(made, pollSeconds="1") as adapter:
        version = (await adapter.devices()).version
        async with adapter.watch(version) as events:
            assert isinstance(await anext(events), contract.Bookmark)
            made.reads.clear()
            polls = 4
            await waiting.eventually(lambda: made.reads.count(SYSTEMS) > polls, seconds=30)
            assert len(made.reads) <= polling.REQUESTS_PER_POLL_MIN * (polls + 1)
            # The turns of several polls are of several resources.
            resources = [uri for uri in made.reads if "/gpu-" in uri or "/PCIeDevices/" in uri]
            assert len(set(resources)) == len(resources) > polls


def serial(made):
    made.tree[gpu_uris(3)[0]]["SerialNumber"] = "OTHER"
    return lambda device: device.serial == "OTHER"


def model(made):
    made.tree[gpu_uris(3)[0]]["Model"] = "B200"
    return lambda device: device.model == "B200"


def health_of_part(made):
    made.tree[gpu_uris(3)[0]]["Status"]["Health"] = "Critical"
    return lambda device: device.health is not contract.Health.OK


def health_of_block(made):
    made.tree[f"{BLOCKS}/gpu-3"]["Status"] = {"Health": "Critical"}
    return lambda device: device.health is not contract.Health.OK


def part_of_card(made):
    made.tree[gpu_uris(3)[1]]["PartNumber"] = "900-21010"
    return lambda device: any(each.value.casefold() == "900-21010" for each in device.identifiers)


def other_card(made):
    processor, card = gpu_uris(99)
    made.put(processor, ProcessorType="GPU", Model="B200", Links={"PCIeDevice": link(card)})
    made.put(card, Manufacturer="NVIDIA", SerialNumber="S99")
    made.tree[f"{BLOCKS}/gpu-3"]["Processors"] = [link(processor)]
    return lambda device: (device.model, device.serial) == ("B200", "S99")


@pytest.mark.parametrize("change", [serial, model, health_of_part, health_of_block, part_of_card, other_card])
async def test_polling_notices_each_change_of_a_device(change):
    made = make_composition_service(gpus=12, hosts=2)
    async with adapting(made, pollSeconds="1") as adapter:
        version = (await adapter.devices()).version
        async with adapter.watch(version) as events:
            assert isinstance(await anext(events), contract.Bookmark)
            is_seen = change(made)
            async with asyncio.timeout(120):
                async for event in events:
                    if isinstance(event, contract.DeviceChanged) and is_seen(event.device):
                        break


async def test_a_device_that_comes_and_one_that_goes_are_in_the_next_poll():
    made = make_composition_service(gpus=60, hosts=2)
    gone = made.tree[BLOCKS]["Members"].pop(3)
    made.tree[BLOCKS]["Members@odata.count"] -= 1
    async with adapting(made, pollSeconds="1") as adapter:
        version = (await adapter.devices()).version
        async with adapter.watch(version) as events:
            assert isinstance(await anext(events), contract.Bookmark)
            made.tree[BLOCKS]["Members"][5] = gone
            made.reads.clear()
            seen = set()
            async with asyncio.timeout(120):
                while len(seen) < 2:
                    event = await anext(events)
                    seen.add(
                        event.device.id if isinstance(event, contract.DeviceChanged) else event.device_id
                    )
            assert "gpu-3" in seen
            assert made.reads.count(SYSTEMS) == 1


@pytest.mark.parametrize(
    ("change", "is_of_block"), [(health_of_block, True), (other_card, True), (serial, False)]
)
async def test_a_listing_reads_a_part_again_if_its_block_has_changed(change, is_of_block):
    made = make_composition_service(gpus=5, hosts=1)
    async with adapting(made) as adapter:
        await adapter.devices()
        is_seen = change(made)
        assert is_seen(await show(adapter, "gpu-3")) is is_of_block


@pytest.mark.parametrize("at_once", [None, 1, 5])
async def test_no_more_requests_are_on_their_way_than_the_parameter_says(at_once):
    made = make_composition_service(gpus=20, hosts=3)
    parameters = {"requestsAtOnce": str(at_once)} if at_once else {}
    async with adapting(made, **parameters) as adapter:
        await asyncio.gather(adapter.devices(), adapter.hosts(), adapter.devices())
        assert made.most == (at_once or 3)


async def test_a_busy_service_is_asked_again_and_with_fewer_requests_at_once():
    made = make_composition_service(gpus=40, hosts=1)
    refused = {f"{BLOCKS}/gpu-{number}" for number in (0, 7)}
    made.hook = lambda method, path, body: (
        (503, "application/json", b"{}") if path in refused and not refused.remove(path) else None
    )
    async with adapting(made, requestsAtOnce="8") as adapter:
        inventory = await adapter.devices()
        assert (len(inventory.devices), inventory.unread) == (40, ())
        assert not refused
        made.most = 0
        await adapter.devices()
        assert made.most < 8
