"""Resource blocks in odd forms: a block that a system has is never offered."""

import pytest
from tests.scenes.redfish_servers import ROOT, adapting, link
from tests.scenes.redfish_services import BLOCKS, answer, attach, composition, detach

from drawbar.fabric import contract, errors

# --- connections ---


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("machine", {"ResourceBlockType": "Compute", "Processors": []}),
        ("machine", {"ResourceBlockType": ["COMPUTE"], "Processors": []}),
        ("device", {"CompositionStatus": {"Reserved": "true"}}),
        ("device", {"Status": {"State": "absent"}}),
    ],
    ids=["type as text", "type in capitals", "reserved as text", "state in lower case"],
)
async def test_a_block_that_may_not_be_moved_is_no_free_device(name, properties):
    made = composition()
    made.tree[f"{BLOCKS}/{name}"].update(properties)
    async with adapting(made) as adapter:
        assert name not in [device.id for device in (await adapter.devices()).devices]


async def test_a_cpu_in_lower_case_is_no_device():
    made = composition()
    made.tree[f"{BLOCKS}/machine"]["ResourceBlockType"] = []
    made.tree[f"{BLOCKS}/machine/Processors/1"]["ProcessorType"] = "cpu"
    async with adapting(made) as adapter:
        assert [device.id for device in (await adapter.devices()).devices] == ["device"]


# --- arrays that are not whole, and endpoints that cannot be read ---


async def test_a_system_that_shows_a_part_of_its_blocks_is_not_changed():
    """Or the change of the whole array would remove the others."""
    made = composition()
    made.tree[f"{ROOT}/Systems/s1"]["Links"]["ResourceBlocks@odata.count"] = 2
    async with adapting(made) as adapter:
        with pytest.raises(errors.Unavailable, match="only a part"):
            await adapter.attach(attach("device", "s1"))
    assert made.changes == []


# --- ids ---


async def test_of_two_systems_with_one_id_none_is_a_host():
    """Or the devices of one would be shown at the other, as the service lists them."""
    made = composition()
    blocks = [link(f"{BLOCKS}/device")]
    made.put(f"{ROOT}/Systems/s2", Id="s1", Links={"ResourceBlocks": blocks})
    made.collect(f"{ROOT}/Systems", "s1", "s2")
    async with adapting(made) as adapter:
        assert ((await adapter.devices()).devices, await adapter.hosts()) == ((), ())
        made.tree[f"{ROOT}/Systems"]["Members"].reverse()
        assert ((await adapter.devices()).devices, await adapter.hosts()) == ((), ())


# --- devices that are one ---


async def test_two_blocks_of_one_processor_are_offered_once():
    made = composition()
    made.put(
        f"{BLOCKS}/a", ResourceBlockType=["Processor"], Processors=made.tree[f"{BLOCKS}/device"]["Processors"]
    )
    made.collect(BLOCKS, "a", "device", "machine")
    async with adapting(made) as adapter:
        assert [device.id for device in (await adapter.devices()).devices] == ["a"]
        made.tree[f"{ROOT}/Systems/s1"]["Links"]["ResourceBlocks"].append(link(f"{BLOCKS}/device"))
        assert [device.id for device in (await adapter.devices()).devices] == ["device"]


async def test_a_block_of_a_storage_and_one_of_its_sole_drive_are_one_device():
    made = composition()
    drive, storage = f"{ROOT}/Chassis/c/Drives/1", f"{ROOT}/Storage/1"
    made.put(drive, **{"@odata.type": "#Drive.v1_21_0.Drive"}, Protocol="NVMe", SerialNumber="S7A0NE0W100123")
    made.put(storage, **{"@odata.type": "#Storage.v1_18_0.Storage"}, Drives=[link(drive)])
    made.put(f"{BLOCKS}/drive", ResourceBlockType=["Storage"], Drives=[link(drive)])
    made.put(f"{BLOCKS}/storage", ResourceBlockType=["Storage"], Storage=[link(storage)])
    made.collect(BLOCKS, "drive", "storage", "machine")
    async with adapting(made) as adapter:
        assert [device.id for device in (await adapter.devices()).devices] == ["drive"]
        made.tree[f"{ROOT}/Systems/s1"]["Links"]["ResourceBlocks"].append(link(f"{BLOCKS}/storage"))
        assert [device.id for device in (await adapter.devices()).devices] == ["storage"]


