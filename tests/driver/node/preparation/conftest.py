"""A node's files, its devices in a mocked tree and its attachments, with claims from the API server double."""

import asyncio
import contextlib
import fcntl
import functools
import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest
from tests.scenes import attachments as scenes
from tests.scenes import clusters, readers

from drawbar.driver.api import attachments, classic_v1alpha2, classic_v1alpha3, handles, meta
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.node import claim_versions, classes
from drawbar.driver.node.discovery import devices
from drawbar.driver.node.local import demands
from drawbar.driver.node.plugin import servicers
from drawbar.driver.node.preparation import (
    cdifiles,
    holders,
    limits,
    lookup,
    metadata,
    preparer,
    store,
    sweeping,
)
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import apiserver, sysfs

DRIVER = "drawbar.dev"
NODE = "n"
SERIALS = {"d1": "SN1", "d2": "SN2"}
SLOTS = {"d1": 1, "d2": 2}
ADDRESSES = {"d1": "0000:01:00.0", "d2": "0000:02:00.0"}
# Of a wait that is to end; a wait that must not end is not waited for.
LONG = limits.Limits(late_device_seconds=20)
NONE = limits.Limits(late_device_seconds=0)


def result(device, driver=DRIVER, request="disk", pool="p", **more):
    return {"request": request, "driver": driver, "pool": pool, "device": device, **more}


def share(number):
    """Return the id of a share."""
    return f"00000000-0000-4000-8000-{number:012d}"


def disk(device):
    return sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x10, serial=SERIALS[device])


AT = "2026-01-01T00:00:00Z"


NAMES = {}
"""The names of the claims that were made, by their uids."""


def attachment(
    device="d1",
    uid="",
    *,
    deleting=False,
    attached=True,
    visible=True,
    error=None,
    user=None,
    boot_id="boot-1",
    requests=(),
    devices=0,
    at=AT,
    **spec,
):
    """Return a DeviceAttachment that is ready for the claim, or for no claim.

    Args:
        device: its name.
        uid: of the claim; empty for none.
        deleting: it is being detached.
        attached: the fabric has attached it.
        visible: its condition Visible; None without one.
        error: the controller's message of a failure.
        user: uid and allocation timestamp in the node's report; None for those of the claim, False for no report.
        boot_id: in the same.
        requests: of the claim.
        devices: of the claim, as the attachment counts them.
        at: the allocation timestamp.
        spec: further fields.
    """
    conditions = [attachments.ATTACHED] if attached else []
    if visible is not None:
        text = "True" if visible else "False"
        conditions.append(
            meta.Condition(type=attachments.VISIBLE, status=text, reason="R", message="it fell out")
        )
    claim = attachments.ClaimReference(
        namespace="default", name=NAMES.get(uid, "c1"), uid=uid, requests=requests, devices=devices
    )
    used_by, used_at = user or ((uid, at or "") if uid else ("", ""))
    node = attachments.NodeReport(
        pci_address=ADDRESSES.get(device, ADDRESSES["d1"]),
        boot_id=boot_id,
        claim_uid=used_by,
        allocation_timestamp=used_at,
    )
    return scenes.attachment(
        *conditions,
        error=attachments.Failure(reason="R", message=error) if error else None,
        node=node if user is not False else None,
        deleting=deleting,
        device=device,
        pool="p",
        node_name=NODE,
        device_class="nvme",
        serial=SERIALS.get(device, SERIALS["d1"]),
        claim=claim if uid else None,
        allocation_timestamp=at,
        **spec,
    )


def make_full_attachment(device, uid, devices=1, **more):
    """Return a complete attachment, ready for a Prepare."""
    return attachment(device, uid, requests=("disk",), devices=devices, **more)


class LocalPool:
    """The devices of the node's own pool, by name."""

    def __init__(self):
        self.cards, self.lenders = {}, {}
        self.of_class = "nvme"

    def card(self, pool, device):
        return self.cards.get((pool, device))

    def lender(self, pool, device):
        return self.lenders.get((pool, device))

    def device_class(self, pool, device):
        return self.of_class


class Recorder:
    """Keeps the Events of claims."""

    def __init__(self):
        self.events = []

    def record_warning(self, claim, *, reason, message):
        self.events.append((claim.name, claim.uid, reason, message))

    @property
    def reasons(self):
        return [reason for _, _, reason, _ in self.events]


