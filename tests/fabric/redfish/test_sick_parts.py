"""One sick part of a Redfish service does not fail the whole: the rest is served, and the part's devices are in doubt."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from tests.scenes import redfish_replay, redfish_servers, waiting
from tests.scenes.redfish_servers import (
    BROKEN,
    HTML,
    NOT_UTF8,
    NOTHING,
    ROOT,
    adapting,
    link,
    put_gpu,
    put_host,
)

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import transcripts
from drawbar.fabric.redfish.adapter import RedfishAdapter

CASES = Path(__file__).parents[2] / "cases" / "redfish"
FABRIC = f"{ROOT}/Fabrics/PCIe"
SICK = {
    "500": BROKEN,
    "503": (503, "text/plain", b"not ready"),
    "a page": HTML,
    "no text": NOT_UTF8,
    "nothing": NOTHING,
}
GPU_1, GPU_2 = "PCIe.gpu-1", "PCIe.gpu-2"


def service(zones=(), **properties):
    made = redfish_servers.Service()
    ends = {"h1": put_host(made, "h1"), "h2": put_host(made, "h2")}
    ends |= {"gpu-1": put_gpu(made), "gpu-2": put_gpu(made, "gpu-2", "S2")}
    made.put_fabric("PCIe", ends, zones, **properties)
    return made


def fail(made, path, answer=BROKEN):
    made.hook = lambda method, asked, body: answer if asked == path else None


def attach(device_id=GPU_1, host_id="h1", request_id="r1"):
    return contract.AttachRequest(request_id=request_id, device_id=device_id, host_id=host_id)


def detach(device_id=GPU_1, host_id="h1"):
    return contract.DetachRequest(request_id="d1", device_id=device_id, host_id=host_id, host_prepared=True)


async def names(adapter):
    return [device.id for device in (await adapter.devices()).devices]


@pytest.mark.parametrize(
    ("path", "left"),
    [
        (f"{ROOT}/Chassis/c/PCIeDevices/gpu-2", [GPU_1]),
        (f"{FABRIC}/Endpoints/gpu-2", [GPU_1]),
        (f"{ROOT}/Systems/h2", [GPU_1, GPU_2]),
        (f"{FABRIC}/Zones/0", []),
    ],
    ids=["part", "endpoint", "system", "zone"],
)
async def test_a_part_that_never_answers_is_left_out_and_the_others_are_served(path, left):
    made = service([["h1", "gpu-1"]])
    inner = made.answer

    async def respond(request):
        if request.path == path:
            await made.ended.wait()
        return await inner(request)

    made.answer = respond
    async with adapting(made, timeout_seconds=1) as adapter:
        inventory = await adapter.devices()
    assert [device.id for device in inventory.devices] == left
    assert inventory.unread == (f"{path} cannot be read: the service does not answer in time",)


async def test_a_part_that_hangs_delays_only_some_listings_by_the_whole_deadline():
    made, hanging = service(), []
    path, inner = f"{ROOT}/Chassis/c/PCIeDevices/gpu-2", made.answer

    async def respond(request):
        if request.path == path:
            hanging.append(request)
            await made.ended.wait()
        return await inner(request)

    made.answer = respond
    async with adapting(made, timeout_seconds=2) as adapter:
        # The first listing is the reading that connected.
        assert await names(adapter) == [GPU_1]
        async with asyncio.timeout(1.5):
            assert await names(adapter) == [GPU_1]
    assert len(hanging) == 2


async def test_an_enclosure_whose_cards_all_hang_does_not_stop_the_listing():
    made = redfish_servers.Service()
    ends = {"h1": put_host(made, "h1"), "gpu-1": put_gpu(made)}
    ends |= {f"gpu-{number}": put_gpu(made, f"gpu-{number}", f"S{number}") for number in range(2, 14)}
    made.put_fabric("PCIe", ends, ())
    inner = made.answer

    async def respond(request):
        if "/PCIeDevices/gpu-" in request.path and not request.path.endswith("/gpu-1"):
            await made.ended.wait()
        return await inner(request)

    made.answer = respond
    async with adapting(made, timeout_seconds=1) as adapter:
        assert await names(adapter) == [GPU_1]


async def test_a_part_that_stays_sick_is_logged_once(caplog):
    made = service()
    path = f"{FABRIC}/Endpoints/gpu-2"
    fail(made, path)
    async with adapting(made) as adapter:
        for _ in range(3):
            await adapter.devices()
    (record,) = (each for each in caplog.records if each.levelname == "WARNING")
    assert path in record.getMessage()


@pytest.mark.parametrize("answer", SICK.values(), ids=SICK)
@pytest.mark.parametrize(
    "path", [f"{ROOT}/Chassis/c/PCIeDevices/gpu-2", f"{FABRIC}/Endpoints/gpu-2"], ids=["part", "endpoint"]
)
async def test_a_device_that_cannot_be_shown_is_left_out_and_the_others_are_served(path, answer):
    made = service()
    fail(made, path, answer)
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        assert [device.id for device in inventory.devices] == [GPU_1]
        (sentence,) = inventory.unread
        assert path in sentence
        assert (await adapter.attach(attach())).succeeded
        assert (await adapter.detach(detach())).succeeded


async def test_a_truncated_collection_of_endpoints_serves_the_devices_that_it_shows():
    made = service()
    made.tree[f"{FABRIC}/Endpoints"]["Members@odata.count"] += 2
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        assert [device.id for device in inventory.devices] == [GPU_1, GPU_2]
        (sentence,) = inventory.unread
        assert f"{FABRIC}/Endpoints cannot be read whole" in sentence
        assert (await adapter.attach(attach())).succeeded
        assert (await adapter.detach(detach())).succeeded


async def test_a_truncated_collection_of_zones_leaves_devices_in_no_zone_in_doubt():
    made = service([["h1", "gpu-1"]])
    made.tree[f"{FABRIC}/Zones"]["Members@odata.count"] += 1
    async with adapting(made) as adapter:
        assert await names(adapter) == [GPU_1]
        with pytest.raises(errors.Unavailable, match="whole"):
            await adapter.attach(attach(GPU_2))
        assert made.changes == []


async def test_a_truncated_collection_of_parts_costs_nothing_if_the_parts_can_be_read():
    made = service()
    made.tree[ROOT]["ProtocolFeaturesSupported"] = {"ExpandQuery": {"NoLinks": True, "Levels": True}}
    made.collect(f"{ROOT}/Chassis/c/PCIeDevices", "gpu-1")
    made.tree[f"{ROOT}/Chassis/c/PCIeDevices"]["Members@odata.count"] = 2
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        assert [device.serial for device in inventory.devices] == ["S1", "S2"]
        assert inventory.unread == ()


async def test_the_host_that_cannot_be_shown_hides_its_devices_and_no_other_host():
    made = service([["h1", "gpu-1"]])
    fail(made, f"{ROOT}/Systems/h1")
    async with adapting(made) as adapter:
        assert await names(adapter) == [GPU_2]
        assert [host.id for host in await adapter.hosts()] == ["h2"]


async def test_an_attach_whose_zone_cannot_be_shown_is_not_known_to_have_failed():
    made = service()
    fail(made, f"{FABRIC}/Zones/made1")
    async with adapting(made) as adapter:
        operation = await adapter.attach(attach())
    assert (operation.error.reason, operation.side_effects_unknown) == ("NOT_READ", True)
    assert f"{FABRIC}/Zones/made1" in made.tree


async def test_a_detach_that_failed_is_no_success_because_its_zone_cannot_be_shown():
    """Or a device would be given back that is still connected."""
    made = service([["h1", "gpu-1"]])
    zone = f"{FABRIC}/Zones/0"

    def answer(method, asked, body):
        is_sick = asked == zone and (method == "DELETE" or bool(made.changes))
        return BROKEN if is_sick else None

    made.hook = answer
    async with adapting(made) as adapter:
        operation = await adapter.detach(detach())
    assert operation.error is not None
    assert operation.side_effects_unknown
    assert zone in made.tree


@pytest.mark.parametrize("path", [f"{FABRIC}/Zones/0", f"{FABRIC}/Zones/1"])
async def test_a_device_in_no_zone_may_be_in_the_zone_that_cannot_be_shown(path):
    """Or it would be offered, and attached a second time."""
    made = service([["h1", "gpu-1"], ["h2", "gpu-2"]])
    fail(made, path)
    async with adapting(made) as adapter:
        (shown,) = (await adapter.devices()).devices
        assert shown.connection is not None
        hidden = {GPU_1, GPU_2} - {shown.id}
        with pytest.raises(errors.Unavailable, match="cannot show all"):
            await adapter.attach(attach(*hidden))


async def test_a_detach_of_a_device_in_doubt_is_not_reported_as_done():
    made = service([["h1", "gpu-1"]])
    fail(made, f"{FABRIC}/Zones/0")
    async with adapting(made) as adapter:
        with pytest.raises(errors.Unavailable, match="not listed"):
            await adapter.detach(detach())
    assert made.changes == []


async def test_watchers_must_list_again_when_a_part_becomes_sick_or_well():
    made = service()
    async with adapting(made, pollSeconds="1") as adapter:
        version = (await adapter.devices()).version
        async with adapter.watch(version) as events:
            assert isinstance(await anext(events), contract.Bookmark)
            fail(made, f"{FABRIC}/Endpoints/gpu-2")
            assert isinstance(await anext(events), contract.Resync)
        inventory = await adapter.devices()
        assert inventory.unread
        async with adapter.watch(inventory.version) as events:
            assert isinstance(await anext(events), contract.Bookmark)
            made.hook = lambda method, path, body: None
            assert isinstance(await anext(events), contract.Resync)
        assert await names(adapter) == [GPU_1, GPU_2]


async def test_a_fabric_that_cannot_be_read_leaves_the_others():
    made = service()
    made.put_fabric("Other", {"gpu-3": put_gpu(made, "gpu-3", "S3")})
    fail(made, f"{ROOT}/Fabrics/Other/Endpoints")
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        assert [device.id for device in inventory.devices] == [GPU_1, GPU_2]
        assert [f"{ROOT}/Fabrics/Other/Endpoints" in sentence for sentence in inventory.unread] == [True]


async def test_zones_that_are_counted_and_not_listed_leave_the_free_devices_in_doubt():
    made = service([["h1", "gpu-1"]])
    made.tree[f"{FABRIC}/Zones"]["Members@odata.count"] = 2
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        assert [device.id for device in inventory.devices] == [GPU_1]
        assert [f"{FABRIC}/Zones cannot be read whole" in sentence for sentence in inventory.unread] == [True]
        with pytest.raises(errors.Unavailable, match="cannot show all"):
            await adapter.attach(attach(GPU_2, "h2"))


async def test_endpoints_that_are_counted_and_not_listed_leave_the_others():
    made = service()
    made.tree[f"{FABRIC}/Endpoints"]["Members@odata.count"] = 9
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        assert [device.id for device in inventory.devices] == [GPU_1, GPU_2]
        assert [f"{FABRIC}/Endpoints cannot be read whole" in sentence for sentence in inventory.unread] == [
            True
        ]
        assert (await adapter.attach(attach())).succeeded


async def test_a_service_of_which_nothing_can_be_read_is_an_error():
    made = service()
    fail(made, f"{FABRIC}/Endpoints")
    with pytest.raises(errors.Unavailable):
        async with adapting(made):
            pass


@pytest.mark.parametrize("collection", ["Endpoints", "Zones"])
@pytest.mark.parametrize("linked", [None, link(f"{ROOT}/Nowhere")], ids=["no link", "a link to nowhere"])
async def test_a_collection_without_a_good_link_is_read_at_the_schemas_path(collection, linked):
    made = service([["h1", "gpu-1"]])
    fabric = made.tree[FABRIC]
    del fabric[collection]
    if linked is not None:
        fabric[collection] = linked
    async with adapting(made) as adapter:
        first, second = (await adapter.devices()).devices
        assert (first.connection.host_id, second.connection) == ("h1", None)
        assert (await adapter.attach(attach(GPU_2))).succeeded


async def test_a_fabric_without_any_zone_yet_gets_its_collection_with_the_first_one():
    made = service()
    del made.tree[FABRIC]["Zones"], made.tree[f"{FABRIC}/Zones"]

    def make(method, path, body):
        if (method, path) == ("POST", f"{FABRIC}/Zones"):
            made.collect(path)

    made.hook = make
    async with adapting(made) as adapter:
        assert await names(adapter) == [GPU_1, GPU_2]
        assert (await adapter.attach(attach())).succeeded
    assert made.changes[0][:2] == ("POST", f"{FABRIC}/Zones")


async def test_a_fabric_with_connections_alone_is_named_with_the_profile_that_lists_it():
    made = service()
    made.put_fabric("CXL", {"m": {"EntityType": "MemoryChunk", "EntityRole": "Target"}}, kind="CXL")
    cxl = made.tree[f"{ROOT}/Fabrics/CXL"]
    del cxl["Zones"]
    cxl["Connections"] = made.collect(f"{ROOT}/Fabrics/CXL/Connections")
    async with adapting(made, profile="generic") as adapter:
        inventory = await adapter.devices()
    assert not inventory.unread
    (sentence,) = [each for each in inventory.oddities if "CXL" in each]
    assert "profile: connections" in sentence


async def test_a_fabric_whose_links_all_lead_nowhere_is_named():
    """Recorded from the proof of concept of Sunfish (SC24), as its own scripts set it up."""
    transcript = transcripts.parse((CASES / "sunfish_sc24_as_set_up.json").read_bytes())
    async with redfish_replay.replaying(transcript) as served:
        config = contract.AdapterConfig(name="f", endpoint=served.url, timeout_seconds=10)
        async with await RedfishAdapter.connect(config) as adapter:
            inventory = await adapter.devices()
    assert inventory.devices == ()
    assert inventory.unread == (f"{ROOT}/Endpoints cannot be read: the service answers with 404",)


@pytest.mark.parametrize("status", [404, 500])
async def test_a_fabric_without_its_endpoints_is_named_by_their_collection(status):
    made = service()
    made.put_fabric("Other", {"gpu-3": put_gpu(made, "gpu-3", "S3")})
    fail(made, f"{ROOT}/Fabrics/Other/Endpoints", (status, "application/json", b"{}"))
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert [device.id for device in inventory.devices] == [GPU_1, GPU_2]
    assert inventory.unread == (
        f"{ROOT}/Fabrics/Other/Endpoints cannot be read: the service answers with {status}",
    )


@pytest.mark.parametrize("names", [("CompositionService",), ("Fabrics",), ("CompositionService", "Fabrics")])
async def test_a_dead_link_of_the_root_is_named_with_a_remedy(names):
    """DMTF's Interface-Emulator with static resources links to a CompositionService that is not there."""
    made = redfish_servers.Service()
    made.tree[ROOT] = {name: value for name, value in made.tree[ROOT].items() if "@" in name} | {
        "RedfishVersion": "1.0.0",
        **{name: link(f"{ROOT}/{name}") for name in names},
    }
    for name in names:
        made.tree.pop(f"{ROOT}/{name}", None)
    with pytest.raises(
        errors.Unimplemented, match=f"links to {ROOT}/{names[-1]} as its {names[-1]}.*look at the endpoint"
    ):
        async with adapting(made):
            pass