# --- shared arrays ---


async def test_a_system_that_shows_a_part_of_its_blocks_loses_none():
    made = composition()
    made.tree[f"{ROOT}/Systems/s1"]["Links"] = {
        "ResourceBlocks": [link(f"{BLOCKS}/machine"), link(f"{BLOCKS}/device")],
        "ResourceBlocks@odata.count": 3,
    }
    async with adapting(made) as adapter:
        assert "would drop the others" in (await adapter.detach(detach("device", "s1"))).error.message
    assert made.changes == []


# --- resource blocks ---


@pytest.mark.parametrize(
    "uri",
    [
        f"{BLOCKS}/%64evice",
        f"{BLOCKS}/device?x=1",
        f"{BLOCKS}//device",
        f"{BLOCKS}/device".lower(),
        f"{BLOCKS}/device".removeprefix("/"),
    ],
    ids=["percent", "query", "slash", "case", "no slash"],
)
async def test_a_block_in_another_spelling_is_not_free(uri):
    """Or it would be taken from its host."""
    made = composition()
    made.tree[f"{ROOT}/Systems/s1"]["Links"]["ResourceBlocks"].append(link(uri))
    async with adapting(made) as adapter:
        assert (await adapter.devices()).device("device").connection.host_id == "s1"


@pytest.mark.parametrize(
    "properties",
    [
        {"CompositionStatus": {"CompositionState": "Composed"}},
        {"CompositionStatus": {"CompositionState": "Composing"}},
        {"CompositionStatus": {"CompositionState": "ComposedAndAvailable"}},
        {"CompositionStatus": {"CompositionState": "Unused", "NumberOfCompositions": 1}},
        {"CompositionStatus": {"CompositionState": "Composed And Available"}},
        {"CompositionStatus": "Composed"},
        {"Links": {"ComputerSystems": [link(f"{ROOT}/Systems/s9")]}},
        {"Links": {"ComputerSystems": [link(f"{ROOT}/Systems/s1")]}},
    ],
    ids=[
        "state",
        "composing",
        "shared",
        "count",
        "words",
        "text",
        "link",
        "link to a system without it",
    ],
)
async def test_a_block_of_a_system_that_is_not_listed_is_not_free(properties):
    made = composition()
    made.tree[f"{BLOCKS}/device"].update(properties)
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert inventory.devices == ()
    assert inventory.oddities == (
        f"the resource block {BLOCKS}/device is composed or being composed, and no listed system has it",
    )


@pytest.mark.parametrize("state", ["Failed", "Unavailable"])
async def test_an_attached_block_that_cannot_be_composed_is_shown(state):
    """Or its detach would count as done."""
    made = composition()
    made.tree[f"{ROOT}/Systems/s1"]["Links"]["ResourceBlocks"].append(link(f"{BLOCKS}/device"))
    made.tree[f"{BLOCKS}/device"]["CompositionStatus"] = {"CompositionState": state}
    async with adapting(made) as adapter:
        assert (await adapter.devices()).device("device").connection.host_id == "s1"
        assert (await adapter.detach(detach("device", "s1"))).succeeded
        assert (await adapter.devices()).devices == ()


async def test_a_system_that_is_listed_and_not_found_leaves_free_blocks_in_doubt():
    made = composition()
    del made.tree[f"{ROOT}/Systems/s1"]
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert inventory.devices == ()
    assert "not found" in inventory.unread[0]


async def test_a_block_that_stays_listed_and_is_not_found_is_in_doubt():
    made = composition()
    made.tree[BLOCKS]["Members"].append(link(f"{BLOCKS}/gone"))
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert inventory.unread == (f"{BLOCKS}/gone cannot be read: {BLOCKS} lists it, and it is not found",)


@pytest.mark.parametrize("state", ["Failed", "Unavailable"])
async def test_a_free_block_that_cannot_be_composed_is_told(state):
    made = composition()
    made.tree[f"{BLOCKS}/device"]["CompositionStatus"] = {"CompositionState": state}
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert inventory.devices == ()
    assert inventory.oddities == (
        f"the resource block {BLOCKS}/device is {state.lower()}, so it is not offered",
    )


