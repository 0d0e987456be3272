"""Which reconcilers a change wakes, row by row."""

import dataclasses
import typing

import msgspec
import pytest
from tests.scenes import attachments as scenes
from tests.scenes import claims as claim_scenes

from drawbar.driver.api import attachments, core, fabrics, maintenances, meta, slices
from drawbar.driver.controller import attachment_index, names, routing
from drawbar.driver.controller.pools import desired
from drawbar.driver.controller.routing import Allocation, Job, WakeJob
from drawbar.fabric import contract

DRIVER = "drawbar.dev"
KEY = names.DeviceKey(fabric="f", device="d")
SOON = routing.GATHER_SECONDS

FABRIC = fabrics.Fabric(
    metadata=meta.ObjectMeta(name="f", resource_version="1"),
    spec=fabrics.FabricSpec(adapter="a", endpoint="e"),
)
REPORTED = msgspec.structs.replace(FABRIC, status=fabrics.FabricStatus(devices=3))
HELD = msgspec.structs.replace(FABRIC, metadata=meta.ObjectMeta(name="f", finalizers=(fabrics.FINALIZER,)))
GOING = msgspec.structs.replace(
    FABRIC, metadata=meta.ObjectMeta(name="f", deletion_timestamp="2026-01-01T00:00:00Z")
)
WORK, MORE_WORK = (
    maintenances.Maintenance(
        metadata=meta.ObjectMeta(name="work"),
        spec=maintenances.MaintenanceSpec(fabric="f", devices=devices),
    )
    for devices in (("d",), ("d", "e"))
)
MAINTAINED = (WakeJob(Job.LABELS, after=SOON), WakeJob(Job.PUBLISH, "f", SOON))
BEGUN = (
    WakeJob(Job.PUBLISH, "f"),
    WakeJob(Job.STATUS, "f"),
    WakeJob(Job.FINALIZER, "f"),
    WakeJob(Job.LABELS),
)


def attachment(*held, deleting=False, error=""):
    failure = attachments.Failure(reason=error, message="m") if error else None
    claim = attachments.ClaimReference(namespace="ns", name="c", uid="c")
    return scenes.attachment(*held, uid="u", fabric="f", claim=claim, deleting=deleting, error=failure)


ATTACHMENT, ATTACHED = attachment(), attachment(attachments.ATTACHED)
FAILED = attachment(error="LinkDown")
REFUSED = attachment(error="DeviceIncompatible")
MEMBER = msgspec.structs.replace(
    ATTACHMENT,
    spec=msgspec.structs.replace(
        ATTACHMENT.spec, composite=attachments.Composite(name="duo", devices=("d", "e"))
    ),
)


def attached(old, new, **facts):
    return routing.AttachmentChange(old=old, new=new, key=KEY, **facts)


def claim(*, admin=None):
    return claim_scenes.allocated("d", pool="f", admin_access=admin)


def given(new, **facts):
    return routing.ClaimChange(new=new, **facts)


NODE = core.Node(metadata=meta.ObjectMeta(name="n"))
LABELLED = core.Node(metadata=meta.ObjectMeta(name="n", labels={"a": "b"}))
OFF = msgspec.structs.replace(NODE, spec=core.NodeSpec(taints=(core.Taint(key=core.OUT_OF_SERVICE),)))


def published(fabric, node=None):
    """Return a slice of a Fabric's pool; with a node one of that node's, which has given it the Fabric's label."""
    pool = slices.Pool(name=node or fabric, generation=1, resource_slice_count=1)
    return slices.ResourceSlice(
        metadata=meta.ObjectMeta(name="s", labels={desired.FABRIC_LABEL: fabric}),
        spec=slices.SliceSpec(driver=DRIVER, pool=pool, node_name=node),
    )


GPU = contract.Device(id="d", device_class=contract.DeviceClass.GPU)
USED = dataclasses.replace(GPU, connection=contract.Connection(host_id="h"))
GROUPED = dataclasses.replace(GPU, reach_groups=frozenset({"a"}))
OTHER_MODEL = dataclasses.replace(GPU, model="M")


def listed(old, new, **facts):
    return routing.DeviceChange(fabric="f", old=old, new=new, **facts)