class Classic:
    """What the controller of a classic cluster writes, in one version of its API."""

    def __init__(self, version):
        self.kind = kinds.CLASSIC_CLAIMS[version]
        self.version = version
        self.request = handles.WHOLE_CLAIM if version == "v1alpha2" else "disk"

    def handle(self, *devices, **more):
        listed = tuple(
            handles.HandleDevice(
                request=self.request, fabric="fab", pool="p", device=device, attachment=f"fab.{device}"
            )
            for device in devices
        )
        return handles.Handle(**{"node": NODE, "devices": listed, **more})

    def data(self, *devices, **more):
        return handles.encode(self.handle(*devices, **more))

    def allocation(self, *devices, config=(), **more):
        """Return the part of the status; `v1alpha3` has the handle among its configuration, before `config`."""
        handle = self.handle(*devices, **more)
        if self.version == "v1alpha2":
            return classic_v1alpha2.build_allocation(handle, DRIVER, shareable=False)
        nothing = tuple((request, NODE, "none") for request in handle.without)
        return classic_v1alpha3.build_allocation(handle, DRIVER, nothing, config)

    async def claim(self, api, name="c1", status=None, requests=("disk",)):
        """Create a claim, and return its name for the kubelet. The requests are of `v1alpha3` alone."""
        listed = [{"name": request, "deviceClassName": "disks"} for request in requests]
        old, new = {"resourceClassName": "disks"}, {"controller": DRIVER, "devices": {"requests": listed}}
        spec = old if self.version == "v1alpha2" else new
        made = await clusters.Cluster(api).create(self.kind, name, spec=spec)
        if status is not None:
            await self.say(api, name, status)
        NAMES[made["metadata"]["uid"]] = name
        return servicers.ClaimName(namespace="default", name=name, uid=made["metadata"]["uid"])

    async def say(self, api, name, status):
        await clusters.Cluster(api).set_status(self.kind, name, status)