async def test_a_link_of_the_root_that_leads_nowhere_is_named_with_the_profile_that_lists_something():
    made = redfish_servers.Service()
    made.put_blocks({"b1": {"ResourceBlockType": ["Storage"]}}, {"s1": []})
    made.tree[ROOT]["Fabrics"] = link(f"{ROOT}/Fabrics")
    made.tree.pop(f"{ROOT}/Fabrics", None)
    with pytest.raises(
        errors.Unimplemented, match=r"as its Fabrics.*set the parameter `profile: composition`"
    ):
        async with adapting(made):
            pass


async def test_a_foreign_link_of_the_root_is_replaced_by_the_schemas_path():
    made = service()
    made.tree[ROOT]["Fabrics"] = link(f"{ROOT}/Nowhere")
    async with adapting(made) as adapter:
        assert await names(adapter) == [GPU_1, GPU_2]


async def test_blocks_that_a_composition_service_does_not_have_are_named():
    made = redfish_servers.Service()
    made.put_blocks({}, {"s1": []})
    made.tree.pop(f"{ROOT}/CompositionService/ResourceBlocks", None)
    with pytest.raises(errors.Unimplemented, match="ResourceBlocks as its ResourceBlocks"):
        async with adapting(made, profile="composition"):
            pass


async def test_a_block_in_no_system_may_be_in_the_system_that_cannot_be_shown():
    made = redfish_servers.Service()
    made.put_blocks(
        {"b1": {"ResourceBlockType": ["Storage"]}, "b2": {"ResourceBlockType": ["Storage"]}},
        {"s1": ["b1"], "s2": ["b2"]},
    )
    fail(made, f"{ROOT}/Systems/s2")
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        assert [device.id for device in inventory.devices] == ["b1"]
        assert inventory.unread
        made.hook = lambda method, path, body: None

        async def try_list_names():
            with contextlib.suppress(errors.FabricError):
                return await names(adapter)

        assert await waiting.until(try_list_names, lambda listed_now: listed_now == ["b1", "b2"])
