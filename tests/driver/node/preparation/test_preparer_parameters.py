"""Opaque parameters in Prepare: obeyed, kept over restarts and reboots, or refused with nothing changed."""

import asyncio
import json

import msgspec
import pytest
from tests.driver.node.preparation.test_preparer_waiting import start_prepares

from drawbar.driver.api import attachments
from drawbar.driver.kube import kinds
from drawbar.driver.node import errors
from drawbar.driver.node.local import demands
from drawbar.driver.node.preparation import preparer
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

HEAD = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters"}
OWNED = {"deviceFiles": {"user": 1000, "mode": "0600", "readOnly": True}}


def configure(source, driver="drawbar.dev", requests=(), **content):
    opaque = {"driver": driver, "parameters": HEAD | content}
    return {"source": source, "requests": list(requests), "opaque": opaque}


async def create_claim(world, *config, results=None):
    """Create a claim with d1 whose allocation has this configuration; its attachment has no parameters."""
    name = await world.claim(results=())
    results = [world.result("d1")] if results is None else results
    await allocate_claim(world, name, results, config)
    world.attached = [world.attachment(result["device"], name.uid, requests=("disk",)) for result in results]
    return name


async def allocate_claim(world, name, results, config):
    allocation = {"devices": {"results": results, "config": list(config)}}
    await world.set_status(kinds.CLAIM, name.name, {"allocation": allocation})


def read_container_edits(world, uid, device="d1"):
    """Return the container edits of the device."""
    file = json.loads((world.cdi_dir / f"drawbar.dev-{uid}.json").read_text())
    (entry,) = [entry for entry in file["devices"] if entry["name"] == f"{uid}-{device}"]
    return entry["containerEdits"]


async def test_a_container_gets_the_device_as_class_and_claim_want_it(world):
    name = await create_claim(
        world,
        configure("FromClass", environment={"MODE": "fast"}, claimVariables=["TUNE_*"]),
        configure("FromClaim", environment={"TUNE_DEPTH": "4"}, **OWNED),
    )
    await world.preparer.prepare(name)
    edits = read_container_edits(world, name.uid)
    assert edits["env"][-2:] == ["MODE=fast", "TUNE_DEPTH=4"]
    assert {(node["uid"], node["fileMode"], node["permissions"]) for node in edits["deviceNodes"]} == {
        (1000, 0o600, "r")
    }


async def test_without_parameters_everything_is_as_the_class_of_device_has_it(world):
    name = await create_claim(world, configure("FromClaim", driver="other.dev", deviceFiles={"user": 1}))
    await world.preparer.prepare(name)
    nodes = read_container_edits(world, name.uid)["deviceNodes"]
    assert [node for node in nodes if node.keys() & {"uid", "gid", "fileMode"}] == []


async def test_each_request_has_its_own(world):
    results = [world.result("d1"), world.result("d2", request="other")]
    name = await create_claim(world, configure("FromClaim", requests=["disk"], **OWNED), results=results)
    await world.preparer.prepare(name)
    assert read_container_edits(world, name.uid, "d1")["deviceNodes"][0]["uid"] == 1000
    assert "uid" not in read_container_edits(world, name.uid, "d2")["deviceNodes"][0]


async def test_after_a_restart_and_a_reboot_a_container_gets_the_same(world):
    name = await create_claim(world, configure("FromClass", environment={"MODE": "fast"}, **OWNED))
    await world.preparer.prepare(name)
    before = read_container_edits(world, name.uid)
    await world.restart_preparer()
    assert read_container_edits(world, name.uid) == before
    await world.reboot()
    await world.prepare_again(name)
    assert read_container_edits(world, name.uid) == before


async def put_network_cards(world):
    """Put network cards in place of the disks; yield the device and the identity of each."""
    for slot, device in enumerate(("d1", "d2"), start=1):
        serial = f"00-11-22-33-44-55-66-0{slot}"
        await world.unplug(device)
        card = sysfs.MockDevice(
            device_class=DeviceClass.NIC, vendor=0x15B3, device=0x1021, serial=serial, driver="mlx5_core"
        )
        await asyncio.to_thread(world.tree.attach, slot, card)
        yield device, attachments.Identity(device_class="nic", serial=serial)
    await world.arrivals.read()