class PreparingNode(clusters.Cluster):
    """A node, its attachments as they are now, and what was let go."""

    LONG, NONE = LONG, NONE
    share = staticmethod(share)
    attachment = staticmethod(attachment)
    make_full_attachment = staticmethod(make_full_attachment)
    result = staticmethod(result)

    def __init__(self, folder, api, arrivals, tree):
        super().__init__(api)
        self.folder = folder
        self.cdi_dir = folder / "cdi"
        self.arrivals = arrivals
        self.tree = tree
        self.attached = []
        self.released = []
        self.described = False
        # The interfaces of the node's own devices that the host uses, with the reason; None: that is unknown.
        self.occupied = {}
        self.local = LocalPool()
        # By name why a device of the node's own is not clean, and who was asked for.
        self.unclean, self.asked = {}, []
        # By name what makes the mark of a device of the node's own, by the uid of the claim.
        self.marks = {}
        # The claims that were read.
        self.seen = []
        # What the node does to make an attached device ready.
        self.step = ""
        self.recorder = Recorder()
        self.preparer = None
        self.reader = None
        self.ask(api)

    def record(self, uid) -> Path:
        return self.folder / "claims" / f"{uid}.json"

    def lose_record(self):
        """Remove the whole record."""
        shutil.rmtree(self.folder / "claims")

    def finder(self, boot_id="boot-1"):
        return lookup.Finder(
            driver=DRIVER,
            node_name=NODE,
            boot_id=boot_id,
            attached=lambda: self.attached,
            card=self.card,
            host=classes.Host.from_sysfs(self.folder / "sys"),
            local=self.local,
            refusal=self._refusal,
            local_attachment=functools.partial(self._make_own_attachment, boot_id),
            occupied=lambda names: self.occupied,
            pending_step=lambda attachment: self.step,
        )

    def _make_own_attachment(self, boot_id, pool, device, uid, at):
        claim = attachments.ClaimReference(namespace="default", name="c1", uid=uid)
        demand = demands.Demand(
            pool=pool,
            device=device,
            node_name=NODE,
            driver=DRIVER,
            claim=claim,
            allocation_timestamp=at or "",
        )
        mark = self.marks.get(device)
        return demands.attachment(demand, mark(uid) if mark is not None else None, boot_id)

    def _refusal(self, pool, device, uid, _):
        self.asked.append((pool, device, uid))
        return self.unclean.get(device)

    def card(self, attachment):
        function = self.arrivals.inventory.by_serial(attachment.spec.identity.serial)
        return self.arrivals.card_at(function.address) if function is not None else None

    def ask(self, api):
        """Let every instance that starts from now on read claims from that API server."""
        self.reader = readers.make_modern_reader(api, driver=DRIVER, node_name=NODE)

    def make_preparer(self, boot_id="boot-1", waits=NONE):
        """Return a new instance that has not read anything yet."""
        files = store.Store(
            cdifiles.CdiFiles(self.cdi_dir, DRIVER), self.folder, lock_seconds=waits.lock_seconds
        )
        return preparer.Preparer(
            reader=self.reader,
            seen=self.seen.append,
            finder=self.finder(boot_id),
            held_by=holders.Holders(files),
            described=metadata.Files(self.folder, DRIVER, enabled=self.described),
            boot_id=boot_id,
            released=lambda pool, device: self.released.append((pool, device)),
            recorder=self.recorder,
            waits=waits,
        )

    async def restart_preparer(self, boot_id="boot-1", **more):
        self.preparer = self.make_preparer(boot_id, **more)
        await self.preparer.restore()
        return self.preparer

    async def reboot(self):
        """Restart the preparer after a reboot, which removes the CDI files."""
        self.forget_cdi()
        return await self.restart_preparer("boot-2")

    @contextlib.contextmanager
    def locking(self):
        """Hold the lock of another instance, so that no claim is recorded in the block."""
        descriptor = os.open(self.folder / store.LOCK, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)

    def shares(self, names):
        """Return an attachment of a share of d1 for each claim; its id is that of `share`, by the claim's place in the list."""
        return [
            attachment(
                f"share-{number}",
                name.uid,
                share=attachments.Share(device="d1", device_id="d1", share_id=share(number), memory_bytes=1),
            )
            for number, name in enumerate(names)
        ]

    async def prepare_again(self, name):
        """Have the node make its devices ready again after a reboot, and the kubelet prepare the claim."""
        self.attached = [
            msgspec.structs.replace(
                attachment,
                status=msgspec.structs.replace(
                    attachment.status, node=msgspec.structs.replace(attachment.status.node, boot_id="boot-2")
                ),
            )
            for attachment in self.attached
        ]
        return await self.preparer.prepare(name)

    async def settle(self):
        """Run one round of the sweeper."""
        await sweeping.Sweeper(self.preparer, self.finder(), self.reader).settle()

    def forget_cdi(self):
        for file in self.cdi_dir.iterdir():
            file.unlink()
        self.cdi_dir.rmdir()

    async def unplug(self, device):
        await asyncio.to_thread(self.tree.detach, SLOTS[device])
        await self.arrivals.read()

    async def plug(self, device):
        await asyncio.to_thread(self.tree.attach, SLOTS[device], disk(device))
        await self.arrivals.read()

    def cdi(self):
        """Return the CDI device names by file."""
        return {
            file.name: [device["name"] for device in json.loads(file.read_text())["devices"]]
            for file in self.cdi_dir.glob("*.json")
        }

    def list_recorded_uids(self):
        """Return the UIDs of the recorded claims."""
        return sorted(self.claims())

    def claims(self):
        """Return the content of the record files, by uid."""
        documents = [json.loads(file.read_text()) for file in (self.folder / "claims").glob("*.json")]
        return {document["claim"]["uid"]: document["claim"] for document in documents}

    def state(self, uid):
        return self.claims()[uid]["state"]

    def list_record_files(self):
        """Return which files the record is in, which changes with each write."""
        files = (self.folder / "claims").iterdir()
        return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in files}

    async def claim(self, name="c1", results=None):
        """Create a claim with d1 or these results, and return its name for the kubelet."""
        alternatives = [{"name": "fast", "deviceClassName": "nvme"}]
        requests = [
            {"name": "disk", "firstAvailable": alternatives},
            {"name": "other", "exactly": {"deviceClassName": "nvme"}},
        ]
        made = await self.create(kinds.CLAIM, name, spec={"devices": {"requests": requests}})
        uid = made["metadata"]["uid"]
        NAMES[uid] = name
        results = (result("d1"),) if results is None else results
        if results:
            await self.allocate(name, results)
        return servicers.ClaimName(namespace="default", name=name, uid=uid)

    async def allocate(self, name, results):
        allocation = {"devices": {"results": list(results)}} if results else None
        await self.set_status(kinds.CLAIM, name, {"allocation": allocation})

    async def allow_admin_access(self):
        labels = {"resource.kubernetes.io/admin-access": "true"}
        await self.patch(kinds.NAMESPACE, "default", {"metadata": {"labels": labels}})

    async def remove(self, name="c1"):
        await self.api.delete(kinds.CLAIM, name, namespace="default")

    async def prepare_claim(self):
        """Return a claim that was prepared with d1."""
        name = await self.claim()
        self.attached = [attachment("d1", name.uid)]
        await self.preparer.prepare(name)
        return name


@contextlib.asynccontextmanager
async def _world(folder, profile="1.36"):
    tree = sysfs.SysfsTree.create(folder / "sys")
    for device, slot in SLOTS.items():
        tree.attach(slot, disk(device))
    arrivals = devices.Devices(folder / "sys")
    await arrivals.read()
    async with apiserver.serving(profile=profile) as server:
        connection = config.from_kubeconfig(server.kubeconfig(folder / "kubeconfig"))
        async with client.connecting(connection) as api:
            world = PreparingNode(folder, api, arrivals, tree)
            if profile.endswith("classic"):
                world.reader = claim_versions.Reader(
                    api, driver=DRIVER, node_name=NODE, versions=claim_versions.Served(api)
                )
            await world.restart_preparer()
            yield world


@pytest.fixture
async def world(tmp_path):
    async with _world(tmp_path) as world:
        yield world


@pytest.fixture
def world_of(tmp_path):
    """Return `world_of`: `async with world_of(profile) as world` has an API server of another release."""
    return functools.partial(_world, tmp_path)


@pytest.fixture
def classic():
    """Return `classic(version)`: see `Classic`."""
    return Classic