async def test_a_block_at_the_top_of_a_system_is_not_free():
    made = composition()
    system = made.tree[f"{ROOT}/Systems/s1"]
    system["ResourceBlocks"] = [*system.pop("Links")["ResourceBlocks"], link(f"{BLOCKS}/device")]
    async with adapting(made) as adapter:
        assert (await adapter.devices()).device("device").connection.host_id == "s1"


def add_cpu(made):
    uri = f"{BLOCKS}/device/Processors/2"
    made.put(uri, **{"@odata.type": "#Processor.v1_20_0.Processor"}, ProcessorType="CPU", Model="Arm")
    made.tree[f"{BLOCKS}/device"]["Processors"].insert(0, link(uri))


async def test_a_network_block_with_a_cpu_of_its_own_is_a_device():
    made = composition()
    add_cpu(made)
    block = made.tree[f"{BLOCKS}/device"]
    card = made.put(
        f"{ROOT}/Chassis/c/NetworkAdapters/1",
        **{"@odata.type": "#NetworkAdapter.v1_9_0.NetworkAdapter"},
        Model="BlueField-3",
    )
    block |= {
        "ResourceBlockType": ["Network"],
        "Processors": block["Processors"][:1],
        "NetworkAdapters": [card],
    }
    async with adapting(made) as adapter:
        (device,) = (await adapter.devices()).devices
    assert (device.device_class, device.model) == (contract.DeviceClass.NIC, "BlueField-3")


async def test_a_block_with_a_cpu_and_a_gpu_is_told():
    made = composition()
    add_cpu(made)
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert inventory.devices == ()
    assert "has a CPU and other processors" in inventory.oddities[0]


async def test_the_parts_of_a_block_are_read_from_a_collection():
    """Or the CPU of a machine without a type would be a device, and could be taken from it."""
    made = composition()
    for name in ("device", "machine"):
        collection = made.collect(f"{BLOCKS}/{name}/Processors", "1")
        made.tree[f"{BLOCKS}/{name}"] |= {"ResourceBlockType": None, "Processors": collection}
    async with adapting(made) as adapter:
        (device,) = (await adapter.devices()).devices
    assert (device.id, device.device_class) == ("device", contract.DeviceClass.GPU)


@pytest.mark.parametrize("uri", [f"{BLOCKS}/machine/Processors", f"{BLOCKS}/machine/Processors/1"])
async def test_a_block_whose_collection_of_parts_cannot_be_read_is_no_device(uri):
    made = composition()
    collection = made.collect(f"{BLOCKS}/machine/Processors", "1")
    made.tree[f"{BLOCKS}/machine"] |= {"ResourceBlockType": None, "Processors": collection}
    made.hook = lambda method, path, _: answer({}, 500) if path == uri else None
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert "machine" not in {device.id for device in inventory.devices}
    assert inventory.unread == (f"{uri} cannot be read: the service answers with 500",)


@pytest.mark.parametrize("key", ["ActionParameterUnknown", "ActionParameterNotSupported"])
async def test_an_action_that_knows_no_etag_is_asked_for_without_one(key):
    made = composition()
    uri = f"{ROOT}/Systems/s1"
    actions = {
        f"#ComputerSystem.{name}": {"target": f"{uri}/Actions/{name}"}
        for name in ("AddResourceBlock", "RemoveResourceBlock")
    }
    made.tree[uri] |= {"@odata.etag": '"1"', "Actions": actions}
    refused = {"error": {"@Message.ExtendedInfo": [{"MessageId": f"Base.1.18.{key}"}]}}

    def hook(method, path, body):
        if method != "POST":
            return None
        if "ComputerSystemETag" in body:
            return answer(refused, 400)
        listed = made.tree[uri]["Links"]["ResourceBlocks"]
        (listed.append if "Add" in path else listed.remove)(body["ResourceBlock"])
        return answer({}, 200)

    made.hook = hook
    async with adapting(made) as adapter:
        assert (await adapter.attach(attach("device", "s1"))).succeeded
        assert (await adapter.detach(detach("device", "s1"))).succeeded
    assert len(made.changes) == 3