async def prepare_network_claim(world):
    """Return a claim that was prepared with two network cards, and a function for the names of their interfaces."""
    identities = {device: identity async for device, identity in put_network_cards(world)}
    results = [world.result("d1"), world.result("d2", request="other")]
    name = await create_claim(
        world, configure("FromClaim", network={"interfacePrefix": "data"}), results=results
    )
    world.attached = [
        msgspec.structs.replace(
            attachment,
            spec=msgspec.structs.replace(attachment.spec, identity=identities[attachment.spec.device]),
        )
        for attachment in world.attached
    ]

    def names():
        return [
            [interface["name"] for interface in read_container_edits(world, name.uid, device)["netDevices"]]
            for device in ("d1", "d2")
        ]

    await world.preparer.prepare(name)
    assert names() == [["data0"], ["data1"]]
    return name, names


async def test_the_interfaces_of_a_claim_are_numbered_through_and_stay_so(world):
    name, names = await prepare_network_claim(world)
    await world.reboot()
    await world.prepare_again(name)
    assert names() == [["data0"], ["data1"]]


@pytest.mark.parametrize("holds", [False, True])
async def test_admin_access_takes_no_interface_from_those_who_use_the_card(world, holds):
    identities = {device: identity async for device, identity in put_network_cards(world)}
    await world.allow_admin_access()
    results = [world.result("d1"), world.result("d1", request="other", adminAccess=True)]
    name = await create_claim(world, results=results if holds else results[1:])
    attachment = world.attachment("d1", name.uid if holds else "")
    world.attached = [
        msgspec.structs.replace(
            attachment, spec=msgspec.structs.replace(attachment.spec, identity=identities["d1"])
        )
    ]
    await world.preparer.prepare(name)
    assert ("netDevices" in read_container_edits(world, name.uid)) == holds
    await world.restart_preparer()
    assert ("netDevices" in read_container_edits(world, name.uid)) == holds


@pytest.mark.parametrize("link_layer", [None, "Ethernet"])
async def test_a_card_whose_interface_is_in_a_former_pod_is_waited_for(world, link_layer):
    """And one in this pod is not missed when the kubelet asks again."""
    name, names = await prepare_network_claim(world)
    function = next(world.tree.root.glob("devices/**/0000:01:00.0"))
    away = function.parent.parent / "away"
    (function / "net").rename(away)
    if link_layer is not None:
        node, port = (
            function / "infiniband_verbs" / "uverbs0",
            function / "infiniband" / "mlx5_0" / "ports" / "1",
        )
        for folder in (node, port):
            folder.mkdir(parents=True)
        (node / "uevent").write_text("MAJOR=231\nMINOR=192\nDEVNAME=infiniband/uverbs0\n")
        (port / "link_layer").write_text(link_layer + "\n")
    await world.arrivals.read()
    await world.preparer.prepare(name)
    await world.preparer.unprepare(name)
    with pytest.raises(errors.DeviceLate, match=r"no network interface of 0000:01:00\.0 on this host"):
        await world.preparer.prepare(name)
    away.rename(function / "net")
    await world.arrivals.read()
    await world.preparer.prepare(name)
    assert names() == [["data0"], ["data1"]]


async def test_an_interface_that_has_just_come_is_taken_by_the_name_that_the_host_gives_it(world):
    name, _ = await prepare_network_claim(world)
    await world.preparer.unprepare(name)
    function = next(world.tree.root.glob("devices/**/0000:01:00.0"))
    (function / "net").rename(away := function.parent.parent / "away")
    await world.arrivals.read()
    await world.restart_preparer(waits=world.LONG)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(world.preparer.prepare(name))
        await asyncio.sleep(0.1)
        away.rename(function / "net")
        await world.arrivals.read()
        world.preparer.wake()
        await asyncio.sleep(0.1)
        next((function / "net").iterdir()).rename(function / "net" / "ens1f0")
        await world.arrivals.read()
    assert read_container_edits(world, name.uid)["netDevices"][0]["hostInterfaceName"] == "ens1f0"


async def test_a_wait_too_short_for_the_rename_of_an_interface_says_so(world, monkeypatch):
    name, _ = await prepare_network_claim(world)
    await world.preparer.unprepare(name)
    function = next(world.tree.root.glob("devices/**/0000:01:00.0"))
    (function / "net").rename(away := function.parent.parent / "away")
    await world.arrivals.read()
    await world.restart_preparer(waits=world.LONG)
    monkeypatch.setattr(preparer, "RENAME_SECONDS", 2 * world.LONG.late_device_seconds)
    (task,) = await start_prepares(world, name)
    away.rename(function / "net")
    await world.arrivals.read()
    world.preparer.wake()
    with pytest.raises(
        errors.DeviceLate, match=r"of d1, d2 have just come, and the host may still rename them"
    ):
        await task


