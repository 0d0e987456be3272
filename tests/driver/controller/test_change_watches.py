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


def attached(old, new, **facts):
    return change_kinds.AttachmentChange(old=old, new=new, key=KEY, **facts)


def claim(*, admin=None):
    return claim_scenes.make_allocated_claim("d", pool="f", admin_access=admin)


def given(new, **facts):
    return change_kinds.ClaimChange(new=new, **facts)


NODE = core.Node(metadata=meta.ObjectMeta(name="n"))
LABELLED = core.Node(metadata=meta.ObjectMeta(name="n", labels={"a": "b"}))
OFF = msgspec.structs.replace(NODE, spec=core.NodeSpec(taints=(core.Taint(key=core.OUT_OF_SERVICE),)))


def published(fabric, node=None, devices=""):
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


def listed(old, new, **facts):
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
            (Due(Job.PUBLISH, "f", jobs.GATHER_SECONDS),),
        ),
    ],
    "device is erased as often as a day allows": [
        (attached(ATTACHED, None), ()),
        (attached(ATTACHED, None, is_worn=True), (Due(Job.PUBLISH, "f", jobs.GATHER_SECONDS),)),
    ],
    "attachment: classic": [(attached(ATTACHMENT, ATTACHED), (classic.ROUND,))],
    "attachment: observers": [
        (attached(ATTACHMENT, ATTACHED), ()),
        (attached(ATTACHMENT, ATTACHED, observers=("ns/o",)), (Due(Job.ADMIN, "ns/o"),)),
    ],
    "attachment: counts": [(attached(ATTACHMENT, ATTACHED), (Due(Job.STATUS, "f", jobs.COUNTS_SECONDS),))],
    "attachment gone: finalizer of its fabric": [
        (attached(ATTACHMENT, ATTACHED), ()),
        (attached(ATTACHED, None), (Due(Job.FINALIZER, "f", SOON),)),
    ],
    "attachment comes or goes where models are limited": [
        (attached(None, ATTACHMENT), ()),
        (attached(None, ATTACHMENT, limits_models=True), (Due(Job.LABELS),)),
        (attached(ATTACHMENT, None, limits_models=True), (Due(Job.LABELS),)),
        (attached(ATTACHMENT, ATTACHED, limits_models=True), ()),
    ],
    "release begins": [
        (
            attached(ATTACHED, attachment(deleting=True)),
            (Due(Job.PUBLISH, "f", attachment_index.RELEASE_SECONDS),),
        ),
        (attached(attachment(deleting=True), attachment(deleting=True)), ()),
        (attached(None, ATTACHMENT), ()),
    ],
    "release ends that was overdue": [
        (attached(ATTACHED, None), ()),
        (attached(ATTACHED, None, release_seconds=attachment_index.RELEASE_SECONDS - 1), ()),
        (
            attached(ATTACHED, None, release_seconds=attachment_index.RELEASE_SECONDS),
            (Due(Job.PUBLISH, "f", SOON),),
        ),
    ],
    "pair is refused": [
        (
            attached(ATTACHMENT, REFUSED),
            (
                Due(Job.LABELS, after=SOON),
                Due(Job.STATUS, "f", SOON),
                Due(Job.PUBLISH, "f", SOON),
            ),
        ),
        (attached(ATTACHMENT, REFUSED, served=False), ()),
        (attached(REFUSED, REFUSED), ()),
        (attached(ATTACHMENT, FAILED), ()),
    ],
    "attachment of a refused pair goes, or works at last": [
        (attached(REFUSED, None), (Due(Job.LABELS, after=SOON), Due(Job.PUBLISH, "f", SOON))),
        (attached(REFUSED, ATTACHED), (Due(Job.LABELS, after=SOON), Due(Job.PUBLISH, "f", SOON))),
        (attached(REFUSED, None, served=False), ()),
        (attached(REFUSED, REFUSED), ()),
        (attached(FAILED, None), ()),
    ],
    "attach fails": [
        (attached(ATTACHMENT, FAILED), (Due(Job.LABELS, after=SOON), Due(Job.STATUS, "f", SOON))),
        (attached(ATTACHMENT, FAILED, served=False), ()),
        (attached(ATTACHMENT, REFUSED), ()),
        (attached(FAILED, FAILED), ()),
        (attached(FAILED, None), ()),
        (attached(ATTACHMENT, attachment(error="FabricUnreachable")), ()),
    ],
    "attachment shows in the pool": [
        (attached(ATTACHMENT, ATTACHED), ()),
        (attached(None, ATTACHMENT), ()),
        (attached(None, ATTACHMENT, shows_owner=True), (Due(Job.PUBLISH, "f", SOON),)),
        (attached(ATTACHMENT, FAILED), (Due(Job.PUBLISH, "f", SOON),)),
    ],
    "claim: devices": [(given(claim(), devices=(KEY,)), (KEY,)), (given(None), ())],
    "claim begins or ends to keep a composite from changing": [
        (given(claim(), devices=(KEY,)), ()),
        (
            given(claim(), devices=(KEY,), regrouped=(KEY,)),
            (Due(Job.PUBLISH, "f", jobs.GATHER_SECONDS),),
        ),
    ],
    "claim of a device that moved to another pool": [
        (given(claim(), devices=(KEY,)), ()),
        (given(claim(), devices=(KEY,), moved=(KEY,)), (Due(Job.PUBLISH, "f"),)),
    ],
    "claim with admin access": [
        (given(claim()), ()),
        (given(claim(admin=True), observes=True), (Due(Job.ADMIN, "ns/c"),)),
        (given(None), ()),
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
        (change_kinds.SliceChange(old=None, new=published("f")), (Due(Job.PUBLISH, "f", SOON),)),
        (change_kinds.SliceChange(old=published("f"), new=None), (Due(Job.PUBLISH, "f"),)),
        (change_kinds.SliceChange(old=None, new=published("f", node="n")), ()),
    ],
    "slice of a pool whose nodes have a label for it": [
        (
            change_kinds.SliceChange(old=None, new=published("f/reach.a-12345678")),
            (Due(Job.LABELS, after=SOON),),
        ),
        (
            change_kinds.SliceChange(old=None, new=published("f/e/refused.12345678")),
            (Due(Job.LABELS, after=SOON),),
        ),
        (change_kinds.SliceChange(old=None, new=published("f/e")), ()),
        (change_kinds.SliceChange(old=published("f/reach.a-12345678"), new=None), ()),
        (change_kinds.SliceChange(old=None, new=published("f/reach.a", node="n")), ()),
    ],
    "device in other reachability groups": [
        (listed(None, GROUPED), (Due(Job.LABELS, after=SOON),)),
        (listed(GPU, GROUPED), (Due(Job.LABELS, after=SOON),)),
        (listed(GROUPED, GPU), (Due(Job.LABELS, after=SOON),)),
        (listed(GROUPED, None), (Due(Job.LABELS, after=SOON),)),
        (listed(None, GPU), ()),
        (listed(GROUPED, GROUPED), ()),
    ],
    "device": [
        (listed(None, GPU), (KEY,)),
        (listed(GPU, None), (KEY,)),
    ],
    "device: classic": [(listed(GPU, None), (classic.ROUND,))],
    "device shows in the pool": [
        (listed(None, GPU, attached=True), (Due(Job.PUBLISH, "f", SOON),)),
        (listed(GPU, None), (Due(Job.PUBLISH, "f", SOON),)),
        (listed(GPU, OTHER_MODEL, attached=True), (Due(Job.PUBLISH, "f", SOON),)),
        (listed(GPU, USED), (Due(Job.PUBLISH, "f", SOON),)),
        (listed(GPU, USED, attached=True), ()),
        (listed(GPU, GPU), ()),
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
        (given(claim()), ()),
        (given(AT_ONCE), (immediate.ImmediateRequest("ns", "c", AT_ONCE.metadata.uid),)),
        (given(None, old=AT_ONCE), (immediate.ImmediateRequest("ns", "c"),)),
        (given(claim(), old=AT_ONCE), (immediate.ImmediateRequest("ns", "c"),)),
    ],
    "slice withdraws devices": [
        (change_kinds.SliceChange(old=None, new=published("f", devices="d")), ()),
        (
            change_kinds.SliceChange(old=published("f", devices="de"), new=published("f", devices="e")),
            WITHDRAWN,
        ),
        (change_kinds.SliceChange(old=published("f", devices="d"), new=None), WITHDRAWN),
        (change_kinds.SliceChange(old=published("f", node="n", devices="d"), new=None), ()),
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
        assert tuple(row.map(change)) == keys, change


def test_a_change_wakes_all_reconcilers_that_watch_it_for_each_key_once():
    woken = []
    dispatcher = watching.Dispatcher(
        *(
            watching.Reconciler(table, lambda key, name=name: woken.append((name, key)))
            for name, table in TABLES.items()
        )
    )
    dispatcher.tell(attached(MEMBER, None, has_composites=True, is_worn=True))
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
    assert attached(ATTACHMENT, new).works is works