# By the row's name: changes, and what that row wakes for each.
CASES = {
    "fabric": [
        (routing.FabricChange(old=None, new=FABRIC), BEGUN),
        (routing.FabricChange(old=FABRIC, new=None), BEGUN),
        (routing.FabricChange(old=FABRIC, new=GOING), BEGUN),
        (routing.FabricChange(old=FABRIC, new=REPORTED), ()),
    ],
    "fabric loses its finalizer, or gets another": [
        (routing.FabricChange(old=FABRIC, new=REPORTED), ()),
        (routing.FabricChange(old=HELD, new=FABRIC), (WakeJob(Job.FINALIZER, "f", routing.GATHER_SECONDS),)),
    ],
    "fabric's status written, by whomever": [
        (routing.FabricChange(old=FABRIC, new=REPORTED), (WakeJob(Job.STATUS, "f", routing.COUNTS_SECONDS),)),
        (routing.FabricChange(old=HELD, new=FABRIC), ()),
    ],
    "attachment: device": [(attached(None, ATTACHMENT), (KEY,)), (attached(ATTACHMENT, None), (KEY,))],
    "attachment: members of its composite": [
        (attached(ATTACHMENT, ATTACHED), ()),
        (attached(None, MEMBER), (names.DeviceKey(fabric="f", device="e"),)),
    ],
    "attachment goes where a composite may be waiting for its device": [
        (attached(ATTACHMENT, None), ()),
        (attached(None, ATTACHMENT, has_composites=True), ()),
        (
            attached(ATTACHMENT, None, has_composites=True),
            (WakeJob(Job.PUBLISH, "f", routing.GATHER_SECONDS),),
        ),
    ],
    "device is erased as often as a day allows": [
        (attached(ATTACHED, None), ()),
        (attached(ATTACHED, None, is_worn=True), (WakeJob(Job.PUBLISH, "f", routing.GATHER_SECONDS),)),
    ],
    "attachment: classic": [(attached(ATTACHMENT, ATTACHED), (Allocation.CLASSIC,))],
    "attachment: observers": [
        (attached(ATTACHMENT, ATTACHED), ()),
        (attached(ATTACHMENT, ATTACHED, observers=("ns/o",)), (WakeJob(Job.ADMIN, "ns/o"),)),
    ],
    "attachment: counts": [
        (attached(ATTACHMENT, ATTACHED), (WakeJob(Job.STATUS, "f", routing.COUNTS_SECONDS),))
    ],
    "attachment gone: finalizer of its fabric": [
        (attached(ATTACHMENT, ATTACHED), ()),
        (attached(ATTACHED, None), (WakeJob(Job.FINALIZER, "f", SOON),)),
    ],
    "attachment comes or goes where models are limited": [
        (attached(None, ATTACHMENT), ()),
        (attached(None, ATTACHMENT, limits_models=True), (WakeJob(Job.LABELS),)),
        (attached(ATTACHMENT, None, limits_models=True), (WakeJob(Job.LABELS),)),
        (attached(ATTACHMENT, ATTACHED, limits_models=True), ()),
    ],
    "release begins": [
        (
            attached(ATTACHED, attachment(deleting=True)),
            (WakeJob(Job.PUBLISH, "f", attachment_index.RELEASE_SECONDS),),
        ),
        (attached(attachment(deleting=True), attachment(deleting=True)), ()),
        (attached(None, ATTACHMENT), ()),
    ],
    "release ends that was overdue": [
        (attached(ATTACHED, None), ()),
        (attached(ATTACHED, None, release_seconds=attachment_index.RELEASE_SECONDS - 1), ()),
        (
            attached(ATTACHED, None, release_seconds=attachment_index.RELEASE_SECONDS),
            (WakeJob(Job.PUBLISH, "f", SOON),),
        ),
    ],
    "pair is refused": [
        (
            attached(ATTACHMENT, REFUSED),
            (
                WakeJob(Job.LABELS, after=SOON),
                WakeJob(Job.STATUS, "f", SOON),
                WakeJob(Job.PUBLISH, "f", SOON),
            ),
        ),
        (attached(ATTACHMENT, REFUSED, served=False), ()),
        (attached(REFUSED, REFUSED), ()),
        (attached(ATTACHMENT, FAILED), ()),
    ],
    "attachment of a refused pair goes, or works at last": [
        (attached(REFUSED, None), (WakeJob(Job.LABELS, after=SOON), WakeJob(Job.PUBLISH, "f", SOON))),
        (attached(REFUSED, ATTACHED), (WakeJob(Job.LABELS, after=SOON), WakeJob(Job.PUBLISH, "f", SOON))),
        (attached(REFUSED, None, served=False), ()),
        (attached(REFUSED, REFUSED), ()),
        (attached(FAILED, None), ()),
    ],
    "attach fails": [
        (attached(ATTACHMENT, FAILED), (WakeJob(Job.LABELS, after=SOON), WakeJob(Job.STATUS, "f", SOON))),
        (attached(ATTACHMENT, FAILED, served=False), ()),
        (attached(ATTACHMENT, REFUSED), ()),
        (attached(FAILED, FAILED), ()),
        (attached(FAILED, None), ()),
        (attached(ATTACHMENT, attachment(error="FabricUnreachable")), ()),
    ],
    "attachment shows in the pool": [
        (attached(ATTACHMENT, ATTACHED), ()),
        (attached(None, ATTACHMENT), ()),
        (attached(None, ATTACHMENT, shows_owner=True), (WakeJob(Job.PUBLISH, "f", SOON),)),
        (attached(ATTACHMENT, FAILED), (WakeJob(Job.PUBLISH, "f", SOON),)),
    ],
    "claim: devices": [(given(claim(), devices=(KEY,)), (KEY,)), (given(None), ())],
    "claim begins or ends to keep a composite from changing": [
        (given(claim(), devices=(KEY,)), ()),
        (
            given(claim(), devices=(KEY,), regrouped=(KEY,)),
            (WakeJob(Job.PUBLISH, "f", routing.GATHER_SECONDS),),
        ),
    ],
    "claim of a device that moved to another pool": [
        (given(claim(), devices=(KEY,)), ()),
        (given(claim(), devices=(KEY,), moved=(KEY,)), (WakeJob(Job.PUBLISH, "f"),)),
    ],
    "claim with admin access": [
        (given(claim()), ()),
        (given(claim(admin=True), observes=True), (WakeJob(Job.ADMIN, "ns/c"),)),
        (given(None), ()),
    ],
    "maintenance: its status": [
        (routing.MaintenanceChange(old=None, new=WORK), (WakeJob(Job.MAINTENANCE, "work"),)),
        (routing.MaintenanceChange(old=WORK, new=WORK), (WakeJob(Job.MAINTENANCE, "work"),)),
        (routing.MaintenanceChange(old=WORK, new=None), ()),
    ],
    "maintenance begins or ends": [
        (routing.MaintenanceChange(old=None, new=WORK), MAINTAINED),
        (routing.MaintenanceChange(old=WORK, new=None), MAINTAINED),
        (routing.MaintenanceChange(old=WORK, new=MORE_WORK), MAINTAINED),
        (routing.MaintenanceChange(old=WORK, new=WORK), ()),
    ],
    "node mapped anew": [
        (routing.NodeChange(old=None, new=NODE), (WakeJob(Job.LABELS, after=SOON),)),
        (routing.NodeChange(old=NODE, new=LABELLED), (WakeJob(Job.LABELS, after=SOON),)),
        (routing.NodeChange(old=NODE, new=NODE), ()),
        (routing.NodeChange(old=NODE, new=None), (WakeJob(Job.LABELS, after=SOON),)),
    ],
    "node lost or found": [
        (routing.NodeChange(old=NODE, new=LABELLED, attached=(KEY,)), ()),
        (routing.NodeChange(old=None, new=NODE, attached=(KEY,)), ()),
        (
            routing.NodeChange(old=NODE, new=None, attached=(KEY,)),
            (Allocation.IMMEDIATE, Allocation.CLASSIC, KEY),
        ),
        (
            routing.NodeChange(old=NODE, new=OFF, attached=(KEY,)),
            (Allocation.IMMEDIATE, Allocation.CLASSIC, KEY),
        ),
    ],
    "node daemon": [(routing.DaemonChange(), (WakeJob(Job.LABELS, after=SOON),))],
    "slice of a fabric": [
        (routing.SliceChange(old=None, new=published("f")), (WakeJob(Job.PUBLISH, "f", SOON),)),
        (routing.SliceChange(old=published("f"), new=None), (WakeJob(Job.PUBLISH, "f"),)),
        (routing.SliceChange(old=None, new=published("f", node="n")), ()),
    ],
    "slice of a pool whose nodes have a label for it": [
        (
            routing.SliceChange(old=None, new=published("f/reach.a-12345678")),
            (WakeJob(Job.LABELS, after=SOON),),
        ),
        (
            routing.SliceChange(old=None, new=published("f/e/refused.12345678")),
            (WakeJob(Job.LABELS, after=SOON),),
        ),
        (routing.SliceChange(old=None, new=published("f/e")), ()),
        (routing.SliceChange(old=published("f/reach.a-12345678"), new=None), ()),
        (routing.SliceChange(old=None, new=published("f/reach.a", node="n")), ()),
    ],
    "device in other reachability groups": [
        (listed(None, GROUPED), (WakeJob(Job.LABELS, after=SOON),)),
        (listed(GPU, GROUPED), (WakeJob(Job.LABELS, after=SOON),)),
        (listed(GROUPED, GPU), (WakeJob(Job.LABELS, after=SOON),)),
        (listed(GROUPED, None), (WakeJob(Job.LABELS, after=SOON),)),
        (listed(None, GPU), ()),
        (listed(GROUPED, GROUPED), ()),
    ],
    "device": [
        (listed(None, GPU), (KEY, Allocation.CLASSIC)),
        (listed(GPU, None), (KEY, Allocation.CLASSIC)),
    ],
    "device shows in the pool": [
        (listed(None, GPU, attached=True), (WakeJob(Job.PUBLISH, "f", SOON),)),
        (listed(GPU, None), (WakeJob(Job.PUBLISH, "f", SOON),)),
        (listed(GPU, OTHER_MODEL, attached=True), (WakeJob(Job.PUBLISH, "f", SOON),)),
        (listed(GPU, USED), (WakeJob(Job.PUBLISH, "f", SOON),)),
        (listed(GPU, USED, attached=True), ()),
        (listed(GPU, GPU), ()),
    ],
    "hosts": [(routing.HostsChange(), (WakeJob(Job.LABELS, after=SOON),))],
    "connection": [
        (
            routing.ConnectionChange(fabric="f", publish_after=3.0, devices=(KEY,)),
            (WakeJob(Job.STATUS, "f"), WakeJob(Job.LABELS), WakeJob(Job.PUBLISH, "f", 3.0), KEY),
        )
    ],
    "troubles": [(routing.TroublesChange(fabric="f"), (WakeJob(Job.STATUS, "f", SOON),))],
    "operation": [(routing.OperationChange(devices=(KEY,)), (KEY,))],
    "what can be given changed": [
        (routing.JobDone(job=Job.PUBLISH), (Allocation.IMMEDIATE, Allocation.CLASSIC)),
        (routing.JobDone(job=Job.LABELS), (Allocation.IMMEDIATE, Allocation.CLASSIC)),
        (routing.JobDone(job=Job.STATUS), ()),
        (routing.JobDone(job=Job.FINALIZER), ()),
        (routing.JobDone(job=Job.ADMIN), ()),
    ],
}


