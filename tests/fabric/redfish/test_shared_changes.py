"""A change of a zone or system that several devices share leaves the others where they were, or reports their loss."""

import json

import pytest
from tests.scenes import redfish_servers
from tests.scenes.redfish_servers import ROOT, adapting

from drawbar.fabric import contract

ZONE = f"{ROOT}/Fabrics/1/Zones/0"
DRIVE = {"EntityType": "Drive", "EntityRole": "Target"}


def rack(*attached):
    """Return a PCIe fabric with a zone for its host port."""
    made = redfish_servers.Service()
    ends = {
        "h": {"EntityType": "RootComplex", "EntityRole": "Initiator"},
        "d1": DRIVE,
        "d2": DRIVE,
        "d3": DRIVE,
    }
    made.put_fabric("1", ends, [["h", *attached]])
    return made


def take_top(made):
    """Let it take the endpoints at the top of a body alone, as Intel's simulator of a PCIe fabric does."""

    def change(method, path, body):
        if method == "PATCH":
            made.tree[path]["Links"]["Endpoints"] = body.get("Endpoints", [])
            return 200, "application/json", b"{}"
        return None

    made.hook = change


def lose_others(made):
    """Let it take the last endpoint of a body in place of all."""

    def change(method, path, body):
        if method == "PATCH":
            first, *_, last = body["Links"]["Endpoints"]
            made.tree[path]["Links"]["Endpoints"] = [first, last]
            return 200, "application/json", b"{}"
        return None

    made.hook = change


def attach(device_id="1.d1"):
    return contract.AttachRequest(request_id="r1", device_id=device_id, host_id="h")


def show_it(made):
    """Let each answer to a change show the resource as it is after it."""
    change = made.hook

    def answer_with_resource(method, path, body):
        answer = change(method, path, body)
        return answer and (200, "application/json", json.dumps(made.tree[path]).encode())

    made.hook = answer_with_resource


def list_attached_devices(devices):
    return [device.id for device in devices if device.connection]


async def test_an_emptied_zone_is_restored_in_the_other_form():
    made = rack("d2", "d3")
    take_top(made)
    async with adapting(made, profile="h3") as adapter:
        operation = await adapter.attach(attach())
        listed = (await adapter.devices()).devices
    assert list_attached_devices(listed) == ["1.d1", "1.d2", "1.d3"]
    assert operation.error.reason == "OTHERS_LOST"
    assert "put back: 1.d2, 1.d3, the member h; set zoneBody: endpoints" in operation.error.message
    assert [set(body) for _, _, body in made.changes] == [{"Links"}, {"Endpoints"}]


async def test_the_zone_of_a_first_device_is_restored_too():
    made = rack()
    take_top(made)
    async with adapting(made, profile="h3") as adapter:
        operation = await adapter.attach(attach())
        listed = (await adapter.devices()).devices
    assert list_attached_devices(listed) == ["1.d1"]
    assert "put back: the member h; set zoneBody: endpoints" in operation.error.message


async def test_endpoints_possibly_removed_by_another_client_are_named():
    made = rack("d2", "d3")
    lose_others(made)
    async with adapting(made, profile="h3") as adapter:
        operation = await adapter.attach(attach())
    assert operation.error.reason == "OTHERS_LOST"
    assert "not put back: 1.d2, 1.d3, since another client may have removed them" in operation.error.message
    assert len(made.changes) == 1


async def test_there_is_no_third_request():
    made = rack("d2", "d3")
    lose_others(made)
    show_it(made)
    async with adapting(made, profile="h3") as adapter:
        operation = await adapter.attach(attach())
    # It took the last again, which is the new device.
    assert "not put back: 1.d2, 1.d3; attach them again" in operation.error.message
    assert len(made.changes) == 2


async def test_a_service_that_loses_others_once_has_them_back():
    made = rack("d2", "d3")
    lose_others(made)
    show_it(made)
    odd = made.hook
    made.hook = lambda method, path, body: odd(method, path, body) if len(made.changes) < 2 else None
    async with adapting(made, profile="h3") as adapter:
        operation = await adapter.attach(attach())
        listed = (await adapter.devices()).devices
    assert list_attached_devices(listed) == ["1.d1", "1.d2", "1.d3"]
    assert "put back: 1.d2, 1.d3; look at `profile`" in operation.error.message