async def test_without_a_record_the_interfaces_of_a_claim_keep_their_numbers(world):
    name, names = await prepare_network_claim(world)
    world.lose_record()
    await world.restart_preparer()
    await world.settle()
    assert world.state(name.uid) == "completed"
    await world.restart_preparer()
    assert names() == [["data0"], ["data1"]]


async def test_a_claim_whose_interfaces_are_in_a_container_is_explained_when_they_are_back(world):
    name, names = await prepare_network_claim(world)
    first, _ = (world.card(attachment).first for attachment in world.attached)
    here, away = world.tree.root / first.path / "net", world.folder / "container"
    here.rename(away)
    await world.arrivals.read()
    world.lose_record()
    await world.restart_preparer()
    await world.settle()
    assert world.state(name.uid) == "unexplained"
    away.rename(here)
    await world.arrivals.read()
    await world.settle()
    assert world.state(name.uid) == "completed"
    await world.restart_preparer()
    assert names() == [["data0"], ["data1"]]


async def test_without_a_record_the_claim_is_asked_and_the_file_stays_as_it_is(world):
    name = await create_claim(world, configure("FromClass", environment={"MODE": "fast"}, **OWNED))
    await world.preparer.prepare(name)
    before = read_container_edits(world, name.uid)
    world.lose_record()
    await world.restart_preparer()
    assert (world.state(name.uid), read_container_edits(world, name.uid)) == ("unexplained", before)
    await world.settle()
    assert world.state(name.uid) == "completed"
    await world.restart_preparer()
    assert read_container_edits(world, name.uid) == before


async def test_a_claim_that_an_older_version_prepared_in_spite_of_its_parameters_stays_refused(world):
    name = await world.claim()
    world.attached = [world.attachment("d1", name.uid)]
    await world.preparer.prepare(name)
    bad = configure("FromClaim", attachTimeoutSeconds=1)
    await world.allocate(name.name, [])
    await allocate_claim(world, name, [world.result("d1")], [bad])
    world.lose_record()
    await world.restart_preparer()
    await world.settle()
    assert world.state(name.uid) == "completed"
    assert world.cdi() == {f"drawbar.dev-{name.uid}.json": [f"{name.uid}-d1"]}


VENDOR = "acme.com/disk"


def vendor_file(world, *names):
    devices = [{"name": name, "containerEdits": {}} for name in names]
    file = world.cdi_dir / "acme.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": VENDOR, "devices": devices}))


async def test_the_runtime_gets_the_device_by_its_vendors_file_too(world):
    name = await create_claim(world, configure("FromClass", vendorKind=VENDOR))
    address = world.card(world.attached[0]).address
    vendor_file(world, "all", address)
    (prepared,) = await world.preparer.prepare(name)
    assert prepared.cdi_ids == [f"{VENDOR}={address}", f"drawbar.dev/device={name.uid}-d1"]


async def test_a_vendors_file_without_the_device_is_waited_for_and_named(world):
    name = await create_claim(world, configure("FromClass", vendorKind=VENDOR))
    vendor_file(world, "all")
    address = world.card(world.attached[0]).address
    with pytest.raises(errors.DeviceLate) as caught:
        await world.preparer.prepare(name)
    assert f"device p/d1 ({address}) is in no CDI file of kind {VENDOR} in /etc/cdi, " in str(caught.value)
    assert world.recorder.reasons == ["VendorFileMissing"]
    assert world.list_recorded_uids() == [], "nothing was handed out"

    await world.restart_preparer(waits=world.LONG)
    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        late = group.create_task(world.preparer.prepare(name))
        await asyncio.sleep(0)
        assert not late.done()
        vendor_file(world, address)
    assert late.result()[0].vendor_id == f"{VENDOR}={address}"


