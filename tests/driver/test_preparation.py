"""Prepare and Unprepare on real files, with claims from the API server double."""

import asyncio
import contextlib
import json
import os
from pathlib import Path

import pytest

from drawbar.driver.api import attachments, meta
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.node import checkpoint, devices, errors, preparation
from drawbar.driver.node.plugin import servicers
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import apiserver, sysfs

DRIVER = "drawbar.dev"
SERIALS = {"d1": "SN1", "d2": "SN2"}


def result(device, driver=DRIVER, request="disk", **more):
    return {"request": request, "driver": driver, "pool": "p", "device": device, **more}


def attachment(device="d1", uid="", *, deleting=False, visible=None):
    conditions = ()
    if visible is not None:
        text = "True" if visible else "False"
        conditions = (
            meta.Condition(type=attachments.VISIBLE, status=text, reason="R", message="it fell out"),
        )
    return attachments.DeviceAttachment(
        metadata=meta.ObjectMeta(
            name=f"fab.{device}", deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None
        ),
        spec=attachments.AttachmentSpec(
            fabric="fab",
            device_id=device,
            driver=DRIVER,
            pool="p",
            device=device,
            node_name="n",
            host_id="h",
            identity=attachments.Identity(device_class="nvme", serial=SERIALS[device]),
            claim=attachments.ClaimReference(namespace="default", name="c1", uid=uid) if uid else None,
        ),
        status=attachments.AttachmentStatus(conditions=conditions),
    )


D1 = result("d1")


class World:
    """A node's files, its attachments as they are now, and what was let go."""

    def __init__(self, folder, api, arrivals, tree):
        self.folder = folder
        self.api = api
        self.arrivals = arrivals
        self.tree = tree
        self.attached = []
        self.released = []
        self.preparer = self.started()

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.json"

    def started(self, boot_id="boot-1", api=None):
        return preparation.Preparer(
            driver=DRIVER,
            api=api or self.api,
            arrivals=self.arrivals,
            attached=lambda: self.attached,
            cdi_dir=self.folder / "cdi",
            checkpoint_path=self.checkpoint,
            boot_id=boot_id,
            released=lambda pool, device: self.released.append((pool, device)),
        )

    async def restarted(self, boot_id="boot-1"):
        self.preparer = self.started(boot_id)
        await self.preparer.restore()

    def cdi(self):
        """The CDI device names by file."""
        return {
            file.name: [device["name"] for device in json.loads(file.read_text())["devices"]]
            for file in (self.folder / "cdi").glob("*.json")
        }

    def recorded(self):
        return sorted(checkpoint.load(self.checkpoint).claims)

    async def claim(self, name="c1", results=(D1,)):
        """An allocated claim; gives how the kubelet names it."""
        made = await self.api.create(
            kinds.CLAIM,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name},
                "spec": {
                    "devices": {
                        "requests": [
                            {"name": "disk", "firstAvailable": [{"name": "fast", "deviceClassName": "nvme"}]},
                            {"name": "other", "exactly": {"deviceClassName": "nvme"}},
                        ]
                    }
                },
            },
            namespace="default",
            into=dict,
        )
        uid = made["metadata"]["uid"]
        if results:
            await self.allocate(name, results)
        return servicers.ClaimName(namespace="default", name=name, uid=uid)

    async def allocate(self, name, results):
        allocation = {"devices": {"results": list(results)}} if results else None
        await self.api.patch(
            kinds.CLAIM,
            name,
            {"status": {"allocation": allocation}},
            content=client.Patch.MERGE,
            into=dict,
            namespace="default",
            subresource="status",
        )

    async def prepared(self):
        """A claim that was prepared with d1."""
        name = await self.claim()
        self.attached = [attachment("d1", name.uid)]
        await self.preparer.prepare(name)
        return name


@pytest.fixture
async def world(tmp_path):
    tree = sysfs.SysfsTree.create(tmp_path / "sys")
    for slot, serial in enumerate(SERIALS.values(), start=1):
        disk = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x10, serial=serial)
        tree.attach(slot, disk)
    arrivals = devices.Devices(tmp_path / "sys", lambda: None)
    await arrivals.read()
    async with apiserver.serving() as server:
        connection = config.from_kubeconfig(server.kubeconfig(tmp_path / "kubeconfig"))
        async with client.connecting(connection) as api:
            found = World(tmp_path, api, arrivals, tree)
            await found.preparer.restore()
            yield found


async def test_a_prepared_claim_has_its_cdi_file_and_its_record(world):
    name = await world.prepared()
    assert world.cdi() == {f"{DRIVER}-{name.uid}.json": [f"{name.uid}-d1"]}
    assert world.recorded() == [name.uid]
    assert world.preparer.holder("p", "d1") == name.uid


async def test_a_second_prepare_gives_the_same_and_writes_the_cdi_file_again(world):
    name = await world.prepared()
    first = await world.preparer.prepare(name)
    (file,) = (world.folder / "cdi").glob("*.json")
    content = file.read_bytes()
    file.unlink()
    assert await world.preparer.prepare(name) == first
    assert file.read_bytes() == content