async def test_a_change_of_another_client_after_the_loss_is_not_undone():
    """The adapter restores the zone with the ETag that it read after the loss."""
    made = rack("d2", "d3")
    made.tree[ZONE]["@odata.etag"] = '"1"'
    reads = []

    def change(method, path, body):
        if path == ZONE and method == "PATCH" and len(made.changes) == 1:
            made.tree[ZONE] |= {"Links": {"Endpoints": []}, "@odata.etag": '"2"'}
            return 200, "application/json", b"{}"
        if path == ZONE and method == "GET" and made.changes:
            reads.append(json.dumps(made.tree[ZONE]).encode())
            if len(reads) > 2:
                # The reading before the restoring; another client changes the zone right after it.
                made.tree[ZONE]["@odata.etag"] = '"3"'
            return 200, "application/json", reads[-1]
        return None

    made.hook = change
    async with adapting(made, profile="h3") as adapter:
        operation = await adapter.attach(attach())
    assert "not put back: 1.d2, 1.d3, the member h, since" in operation.error.message
    assert made.tree[ZONE]["Links"]["Endpoints"] == []


async def test_blocks_that_a_composition_replaces_are_put_back():
    gpu = {"ResourceBlockType": ["Processor"]}
    made = redfish_servers.Service()
    made.put_blocks({"C": {"ResourceBlockType": ["Compute"]}, "g1": gpu, "g2": gpu}, {"host1": ["C", "g1"]})

    def change(method, path, body):
        if method != "PATCH":
            return None
        kept = body["Links"]["ResourceBlocks"]
        made.tree[path]["Links"]["ResourceBlocks"] = kept[-1:] if len(made.changes) == 1 else kept
        return 204, "application/json", b""

    made.hook = change
    async with adapting(made, profile="composition") as adapter:
        request = contract.AttachRequest(request_id="r1", device_id="g2", host_id="host1")
        operation = await adapter.attach(request)
        listed = (await adapter.devices()).devices
    assert list_attached_devices(listed) == ["g1", "g2"]
    assert operation.error.reason == "OTHERS_LOST"
    assert "put back: g1, the member C;" in operation.error.message


async def test_a_detach_that_takes_others_with_it_is_no_success():
    made = rack("d1", "d2")
    take_top(made)
    async with adapting(made, profile="h3") as adapter:
        request = contract.DetachRequest(request_id="d", device_id="1.d1", host_id="h", host_prepared=True)
        operation = await adapter.detach(request)
        listed = (await adapter.devices()).devices
    assert (operation.error.reason, "1.d2" in operation.error.message) == ("OTHERS_LOST", True)
    assert list_attached_devices(listed) == ["1.d2"]


async def test_the_body_of_a_zone_has_the_form_of_the_parameter():
    made = rack("d2")
    take_top(made)
    async with adapting(made, profile="h3", zoneBody="endpoints") as adapter:
        assert (await adapter.attach(attach())).succeeded
        hosts = {device.id: device.connection for device in (await adapter.devices()).devices}
    assert [name for name, connection in hosts.items() if connection] == ["1.d1", "1.d2"]
    ((_, _, body),) = made.changes
    assert set(body) == {"Endpoints"}


async def test_a_profile_that_was_never_tried_says_so():
    async with adapting(rack(), profile="h3") as adapter:
        assert "never tried" in (await adapter.devices()).oddities[0]
    async with adapting(rack(), profile="generic") as adapter:
        assert (await adapter.devices()).oddities == ()


async def test_a_created_zone_has_its_type():
    """Sunfish refuses a resource without one."""
    made = rack()

    def refuse(method, path, body):
        is_typed = method != "POST" or "@odata.type" in body
        return None if is_typed else (400, "text/html", b"Attribute not found: @odata.type.")

    made.hook = refuse
    async with adapting(made, profile="sunfish") as adapter:
        assert (await adapter.attach(attach())).succeeded


async def test_an_etag_that_is_quoted_twice_is_sent_as_its_property_shows_it():
    made = rack("d2")
    made.tree[ZONE]["@odata.etag"] = '"1"'
    made.show_etag = '"{}"'.format
    async with adapting(made, profile="h3") as adapter:
        assert (await adapter.attach(attach())).succeeded


@pytest.mark.parametrize(("etags", "reason"), [("yes", "STALE_ETAG"), ("no", None)])
async def test_a_service_that_refuses_its_own_etags_needs_the_parameter(etags, reason):
    made = rack("d2")
    made.tree[ZONE]["@odata.etag"] = '"1"'
    made.show_etag = lambda _: 'W/"3"'
    made.etag = lambda path: '"2"' if path == ZONE else None
    async with adapting(made, profile="h3", etags=etags) as adapter:
        operation = await adapter.attach(attach())
    assert (operation.error.reason if operation.error else None) == reason
    assert reason is None or operation.error.message.endswith("set the parameter `etags: no`")