@pytest.mark.parametrize("row", routing.TABLE, ids=lambda row: row.name)
def test_a_row_wakes_what_it_names_for_the_changes_that_matter(row):
    for change, wakes in CASES[row.name]:
        assert isinstance(change, row.on)
        assert tuple(row.wakes(change) if row.when(change) else ()) == wakes, change


def test_a_change_wakes_what_all_rows_of_its_kind_name():
    woken = list(routing.route(attached(ATTACHED, None)))
    assert woken == [
        KEY,
        Allocation.CLASSIC,
        WakeJob(Job.STATUS, "f", routing.COUNTS_SECONDS),
        WakeJob(Job.FINALIZER, "f", SOON),
    ]


def test_every_kind_of_change_has_a_row():
    assert {row.on for row in routing.TABLE} == set(typing.get_args(routing.Change))


@pytest.mark.parametrize(
    ("new", "works"),
    [
        pytest.param(attachment(attachments.ATTACHED, attachments.VISIBLE), True, id="visible"),
        pytest.param(ATTACHED, False, id="not-visible-yet"),
        pytest.param(attachment(attachments.VISIBLE, error="LinkDown"), False, id="failed"),
        pytest.param(None, False, id="gone"),
    ],
)
def test_a_device_works_once_it_is_visible_and_nothing_that_it_is_to_blame_for_failed(new, works):
    assert attached(ATTACHMENT, new).works is works