async def test_the_kubelet_hears_the_request_and_not_its_alternative(world):
    name = await world.claim(results=(result("d1", request="disk/fast"), result("d2", request="other")))
    world.attached = [attachment("d1", name.uid), attachment("d2", name.uid)]
    prepared = await world.preparer.prepare(name)
    assert [(one.device, one.requests, one.cdi_id) for one in prepared] == [
        ("d1", ("disk",), f"{DRIVER}/device={name.uid}-d1"),
        ("d2", ("other",), f"{DRIVER}/device={name.uid}-d2"),
    ]


async def test_devices_of_other_drivers_are_not_ours_to_prepare(world):
    name = await world.claim(results=(result("d1", driver="other.dev"),))
    assert await world.preparer.prepare(name) == ()
    assert world.cdi() == {}
    assert world.recorded() == []


async def refused(world, name):
    with pytest.raises(errors.PrepareError) as error:
        await world.preparer.prepare(name)
    assert "\n" not in str(error.value)
    assert world.cdi() == {}
    assert world.recorded() == []
    return str(error.value)


async def test_a_claim_that_is_gone_is_said(world):
    name = servicers.ClaimName(namespace="default", name="none", uid="u")
    assert "default/none does not exist any more" in await refused(world, name)


async def test_a_claim_that_was_replaced_is_said_with_the_remedy(world):
    name = await world.claim()
    old = servicers.ClaimName(namespace="default", name="c1", uid="old")
    assert "replaced by another claim of that name; delete the pod" in await refused(world, old)
    assert name.uid != old.uid


async def test_a_claim_that_is_not_allocated_is_said(world):
    assert "is not allocated" in await refused(world, await world.claim(results=()))


async def test_a_claim_that_may_not_be_read_is_said(world, tmp_path):
    name = await world.claim()
    nobody = config.Connection(
        server=world.api.server, tls=None, authorization=lambda: "Bearer no", origin="test"
    )
    async with client.connecting(nobody) as api:
        world.preparer = world.started(api=api)
        await world.preparer.restore()
        assert "cannot read claim default/c1" in await refused(world, name)


@pytest.mark.parametrize(
    ("attached", "words"),
    [
        pytest.param([], "not attached to this node for this claim", id="not-attached"),
        pytest.param([("d1", "another", {})], "not attached to this node for this claim", id="for-another"),
        pytest.param([("d1", "", {})], "not attached to this node for this claim", id="idle"),
        pytest.param([("d1", None, {"deleting": True})], "is being detached", id="going"),
    ],
)
async def test_a_device_that_is_not_attached_for_the_claim_is_said(world, attached, words):
    name = await world.claim()
    world.attached = [
        attachment(device, name.uid if uid is None else uid, **more) for device, uid, more in attached
    ]
    assert words in await refused(world, name)


@pytest.mark.parametrize(
    ("visible", "words"),
    [
        pytest.param(None, "is not visible on this node yet", id="not-here-yet"),
        pytest.param(True, "is not visible on this node yet", id="just-gone"),
        pytest.param(False, "cannot be used on this node: it fell out", id="lost"),
    ],
)
async def test_a_device_that_is_not_here_is_said(world, visible, words):
    name = await world.claim()
    world.tree.detach(1)
    await world.arrivals.read()
    world.attached = [attachment("d1", name.uid, visible=visible)]
    message = await refused(world, name)
    assert words in message
    assert "p/d1" in message


async def test_a_claim_of_which_one_device_is_missing_is_not_prepared_in_part(world):
    name = await world.claim(results=(result("d1"), result("d2")))
    world.attached = [attachment("d1", name.uid)]
    assert "p/d2" in await refused(world, name)


async def test_a_device_that_another_claim_still_uses_is_refused_until_that_is_unprepared(world):
    first = await world.prepared()
    second = await world.claim("c2")
    world.attached = [attachment("d1", second.uid)]
    with pytest.raises(errors.PrepareError, match="still in use by claim default/c1"):
        await world.preparer.prepare(second)
    assert world.recorded() == [first.uid]
    await world.preparer.unprepare(first)
    await world.preparer.prepare(second)
    assert world.recorded() == [second.uid]


async def test_of_two_claims_for_one_device_at_once_only_one_gets_it(world):
    names = [await world.claim("c1"), await world.claim("c2")]
    world.attached = [attachment("d1", name.uid) for name in names]
    done = await asyncio.gather(*(world.preparer.prepare(name) for name in names), return_exceptions=True)
    assert sorted(type(one).__name__ for one in done) == ["PrepareError", "tuple"]
    assert len(world.recorded()) == len(world.cdi()) == 1


async def test_an_unprepared_claim_leaves_nothing_and_tells_what_is_free(world):
    name = await world.prepared()
    for _ in range(2):
        await world.preparer.unprepare(name)
    assert (world.cdi(), world.recorded(), world.released) == ({}, [], [("p", "d1")])
    assert world.preparer.holder("p", "d1") is None


async def test_an_unknown_claim_is_unprepared_with_success(world):
    await world.preparer.unprepare(servicers.ClaimName(namespace="ns", name="never", uid="never"))
    assert world.released == []


