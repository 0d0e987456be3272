"""The keys that each reconciler of the controller maps a change to, row by row."""

import dataclasses

import msgspec
import pytest
from tests.scenes import attachments as scenes
from tests.scenes import claims as claim_scenes

from drawbar.driver import watching
from drawbar.driver.api import attachments, claims, core, demands, fabrics, maintenances, meta, slices
from drawbar.driver.controller import attachment_index, change_kinds, jobs, names
from drawbar.driver.controller.attachments import executor
from drawbar.driver.controller.classic import service as classic
from drawbar.driver.controller.immediate import service as immediate
from drawbar.driver.controller.jobs import Due, Job
from drawbar.driver.controller.pools import fabric_state
from drawbar.fabric import contract

DRIVER = "drawbar.dev"
KEY = names.DeviceKey(fabric="f", device="d")
SOON = jobs.GATHER_SECONDS

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
MAINTAINED = (Due(Job.LABELS, after=SOON), Due(Job.PUBLISH, "f", SOON))
BEGUN = (
    Due(Job.PUBLISH, "f"),
    Due(Job.STATUS, "f"),
    Due(Job.FINALIZER, "f"),
    Due(Job.LABELS),
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


def make_attachment_change(old, new, **facts):
    return change_kinds.AttachmentChange(old=old, new=new, key=KEY, **facts)


def claim(*, admin=None):
    return claim_scenes.make_allocated_claim("d", pool="f", admin_access=admin)


def make_claim_change(new, **facts):
    return change_kinds.ClaimChange(new=new, **facts)


NODE = core.Node(metadata=meta.ObjectMeta(name="n"))
LABELLED = core.Node(metadata=meta.ObjectMeta(name="n", labels={"a": "b"}))
OFF = msgspec.structs.replace(NODE, spec=core.NodeSpec(taints=(core.Taint(key=core.OUT_OF_SERVICE),)))


def make_slice(fabric, node=None, devices=""):
    """Return a slice of a Fabric's pool; with a node one of that node's, which has given it the Fabric's label."""
    shown = tuple(slices.Device(name=name) for name in devices)
    pool = slices.Pool(name=node or fabric, generation=1, resource_slice_count=1)
    return slices.ResourceSlice(
        metadata=meta.ObjectMeta(name="s", labels={fabric_state.FABRIC_LABEL: fabric}),
        spec=slices.SliceSpec(driver=DRIVER, pool=pool, node_name=node, devices=shown),
    )


GPU = contract.Device(id="d", device_class=contract.DeviceClass.GPU)
USED = dataclasses.replace(GPU, connection=contract.Connection(host_id="h"))
GROUPED = dataclasses.replace(GPU, reach_groups=frozenset({"a"}))
OTHER_MODEL = dataclasses.replace(GPU, model="M")


def make_device_change(old, new, **facts):
    return change_kinds.DeviceChange(fabric="f", old=old, new=new, **facts)


AT_ONCE = msgspec.structs.replace(
    claim(),
    metadata=msgspec.structs.replace(
        claim().metadata, annotations={claims.MODE_ANNOTATION: demands.IMMEDIATE}
    ),
)
WITHDRAWN = (immediate.Withdrawn(KEY),)
TERM = change_kinds.TermChange(devices=(KEY,), maintenances=("work",), observers=("ns/o",))

# By the row's name: changes, and the keys of each.
CASES = {
    "fabric": [
        (change_kinds.FabricChange(old=None, new=FABRIC), BEGUN),
        (change_kinds.FabricChange(old=FABRIC, new=None), BEGUN),
        (change_kinds.FabricChange(old=FABRIC, new=GOING), BEGUN),
        (change_kinds.FabricChange(old=FABRIC, new=REPORTED), ()),
    ],
    "fabric loses its finalizer, or gets another": [
        (change_kinds.FabricChange(old=FABRIC, new=REPORTED), ()),
        (change_kinds.FabricChange(old=HELD, new=FABRIC), (Due(Job.FINALIZER, "f", jobs.GATHER_SECONDS),)),
    ],
    "fabric's status is written, by any client": [
        (change_kinds.FabricChange(old=FABRIC, new=REPORTED), (Due(Job.STATUS, "f", jobs.COUNTS_SECONDS),)),
        (change_kinds.FabricChange(old=HELD, new=FABRIC), ()),
    ],
    "attachment: device": [
        (make_attachment_change(None, ATTACHMENT), (KEY,)),
        (make_attachment_change(ATTACHMENT, None), (KEY,)),
    ],
    "attachment: members of its composite": [
        (make_attachment_change(ATTACHMENT, ATTACHED), ()),
        (make_attachment_change(None, MEMBER), (names.DeviceKey(fabric="f", device="e"),)),
    ],
    "attachment goes where a composite may be waiting for its device": [
        (make_attachment_change(ATTACHMENT, None), ()),
        (make_attachment_change(None, ATTACHMENT, has_composites=True), ()),
        (
            make_attachment_change(ATTACHMENT, None, has_composites=True),
            (Due(Job.PUBLISH, "f", jobs.GATHER_SECONDS),),
        ),
    ],
    "device is erased as often as a day allows": [
        (make_attachment_change(ATTACHED, None), ()),
        (make_attachment_change(ATTACHED, None, is_worn=True), (Due(Job.PUBLISH, "f", jobs.GATHER_SECONDS),)),
    ],
    "attachment: classic": [(make_attachment_change(ATTACHMENT, ATTACHED), (classic.ROUND,))],
    "attachment: observers": [
        (make_attachment_change(ATTACHMENT, ATTACHED), ()),
        (make_attachment_change(ATTACHMENT, ATTACHED, observers=("ns/o",)), (Due(Job.ADMIN, "ns/o"),)),
    ],
    "attachment: counts": [
        (make_attachment_change(ATTACHMENT, ATTACHED), (Due(Job.STATUS, "f", jobs.COUNTS_SECONDS),))
    ],
    "attachment gone: finalizer of its fabric": [
        (make_attachment_change(ATTACHMENT, ATTACHED), ()),
        (make_attachment_change(ATTACHED, None), (Due(Job.FINALIZER, "f", SOON),)),
    ],
    "attachment comes or goes where models are limited": [
        (make_attachment_change(None, ATTACHMENT), ()),
        (make_attachment_change(None, ATTACHMENT, limits_models=True), (Due(Job.LABELS),)),
        (make_attachment_change(ATTACHMENT, None, limits_models=True), (Due(Job.LABELS),)),
        (make_attachment_change(ATTACHMENT, ATTACHED, limits_models=True), ()),
    ],
    "release begins": [
        (
            make_attachment_change(ATTACHED, attachment(deleting=True)),
            (Due(Job.PUBLISH, "f", attachment_index.RELEASE_SECONDS),),
        ),
        (make_attachment_change(attachment(deleting=True), attachment(deleting=True)), ()),
        (make_attachment_change(None, ATTACHMENT), ()),
    ],
    "release ends that was overdue": [
        (make_attachment_change(ATTACHED, None), ()),
        (make_attachment_change(ATTACHED, None, release_seconds=attachment_index.RELEASE_SECONDS - 1), ()),
        (
            make_attachment_change(ATTACHED, None, release_seconds=attachment_index.RELEASE_SECONDS),
            (Due(Job.PUBLISH, "f", SOON),),
        ),
    ],
    "pair is refused": [
        (
            make_attachment_change(ATTACHMENT, REFUSED),
            (
                Due(Job.LABELS, after=SOON),
                Due(Job.STATUS, "f", SOON),
                Due(Job.PUBLISH, "f", SOON),
            ),
        ),
        (make_attachment_change(ATTACHMENT, REFUSED, served=False), ()),
        (make_attachment_change(REFUSED, REFUSED), ()),
        (make_attachment_change(ATTACHMENT, FAILED), ()),
    ],
    "attachment of a refused pair goes, or works at last": [
        (make_attachment_change(REFUSED, None), (Due(Job.LABELS, after=SOON), Due(Job.PUBLISH, "f", SOON))),
        (
            make_attachment_change(REFUSED, ATTACHED),
            (Due(Job.LABELS, after=SOON), Due(Job.PUBLISH, "f", SOON)),
        ),
        (make_attachment_change(REFUSED, None, served=False), ()),
        (make_attachment_change(REFUSED, REFUSED), ()),
        (make_attachment_change(FAILED, None), ()),
    ],
    "attach fails": [
        (
            make_attachment_change(ATTACHMENT, FAILED),
            (Due(Job.LABELS, after=SOON), Due(Job.STATUS, "f", SOON)),
        ),
        (make_attachment_change(ATTACHMENT, FAILED, served=False), ()),
        (make_attachment_change(ATTACHMENT, REFUSED), ()),
        (make_attachment_change(FAILED, FAILED), ()),
        (make_attachment_change(FAILED, None), ()),
        (make_attachment_change(ATTACHMENT, attachment(error="FabricUnreachable")), ()),
    ],
    "attachment shows in the pool": [
        (make_attachment_change(ATTACHMENT, ATTACHED), ()),
        (make_attachment_change(None, ATTACHMENT), ()),
        (make_attachment_change(None, ATTACHMENT, shows_owner=True), (Due(Job.PUBLISH, "f", SOON),)),
        (make_attachment_change(ATTACHMENT, FAILED), (Due(Job.PUBLISH, "f", SOON),)),
    ],
    "claim: devices": [(make_claim_change(claim(), devices=(KEY,)), (KEY,)), (make_claim_change(None), ())],
    "claim begins or ends to keep a composite from changing": [
        (make_claim_change(claim(), devices=(KEY,)), ()),
        (
            make_claim_change(claim(), devices=(KEY,), regrouped=(KEY,)),
            (Due(Job.PUBLISH, "f", jobs.GATHER_SECONDS),),
        ),
    ],
    "claim of a device that moved to another pool": [
        (make_claim_change(claim(), devices=(KEY,)), ()),
        (make_claim_change(claim(), devices=(KEY,), moved=(KEY,)), (Due(Job.PUBLISH, "f"),)),
    ],
    "claim with admin access": [
        (make_claim_change(claim()), ()),
        (make_claim_change(claim(admin=True), observes=True), (Due(Job.ADMIN, "ns/c"),)),
        (make_claim_change(None), ()),
    ],
    "maintenance: its status": [
        (change_kinds.MaintenanceChange(old=None, new=WORK), (Due(Job.MAINTENANCE, "work"),)),
        (change_kinds.MaintenanceChange(old=WORK, new=WORK), (Due(Job.MAINTENANCE, "work"),)),
        (change_kinds.MaintenanceChange(old=WORK, new=None), ()),
    ],
    "maintenance begins or ends": [
        (change_kinds.MaintenanceChange(old=None, new=WORK), MAINTAINED),
        (change_kinds.MaintenanceChange(old=WORK, new=None), MAINTAINED),
        (change_kinds.MaintenanceChange(old=WORK, new=MORE_WORK), MAINTAINED),
        (change_kinds.MaintenanceChange(old=WORK, new=WORK), ()),
    ],
    "node is mapped to another host": [
        (change_kinds.NodeChange(old=None, new=NODE), (Due(Job.LABELS, after=SOON),)),
        (change_kinds.NodeChange(old=NODE, new=LABELLED), (Due(Job.LABELS, after=SOON),)),
        (change_kinds.NodeChange(old=NODE, new=NODE), ()),
        (change_kinds.NodeChange(old=NODE, new=None), (Due(Job.LABELS, after=SOON),)),
    ],
    "node lost or found: its devices": [
        (change_kinds.NodeChange(old=NODE, new=LABELLED, attached=(KEY,)), ()),
        (change_kinds.NodeChange(old=None, new=NODE, attached=(KEY,)), ()),
        (change_kinds.NodeChange(old=NODE, new=None, attached=(KEY,)), (KEY,)),
        (change_kinds.NodeChange(old=NODE, new=OFF, attached=(KEY,)), (KEY,)),
    ],
    "node lost or found: classic": [
        (change_kinds.NodeChange(old=NODE, new=LABELLED), ()),
        (change_kinds.NodeChange(old=NODE, new=None), (classic.ROUND,)),
    ],
    "node lost or found: immediate": [
        (change_kinds.NodeChange(old=NODE, new=LABELLED), ()),
        (change_kinds.NodeChange(old=NODE, new=OFF), (immediate.LookAgain(),)),
    ],
    "node daemon": [(change_kinds.DaemonChange(), (Due(Job.LABELS, after=SOON),))],
    "slice of a fabric": [
        (change_kinds.SliceChange(old=None, new=make_slice("f")), (Due(Job.PUBLISH, "f", SOON),)),
        (change_kinds.SliceChange(old=make_slice("f"), new=None), (Due(Job.PUBLISH, "f"),)),
        (change_kinds.SliceChange(old=None, new=make_slice("f", node="n")), ()),
    ],
    "slice of a pool whose nodes have a label for it": [
        (
            change_kinds.SliceChange(old=None, new=make_slice("f/reach.a-12345678")),
            (Due(Job.LABELS, after=SOON),),
        ),
        (
            change_kinds.SliceChange(old=None, new=make_slice("f/e/refused.12345678")),
            (Due(Job.LABELS, after=SOON),),
        ),
        (change_kinds.SliceChange(old=None, new=make_slice("f/e")), ()),
        (change_kinds.SliceChange(old=make_slice("f/reach.a-12345678"), new=None), ()),
        (change_kinds.SliceChange(old=None, new=make_slice("f/reach.a", node="n")), ()),
    ],
    "device in other reachability groups": [
        (make_device_change(None, GROUPED), (Due(Job.LABELS, after=SOON),)),
        (make_device_change(GPU, GROUPED), (Due(Job.LABELS, after=SOON),)),
        (make_device_change(GROUPED, GPU), (Due(Job.LABELS, after=SOON),)),
        (make_device_change(GROUPED, None), (Due(Job.LABELS, after=SOON),)),
        (make_device_change(None, GPU), ()),
        (make_device_change(GROUPED, GROUPED), ()),
    ],
    "device": [
        (make_device_change(None, GPU), (KEY,)),
        (make_device_change(GPU, None), (KEY,)),
    ],
    "device: classic": [(make_device_change(GPU, None), (classic.ROUND,))],
    "device shows in the pool": [
        (make_device_change(None, GPU, attached=True), (Due(Job.PUBLISH, "f", SOON),)),
        (make_device_change(GPU, None), (Due(Job.PUBLISH, "f", SOON),)),
        (make_device_change(GPU, OTHER_MODEL, attached=True), (Due(Job.PUBLISH, "f", SOON),)),
        (make_device_change(GPU, USED), (Due(Job.PUBLISH, "f", SOON),)),
        (make_device_change(GPU, USED, attached=True), ()),
        (make_device_change(GPU, GPU), ()),
    ],
    "hosts": [(change_kinds.HostsChange(), (Due(Job.LABELS, after=SOON),))],
    "connection: jobs of the fabric": [
        (
            change_kinds.ConnectionChange(fabric="f", publish_after=3.0, devices=(KEY,)),
            (Due(Job.STATUS, "f"), Due(Job.LABELS), Due(Job.PUBLISH, "f", 3.0)),
        )
    ],
    "connection: devices": [
        (change_kinds.ConnectionChange(fabric="f", publish_after=3.0, devices=(KEY,)), (KEY,))
    ],
    "troubles": [(change_kinds.TroublesChange(fabric="f"), (Due(Job.STATUS, "f", SOON),))],
    "operation": [(change_kinds.OperationChange(devices=(KEY,)), (KEY,))],
    "supply: classic": [
        (jobs.JobDone(job=Job.PUBLISH), (classic.ROUND,)),
        (jobs.JobDone(job=Job.LABELS), (classic.ROUND,)),
        (jobs.JobDone(job=Job.STATUS), ()),
        (jobs.JobDone(job=Job.FINALIZER), ()),
        (jobs.JobDone(job=Job.ADMIN), ()),
    ],
    "supply: immediate": [
        (jobs.JobDone(job=Job.PUBLISH), (immediate.LookAgain(),)),
        (jobs.JobDone(job=Job.STATUS), ()),
    ],
    "claim asks for immediate allocation, or no longer": [
        (make_claim_change(claim()), ()),
        (make_claim_change(AT_ONCE), (immediate.ImmediateRequest("ns", "c", AT_ONCE.metadata.uid),)),
        (make_claim_change(None, old=AT_ONCE), (immediate.ImmediateRequest("ns", "c"),)),
        (make_claim_change(claim(), old=AT_ONCE), (immediate.ImmediateRequest("ns", "c"),)),
    ],
    "slice withdraws devices": [
        (change_kinds.SliceChange(old=None, new=make_slice("f", devices="d")), ()),
        (
            change_kinds.SliceChange(old=make_slice("f", devices="de"), new=make_slice("f", devices="e")),
            WITHDRAWN,
        ),
        (change_kinds.SliceChange(old=make_slice("f", devices="d"), new=None), WITHDRAWN),
        (change_kinds.SliceChange(old=make_slice("f", node="n", devices="d"), new=None), ()),
    ],
    "term: devices": [(TERM, (KEY,))],
    "term: maintenances and observers": [(TERM, (Due(Job.MAINTENANCE, "work"), Due(Job.ADMIN, "ns/o")))],
    "term: session": [(change_kinds.SessionChange(fabric="f"), BEGUN)],
    "fabric can be read": [
        (change_kinds.ReadableChange(fabric="f"), BEGUN),
        (change_kinds.ReadableChange(devices=(KEY,)), ()),
    ],
    "object can be read: devices": [(change_kinds.ReadableChange(devices=(KEY,)), (KEY,))],
    "fabric gone: its devices": [
        (change_kinds.FabricChange(old=FABRIC, new=None, unserved=(KEY,)), (KEY,)),
        (change_kinds.FabricChange(old=None, new=FABRIC), ()),
    ],
}
TABLES = {
    "devices": executor.WATCHES,
    "jobs": jobs.WATCHES,
    "classic": classic.ClassicAllocation.watches,
    "immediate": immediate.ImmediateAllocation.watches,
}
ROWS = [row for table in TABLES.values() for row in table]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_change_maps_to_the_keys_that_its_row_names(row):
    for change, keys in CASES[row.name]:
        assert isinstance(change, row.on)
        assert (tuple(row.keys(change)) if row.when(change) else ()) == keys, change


def test_a_change_wakes_all_reconcilers_that_watch_it_for_each_key_once():
    woken = []
    dispatcher = watching.Dispatcher(
        *(
            watching.Reconciler(table, lambda key, name=name: woken.append((name, key)))
            for name, table in TABLES.items()
        )
    )
    dispatcher.tell(make_attachment_change(MEMBER, None, has_composites=True, is_worn=True))
    assert woken == [
        ("devices", KEY),
        ("devices", names.DeviceKey(fabric="f", device="e")),
        ("jobs", Due(Job.STATUS, "f", jobs.COUNTS_SECONDS)),
        ("jobs", Due(Job.FINALIZER, "f", SOON)),
        ("jobs", Due(Job.PUBLISH, "f", SOON)),
        ("classic", classic.ROUND),
    ]


def test_every_kind_of_change_is_watched_and_every_row_has_a_name_of_its_own():
    kinds = {kind for name, kind in vars(change_kinds).items() if name.endswith("Change")}
    assert {row.on for row in ROWS} == kinds | {jobs.JobDone}
    assert [row.name for row in ROWS] == list(dict.fromkeys(row.name for row in ROWS))
    assert {row.name for row in ROWS} == CASES.keys()


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
    assert make_attachment_change(ATTACHMENT, new).works is works