WRONG = {
    "a vendor's kind in a claim": (
        configure("FromClaim", vendorKind=VENDOR),
        (
            "opaque parameters of the claim: vendorKind is reserved for administrators: only the parameters of "
            "a DeviceClass may have it"
        ),
    ),
    "no kind": (
        configure("FromClass", requests=["disk"], vendorKind="nvidia"),
        (
            "opaque parameters of the DeviceClass of request disk: vendorKind is 'nvidia': write the kind of the vendor's "
            "CDI files, such as nvidia.com/gpu"
        ),
    ),
    "a misspelt field": (
        configure("FromClaim", deviceFile={}),
        "opaque parameters of the claim: deviceFile is not a field of DeviceParameters: did you mean deviceFiles?",
    ),
    "what is the class's to say": (
        configure("FromClaim", attachTimeoutSeconds=5),
        (
            "opaque parameters of the claim: attachTimeoutSeconds is reserved for administrators: only the parameters of "
            "a DeviceClass may have it"
        ),
    ),
    "memory of the node": (
        configure("FromClaim", memory={"mode": "system-ram"}),
        (
            "opaque parameters of the claim: memory.mode is system-ram, which is reserved for administrators: leave it out, "
            "and use a DeviceClass whose parameters have it"
        ),
    ),
    "a class's mistake": (
        configure("FromClass", requests=["disk"], network=7),
        "opaque parameters of the DeviceClass of request disk: network is 7, not an object: give it some of interfacePrefix",
    ),
}


@pytest.mark.parametrize(("config", "words"), WRONG.values(), ids=list(WRONG))
async def test_invalid_parameters_are_reported_on_the_claim_and_change_nothing(world, config, words):
    name = await create_claim(world, config)
    for _ in range(2):
        with pytest.raises(errors.PrepareError) as caught:
            await world.preparer.prepare(name)
        assert str(caught.value) == words
    assert world.recorder.events == [(name.name, name.uid, "InvalidParameters", words)]
    assert (world.cdi(), world.list_recorded_uids()) == ({}, [])
    assert world.preparer.holders.find("p", "d1") is None


WORK = {"initialise": {"hook": "loads"}}


def mark_own_device(world, **fields):
    """Give the device of the node's own a mark of its claim."""
    world.marks["own"] = lambda uid: demands.Mark(pool="n", device="own", uid=uid, **fields)


def own_card(world):
    return next(card for card in world.arrivals.cards if card.first.serial)


async def with_own_device(world, *config):
    world.local.cards["n", "own"] = own_card(world)
    name = await world.claim(results=())
    await allocate_claim(world, name, [world.result("own", pool="n")], config)
    return name


async def test_a_local_device_is_prepared_only_after_it_is_ready_for_the_claim(world):
    name = await with_own_device(world, configure("FromClass", **WORK))
    address = own_card(world).address
    for fields in (
        None,
        {},
        {"boot_id": "boot-0", "pci_address": address},
        {"boot_id": "boot-1", "pci_address": "0000:7f:00.0"},
        {"boot_id": "boot-1", "pci_address": address, "over": True},
        {"boot_id": "boot-1", "pci_address": address, "allocation_timestamp": "2026-01-01T00:00:00Z"},
    ):
        if fields is not None:
            mark_own_device(world, **fields)
        with pytest.raises(
            errors.DeviceLate, match="of this node is not ready for its claim on this node yet"
        ):
            await world.preparer.prepare(name)
        assert world.cdi() == {}
    mark_own_device(world, boot_id="boot-1", pci_address=address)
    (prepared,) = await world.preparer.prepare(name)
    assert prepared.device == "own"


async def test_a_local_device_in_use_is_prepared_again_after_a_restart(world):
    name = await with_own_device(world, configure("FromClass", **WORK))
    mark_own_device(world, boot_id="boot-1", pci_address=own_card(world).address)
    await world.preparer.prepare(name)
    await world.restart_preparer()
    assert world.cdi() == {f"drawbar.dev-{name.uid}.json": [f"{name.uid}-own"]}
    (prepared,) = await world.preparer.prepare(name)
    assert prepared.device == "own"


async def test_a_device_of_the_nodes_own_whose_parameters_ask_for_nothing_before_needs_no_mark(world):
    name = await with_own_device(
        world, configure("FromClass", environment={"A": "1"}, cleanUp={"hook": "wipes"})
    )
    (prepared,) = await world.preparer.prepare(name)
    assert prepared.device == "own"


async def test_each_claim_that_is_read_is_handed_on_to_be_made_ready(world):
    name = await with_own_device(world, configure("FromClass", **WORK))
    with pytest.raises(errors.DeviceLate):
        await world.preparer.prepare(name)
    assert [claim.metadata.uid for claim in world.seen] == [name.uid]