async def test_a_claim_that_came_back_with_another_device_lets_the_first_go(world):
    name = await world.prepared()
    await world.allocate("c1", ())
    await world.allocate("c1", (result("d2"),))
    world.attached = [attachment("d1", deleting=True), attachment("d2", name.uid)]
    await world.preparer.prepare(name)
    assert world.released == [("p", "d1")]
    assert world.preparer.holder("p", "d1") is None


async def test_after_a_restart_nothing_changes(world):
    name = await world.prepared()
    before = (world.cdi(), world.checkpoint.read_bytes())
    await world.restarted()
    assert (world.cdi(), world.checkpoint.read_bytes()) == before
    assert world.preparer.holder("p", "d1") == name.uid


async def test_after_a_reboot_the_cdi_files_are_written_again(world):
    await world.prepared()
    before = world.cdi()
    for file in (world.folder / "cdi").iterdir():
        file.unlink()
    (world.folder / "cdi").rmdir()
    await world.restarted("boot-2")
    assert world.cdi() == before
    assert checkpoint.load(world.checkpoint).boot_id == "boot-2"


@pytest.mark.parametrize("gone", ["device", "attachment"])
async def test_after_a_reboot_without_the_device_the_claim_can_still_be_unprepared(world, gone):
    name = await world.prepared()
    for file in (world.folder / "cdi").iterdir():
        file.unlink()
    if gone == "device":
        world.tree.detach(1)
        await world.arrivals.read()
    else:
        world.attached = []
    await world.restarted("boot-2")
    assert world.cdi() == {}
    assert world.preparer.holder("p", "d1") == name.uid
    await world.preparer.unprepare(name)
    assert world.recorded() == []
    assert world.released == [("p", "d1")]


async def test_a_cdi_file_that_no_claim_stands_behind_is_removed_and_those_of_others_stay(world):
    name = await world.prepared()
    for file in (f"{DRIVER}-stray.json", "other.dev-x.json"):
        (world.folder / "cdi" / file).write_text('{"devices": []}')
    await world.restarted()
    assert sorted(world.cdi()) == sorted([f"{DRIVER}-{name.uid}.json", "other.dev-x.json"])


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version": 1, "crc32": 0, "data": "x"}'])
async def test_what_a_corrupt_checkpoint_said_is_found_again(world, damage):
    name = await world.prepared()
    before = world.cdi()
    world.checkpoint.write_bytes(damage)
    await world.restarted()
    assert world.preparer.holder("p", "d1") == name.uid
    assert (world.cdi(), world.recorded()) == (before, [name.uid])
    (aside,) = world.folder.glob("checkpoint.json.corrupt-*")
    assert aside.read_bytes() == damage
    await world.preparer.unprepare(name)
    assert (world.cdi(), world.released) == ({}, [("p", "d1")])


async def test_a_lost_checkpoint_does_not_lose_a_device_that_is_being_detached(world):
    """Its release must not be reported while a container may still use it."""
    name = await world.prepared()
    world.checkpoint.unlink()
    world.attached = [attachment("d1", name.uid, deleting=True)]
    await world.restarted()
    assert world.preparer.holder("p", "d1") == name.uid


async def test_a_cdi_directory_that_cannot_be_written_is_said_and_nothing_is_recorded(world):
    name = await world.claim()
    world.attached = [attachment("d1", name.uid)]
    (world.folder / "cdi").write_text("in the way")
    with pytest.raises(errors.PrepareError, match="CDI"):
        await world.preparer.prepare(name)
    assert world.recorded() == []


async def test_a_checkpoint_that_cannot_be_written_fails_the_call_and_a_later_one_succeeds(world):
    name = await world.claim()
    world.attached = [attachment("d1", name.uid)]
    in_the_way = world.folder / ".checkpoint.json.tmp"
    in_the_way.mkdir()
    with pytest.raises(errors.CheckpointError):
        await world.preparer.prepare(name)
    assert world.preparer.holder("p", "d1") is None
    in_the_way.rmdir()
    await world.preparer.prepare(name)
    assert world.recorded() == [name.uid]


async def test_a_call_that_the_kubelet_gave_up_is_over_before_the_next_one_begins(world):
    """The file is a pipe, so that the write lasts until somebody reads."""
    name = await world.claim()
    world.attached = [attachment("d1", name.uid)]
    (world.folder / "cdi").mkdir()
    pipe = world.folder / "cdi" / f".{DRIVER}-{name.uid}.tmp"
    os.mkfifo(pipe)
    async with asyncio.TaskGroup() as tasks:
        given_up = tasks.create_task(world.preparer.prepare(name), name="prepare")
        async with asyncio.timeout(20):
            while not world.preparer._writing.locked():  # noqa: ASYNC110 - a lock cannot be waited for unheld
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            given_up.cancel()
            next_one = tasks.create_task(world.preparer.unprepare(name), name="unprepare")
            for _ in range(50):
                await asyncio.sleep(0)
            await asyncio.to_thread(pipe.read_bytes)
            with contextlib.suppress(asyncio.CancelledError):
                await given_up
            await next_one
    assert list((world.folder / "cdi").iterdir()) == []
    assert world.recorded() == []
