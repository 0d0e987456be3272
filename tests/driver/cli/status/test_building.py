"""The tree of what was read, for each state of a device and for anything that objects may hold."""

import datetime
import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import console

from drawbar.driver.api import attachments, claims, fabrics, leftout, meta, slices
from drawbar.driver.catalogue import attachment_conditions, reasons
from drawbar.driver.cli.status import building, document, faults, observed, tree, views

DRIVER = "drawbar.dev"
STAMP, LATER = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
NOW = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.UTC)
SOON = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SPEC = attachments.AttachmentSpec(
    fabric="rack",
    device_id="g1",
    driver=DRIVER,
    pool="rack/enc",
    device="gpu-1",
    node_name="n1",
    host_id="h1",
    identity=attachments.Identity(device_class="gpu", serial="S1"),
    claim=attachments.ClaimReference(namespace="a", name="c", uid="u"),
)


def condition(name, status="True", message="", at=LATER, reason="R"):
    return meta.Condition(type=name, status=status, message=message, reason=reason, last_transition_time=at)


def attachment(phase=attachments.PENDING, *conditions, deleted=None, error=None, started="", **spec):
    operation = attachments.OperationRecord(request_id="r", started_at=started) if started else None
    return attachments.DeviceAttachment(
        metadata=meta.ObjectMeta(name="rack.gpu-1", creation_timestamp=STAMP, deletion_timestamp=deleted),
        spec=msgspec.structs.replace(SPEC, **spec),
        status=attachments.AttachmentStatus(
            phase=phase, conditions=conditions, error=error, operation=operation
        ),
    )


def claim(
    name="c",
    *,
    pool="rack/enc",
    device="gpu-1",
    pods=("p",),
    conditions=(),
    awaited=("drawbar.dev/attached",),
):
    allocated = claims.AllocationResult(
        request="r",
        driver=DRIVER,
        pool=pool,
        device=device,
        binding_conditions=awaited,
        binding_failure_conditions=("drawbar.dev/attach-failed",),
    )
    return claims.ResourceClaim(
        metadata=meta.ObjectMeta(name=name, namespace="a", creation_timestamp=STAMP),
        status=claims.ClaimStatus(
            allocation=claims.Allocation(
                devices=claims.DeviceAllocation(results=(allocated,)),
                node_selector=claims.one_node("n1"),
                allocation_timestamp=LATER,
            ),
            reserved_for=tuple(claims.Consumer(resource="pods", name=pod) for pod in pods),
            devices=(claims.AllocatedDevice(driver=DRIVER, pool=pool, device=device, conditions=conditions),),
        ),
    )


def make_slice(*names, pool="rack/enc", generation=1, fabric="rack", node=None, taints=()):
    attributes = {"class": "gpu", "model": "A100"} | (
        {"fabric": fabric, "enclosure": "enc"} if fabric else {}
    )
    return slices.ResourceSlice(
        metadata=meta.ObjectMeta(name=pool),
        spec=slices.SliceSpec(
            driver=DRIVER,
            pool=slices.Pool(name=pool, generation=generation, resource_slice_count=1),
            node_name=node,
            devices=tuple(
                slices.Device(
                    name=name,
                    attributes={key: slices.Attribute(string=text) for key, text in attributes.items()},
                )
                for name in names
            ),
            taints=taints,
        ),
    )


def build(**read):
    return building.build(observed.Cluster(driver=DRIVER, **read))


ATTACHED, VISIBLE, RELEASED, DETACHED = "Attached", "Visible", "Released", "Detached"
STATES = {
    "begun": (attachment(started=LATER), "Pending", LATER, "the fabric manager, to attach the device"),
    "not begun": (attachment(), "Pending", STAMP, "the fabric manager, to attach the device"),
    "attached": (
        attachment("Attached", condition(ATTACHED)),
        "Attached",
        LATER,
        "the node, to see the device",
    ),
    "not seen": (
        attachment("Attached", condition(ATTACHED), condition(VISIBLE, "False", "no link")),
        "Attached",
        LATER,
        "the node: no link",
    ),
    "ready": (attachment("Ready", condition(VISIBLE)), "Ready", LATER, ""),
    "by hand": (attachment("Ready", condition(VISIBLE), claim=None), "Held", LATER, ""),
    "lost before the controller knows": (
        attachment("Ready", condition(ATTACHED), condition(VISIBLE, "False", "the link is down")),
        "Attached",
        LATER,
        "the node: the link is down",
    ),
    "idle": (attachment("Idle", claim=None, idle_since=LATER), "Idle", LATER, ""),
    "failed": (
        attachment(
            "Failed", condition(ATTACHED, "False"), error=attachments.Failure(reason="R", message="refused")
        ),
        "Failed",
        LATER,
        "refused",
    ),
    "releasing": (
        attachment("Ready", deleted=LATER),
        "Releasing",
        LATER,
        "the node, to release the device",
    ),
    "in use": (
        attachment("Ready", condition(RELEASED, "False", "mounted at /x"), deleted=LATER),
        "Releasing",
        LATER,
        "mounted at /x",
    ),
    "released": (
        attachment("Released", condition(RELEASED), deleted=STAMP),
        "Released",
        LATER,
        "the fabric manager, to detach the device",
    ),
}


@pytest.mark.parametrize(("held", "state", "since", "waits_for"), STATES.values(), ids=STATES)
def test_an_attached_device_shows_its_step_and_its_wait(held, state, since, waits_for):
    (device,) = build(attachments=(held,)).devices
    assert (device.state, device.since, device.waits_for) == (state, since, waits_for)
    assert (device.node, device.serial, device.device_class) == ("n1", "S1", "gpu")
    assert not device.published


def test_a_device_without_an_attachment_is_free_or_waits_for_the_controller():
    free, allocated = build(slices=(make_slice("gpu-0", "gpu-1"),), claims=(claim(),)).devices
    assert (free.state, free.since, free.node) == ("Free", "", "")
    assert (allocated.state, allocated.since) == ("Allocated", LATER)
    assert allocated.waits_for == "the controller, to begin the attach"
    assert (allocated.node, allocated.claims[0].pods) == ("n1", ("p",))
    begun = meta.moment(LATER)
    assert not tuple(faults.list_problems(allocated, begun + datetime.timedelta(seconds=59)))
    (problem,) = faults.list_problems(allocated, begun + datetime.timedelta(seconds=61))
    assert (problem.severity, problem.remedy) == ("warning", faults.LEADER)


@pytest.mark.parametrize(
    ("conditions", "state", "waits_for"),
    [((), "Allocated", "its conditions"), ((condition("drawbar.dev/attached"),), "InUse", "")],
)
def test_without_attachments_the_claims_conditions_tell_the_state(conditions, state, waits_for):
    shown = build(
        slices=(make_slice("gpu-1"),),
        claims=(claim(conditions=conditions),),
        unlisted=frozenset({"deviceattachments"}),
    )
    (device,) = shown.devices
    assert (device.state, device.waits_for) == (state, waits_for)
    assert not tuple(faults.list_problems(device, NOW)), "the controller is not to blame"


@pytest.mark.parametrize(
    ("conditions", "state", "waits_for"),
    [
        ((), "Allocated", "the node, to make the device ready"),
        ((condition("drawbar.dev/visible"),), "InUse", ""),
    ],
    ids=["not ready", "ready"],
)
def test_a_device_of_a_node_is_in_use_by_its_claim_once_it_is_ready(conditions, state, waits_for):
    holder = claim(pool="n1", device="d", conditions=conditions, awaited=("drawbar.dev/visible",))
    shown = build(slices=(make_slice("d", pool="n1", fabric="", node="n1"),), claims=(holder,))
    assert shown.fabrics == ()
    (local,) = shown.local
    assert (local.node, local.devices[0].state) == ("n1", state)
    assert local.devices[0].waits_for == waits_for


def test_a_device_of_a_node_without_conditions_is_in_use_at_once():
    holder = claim(pool="n1", device="d", awaited=())
    shown = build(slices=(make_slice("d", pool="n1", fabric="", node="n1"),), claims=(holder,))
    assert shown.local[0].devices[0].state == "InUse"


def test_devices_show_attributes_and_fabrics_count_devices_not_offered():
    published_attributes = {
        "example.com/rack": slices.Attribute(string="r7"),
        "example.com/rdma": slices.Attribute(bool_=False),
        "example.com/v": slices.Attribute(version="1.2.3"),
        "example.com/odd": slices.Attribute(),
        "resource.kubernetes.io/numaNode": slices.Attribute(int_=0),
        "model": slices.Attribute(string="A100"),
    }
    listed = make_slice("gpu-1")
    devices = tuple(
        msgspec.structs.replace(device, attributes=published_attributes) for device in listed.spec.devices
    )
    listed = msgspec.structs.replace(listed, spec=msgspec.structs.replace(listed.spec, devices=devices))
    fabric = fabrics.Fabric(
        metadata=meta.ObjectMeta(name="rack"),
        spec=fabrics.FabricSpec(adapter="a", endpoint="e"),
        status=fabrics.FabricStatus(not_offered=3),
    )
    built = build(slices=(listed,), fabrics=(fabric,))
    (shown,) = [device for device in built.devices if device.name == "gpu-1"]
    assert shown.attributes == {
        "example.com/rack": "r7",
        "example.com/rdma": False,
        "example.com/v": "1.2.3",
    }
    assert [each.not_offered for each in built.fabrics] == [3]
    out = console.Console(file=io.StringIO(), width=200)
    views.show(out, built, now=NOW)
    assert "3 not offered (spec.offer)" in out.file.getvalue()


@pytest.mark.parametrize(
    ("unlisted", "state"), [(frozenset(), "Missing"), (frozenset({"fabrics"}), "Unknown")]
)
def test_an_attachment_of_an_unlisted_fabric_is_shown(unlisted, state):
    shown = build(
        claims=(claim(),),
        attachments=(attachment("Ready", fabric="gone", device="x", pool="gone/e"),),
        unlisted=unlisted,
    )
    assert [(fabric.name, fabric.state) for fabric in shown.fabrics] == [("gone", state), ("rack", state)]


def test_only_the_newest_generation_of_a_pool_counts():
    old, new = make_slice("gpu-old"), make_slice("gpu-new", generation=2)
    assert [device.name for device in build(slices=(new, old)).devices] == ["gpu-new"]


def test_taints_of_a_slice_of_taints_are_those_of_the_device():
    taint = slices.SliceTaint(device="gpu-1", taint=slices.Taint(key="k", value="v", effect="NoSchedule"))
    (device,) = build(slices=(make_slice("gpu-1"), make_slice(taints=(taint,)))).devices
    assert device.taints == (tree.Taint(key="k", value="v", effect="NoSchedule"),)


CLAIMS = {
    "attached": ((condition("drawbar.dev/attached"),), ""),
    "not attached": ((), "drawbar.dev/attached of gpu-1"),
    "failed": (
        (condition("drawbar.dev/attach-failed", message="no port"),),
        "drawbar.dev/attach-failed of gpu-1: no port",
    ),
}


@pytest.mark.parametrize(("conditions", "waits_for"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_waits_for_the_first_condition_that_is_missing(conditions, waits_for):
    (shown,) = build(wanted=(claim(conditions=conditions),)).claims
    assert (shown.state, shown.waits_for) == ("Reserved", waits_for)


BORN = "2026-01-01T00:00:01Z"
FABRICS = {
    "connected": ((condition("Connected"),), None, "Connected", LATER),
    "not connected": ((condition("Connected", "False", "no route"),), None, "R", LATER),
    "new": ((), None, "Pending", ""),
    "not served": (
        (condition("Connected", "Unknown", "none yet", reason="Pending"),),
        None,
        "Pending",
        BORN,
    ),
    "not published": (
        (condition("Degraded", reason="Troubles"), condition("Published", "False"), condition("Connected")),
        None,
        "NotPublished",
        LATER,
    ),
    "degraded": (
        (condition("HostsMapped", "False"), condition("Connected")),
        None,
        "Degraded",
        LATER,
    ),
    "deleted": ((condition("Connected"),), STAMP, "Deleting", STAMP),
}


@pytest.mark.parametrize(("conditions", "deleted", "state", "since"), FABRICS.values(), ids=FABRICS)
def test_a_fabric_shows_whether_it_is_connected(conditions, deleted, state, since):
    fabric = fabrics.Fabric(
        metadata=meta.ObjectMeta(name="rack", creation_timestamp=BORN, deletion_timestamp=deleted),
        spec=fabrics.FabricSpec(adapter="grpc", endpoint="unix:/f"),
        status=fabrics.FabricStatus(conditions=conditions),
    )
    (shown,) = build(fabrics=(fabric,)).fabrics
    assert (shown.state, shown.since) == (state, since)


NAMES = st.text(max_size=8)
KEYS = st.tuples(
    st.sampled_from(("rack/enc", "rack", "n1", "")) | NAMES, st.sampled_from(("gpu-1", "gpu-2")) | NAMES
)


@given(
    listed=st.lists(st.tuples(KEYS, NAMES, st.integers(0, 2))),
    held=st.lists(st.tuples(KEYS, NAMES, NAMES, NAMES)),
    claimed=st.lists(st.tuples(KEYS, NAMES)),
)
def test_each_device_in_use_is_shown_once_for_any_objects(listed, held, claimed):
    cluster = {
        "slices": tuple(
            make_slice(device, pool=pool, fabric=fabric, generation=generation)
            for (pool, device), fabric, generation in listed
        ),
        "attachments": tuple(
            attachment(phase, condition(VISIBLE, message=message, at=stamp), pool=pool, device=device)
            for (pool, device), phase, message, stamp in held
        ),
        "claims": tuple(claim(name, pool=pool, device=device) for (pool, device), name in claimed),
    }
    shown = build(**cluster)
    keys = [(device.pool, device.name) for device in shown.devices]
    assert len(set(keys)) == len(keys)
    assert set(keys) >= {key for key, *_ in held} | {key for key, _ in claimed}
    assert sum(len(device.claims) for device in shown.devices) == len(claimed)
    msgspec.json.encode(shown)
    out = console.Console(file=io.StringIO(), width=40)
    views.show(out, shown, now=NOW, every=True)
    assert all(letter == "\n" or letter.isprintable() for letter in out.file.getvalue())


def test_waiting_devices_come_first_and_others_are_counted():
    held = tuple(
        attachment("Ready" if number else "Failed", condition(VISIBLE), device=f"gpu-{number:03}")
        for number in reversed(range(150))
    )
    shown = build(attachments=held, slices=(make_slice("gpu-free"),))
    out = console.Console(file=io.StringIO(), width=80)
    views.show(out, shown, now=NOW)
    lines = out.file.getvalue().splitlines()
    assert "Devices 151 devices: 149 in use, 1 free, 1 failed" in lines
    assert any(line.startswith("✗ device") and "gpu-000 failed" in line for line in lines)
    [device] = [line for line in lines if "gpu-" in line and "──" in line]
    assert "gpu-000" in device
    assert any("and 149 more: 149 devices: 149 in use; --all shows them" in line for line in lines)


@pytest.mark.parametrize(
    ("since", "shown"),
    [
        ("2026-01-01T02:59:30Z", "30s"),
        (STAMP, "3h"),
        ("2025-12-01T00:00:00Z", "31d"),
        ("soon", "?"),
        (LATER, "2h"),
        ("2026-01-01T00:00:00", "?"),
    ],
)
def test_an_age_is_in_its_largest_unit(since, shown):
    assert views.age(since, NOW) == shown


def member(device, phase, *conditions, deleted=None):
    composite = attachments.Composite(name="duo", devices=("gpu-1", "gpu-2"))
    made = attachment(phase, *conditions, deleted=deleted, device=device, composite=composite)
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, name=f"rack.{device}")
    )


def test_a_composite_is_as_far_as_its_last_member_and_each_member_names_it():
    shown = build(
        slices=(make_slice("duo"),),
        attachments=(
            member("gpu-1", "Ready", condition(ATTACHED), condition(VISIBLE)),
            member("gpu-2", "Attached", condition(ATTACHED)),
        ),
        claims=(claim(device="duo"),),
    )
    duo, first, second = shown.devices
    assert [device.name for device in (duo, first, second)] == ["duo", "gpu-1", "gpu-2"]
    assert (duo.state, duo.waits_for, duo.attachment) == (
        "Attached",
        "the node, to see the device",
        "rack.gpu-2",
    )
    assert [device.composite for device in (duo, first, second)] == ["", "duo", "duo"]
    assert [device.state for device in (first, second)] == ["Ready", "Attached"]
    assert {entry.name for device in (duo, first, second) for entry in device.claims} == {"c"}


def test_a_composite_shows_the_same_member_in_any_order():
    members = [member(device, "Attached", condition(ATTACHED)) for device in ("gpu-1", "gpu-2")]
    for listed in (members, members[::-1]):
        shown = build(slices=(make_slice("duo"),), attachments=tuple(listed))
        assert shown.devices[0].attachment == "rack.gpu-1"


REMEDY = attachment_conditions.RELEASED.find(reasons.IN_USE).advise()


def test_the_next_step_of_a_taint_names_the_attachment_of_the_device():
    taint = slices.Taint(key=f"{DRIVER}/in-use", value="manual", effect="NoSchedule")
    published = make_slice("gpu-1", taints=(slices.SliceTaint(device="gpu-1", taint=taint),))
    held = attachment("Ready", condition(ATTACHED))
    (device,) = build(slices=(published,), attachments=(held,)).devices
    remedy = faults.judge_taint(device, device.taints[0]).remedy
    assert f"kubectl delete deviceattachment {held.metadata.name}" in remedy


FAILED = attachment("Failed", condition(ATTACHED, "False", "no port"), device="gpu-3")


def describe_release(reason, message="pid 7 has it"):
    return condition(RELEASED, "False", message, reason=reason)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((), []),
        ((describe_release(reasons.CLEANING),), []),
        (
            (describe_release(reasons.IN_USE),),
            [("node n1 does not release it (InUse): pid 7 has it", REMEDY)],
        ),
    ],
    ids=["silent", "cleaning", "refused"],
)
def test_a_slow_release_is_a_fault_once_the_node_refuses_it(conditions, expected):
    taint = slices.Taint(key=f"{DRIVER}/in-use", value="releasing", effect="NoSchedule")
    published = make_slice("gpu-1", taints=(slices.SliceTaint(device="gpu-1", taint=taint),))
    shown = build(slices=(published,), attachments=(attachment("Ready", *conditions, deleted=LATER),))
    (device,) = shown.devices
    assert device.taints
    found = [(finding.message.partition(": ")[2], finding.remedy) for finding in faults.list_faults(device)]
    assert found == expected


def test_the_document_has_the_category_and_the_problems_that_the_tables_show():
    taint = slices.Taint(key=f"{DRIVER}/device-lost", effect="NoExecute")
    lost = slices.SliceTaint(device="gpu-1", taint=taint)
    shown = build(slices=(make_slice("gpu-1", "gpu-2", "gpu-3", taints=(lost,)),), attachments=(FAILED,))
    devices = document.describe(shown, NOW)["fabrics"][0]["enclosures"][0]["devices"]
    assert [device["category"] for device in devices] == ["blocked", "free", "failed"]
    printed = [
        (
            views.MARKS[problem["severity"]],
            f"device rack/enc/{device['name']} {problem['message']}",
            problem["remedy"],
        )
        for device in devices
        for problem in device["problems"]
    ]
    assert sorted(printed) == sorted(views.list_troubles(shown, NOW))
    assert len(printed) == 2


REFUSED = reasons.FABRIC_CREDENTIALS_REFUSED


@pytest.mark.parametrize(
    ("held", "step"),
    [
        (attachment("", condition(ATTACHED, "False", "not allowed", reason=REFUSED)), "attached"),
        (
            attachment(
                "Ready",
                condition(RELEASED),
                condition(DETACHED, "False", "not allowed", reason=REFUSED),
                deleted=LATER,
            ),
            "detached",
        ),
    ],
    ids=["attach", "detach"],
)
def test_a_refusal_of_the_manager_is_a_problem_with_its_remedy(held, step):
    shown = build(slices=(make_slice("gpu-1"),), attachments=(held,))
    (problem,) = faults.list_problems(shown.devices[0], SOON)
    assert problem.severity == "warning"
    assert problem.message == (f"is not {step} yet ({REFUSED}): it waits for the fabric manager: not allowed")
    assert problem.remedy == attachment_conditions.find_attached(REFUSED).advise()


@pytest.mark.parametrize(
    ("held", "seconds"),
    [
        (attachment(), 330),
        (attachment("Attached", condition(ATTACHED, at=STAMP)), 90),
        (attachment("Ready", condition(ATTACHED), condition(VISIBLE), deleted=STAMP), 60),
        (attachment("Ready", condition(ATTACHED), condition(VISIBLE)), None),
        (attachment("Failed", error=attachments.Failure(reason="NoFreePort", message="full")), None),
    ],
    ids=["attach", "sight", "release", "ready", "failed"],
)
def test_a_step_that_takes_too_long_is_an_error(held, seconds):
    policy = fabrics.Policy(attach_timeout_seconds=300)
    fabric = fabrics.Fabric(
        metadata=meta.ObjectMeta(name="rack", creation_timestamp=STAMP),
        spec=fabrics.FabricSpec(adapter="grpc", endpoint="unix:/s", driver=DRIVER, policy=policy),
    )
    shown = build(slices=(make_slice("gpu-1"),), attachments=(held,), fabrics=(fabric,))

    def list_overdue(after):
        now = meta.moment(STAMP) + datetime.timedelta(seconds=after)
        found = faults.list_problems(shown.devices[0], now)
        return [problem.severity for problem in found if "for too long: it waits for" in problem.message]

    if seconds is None:
        assert list_overdue(86400) == []
        return
    assert (list_overdue(seconds - 1), list_overdue(seconds + 1)) == ([], ["error"])


def test_a_composite_shows_the_member_whose_release_is_refused():
    members = [
        member("gpu-1", "Ready", deleted=LATER),
        member("gpu-2", "Ready", describe_release(reasons.IN_USE), deleted=LATER),
    ]
    shown = build(slices=(make_slice("duo"),), attachments=tuple(members))
    assert shown.devices[0].attachment == "rack.gpu-2"
    assert shown.devices[0].waits_for == "pid 7 has it"


def own_pool(node, text, pool=None, driver=DRIVER):
    spec = slices.SliceSpec(
        driver=driver,
        node_name=node,
        pool=slices.Pool(name=pool or node, generation=1, resource_slice_count=1),
    )
    metadata = meta.ObjectMeta(name=f"{node}-x", annotations={leftout.ANNOTATION: text})
    return slices.ResourceSlice(metadata=metadata, spec=spec)


def test_a_node_shows_the_devices_that_it_leaves_to_others():
    left = [leftout.LeftOut(device=f"gpu-{number}", why="driver", reason="R\x1b[2J") for number in range(12)]
    listed = (
        own_pool("n1", leftout.encode(left)),
        own_pool("n2", "not ours"),
        own_pool("n3", leftout.encode(left), driver="other.example.com"),
    )
    shown = building.build(observed.Cluster(driver=DRIVER, slices=listed))
    (local,) = shown.local
    assert (local.node, local.devices, len(local.left_out)) == ("n1", (), 12)
    for every, count in ((False, views.LEFT_OUT), (True, 12)):
        out = console.Console(file=io.StringIO(), width=200)
        views.show(out, shown, now=NOW, every=every)
        text = out.file.getvalue()
        assert text.count("left out: gpu-") == count
        assert ("4 more are left out" in text) != every
        assert "\x1b" not in text


@pytest.mark.parametrize(("nodes", "words"), [(("n1",), "of node n1"), (("n1", "n2"), "of 2 more nodes")])
def test_nodes_with_free_devices_only_have_one_line(nodes, words):
    local = tuple(
        tree.Local(node=node, devices=(tree.Device(pool=node, name="gpu-1", node=node, state=tree.FREE),))
        for node in nodes
    )
    out = console.Console(file=io.StringIO(), width=200)
    views.show(out, tree.Tree(fabrics=(), local=local, claims=(), unread=()), now=NOW)
    assert f"own devices {words}  {len(nodes)} device" in out.file.getvalue()


@pytest.mark.parametrize(
    ("key", "changes", "is_named"),
    [
        ("attach-failed", {}, True),
        ("attach-failed", {"state": "Failed"}, False),
        ("node-unhealthy", {"health": "Unhealthy"}, False),
        ("gpu-ecc", {"health": "Unhealthy"}, False),
        ("gpu-ecc", {}, True),
        ("device-lost", {"health": "Unhealthy"}, True),
        ("in-use", {}, False),
        ("maintenance", {}, False),
    ],
)
def test_a_taint_for_a_fault_is_named_unless_state_or_health_names_it(key, changes, is_named):
    taint = tree.Taint(key=f"{DRIVER}/{key}", value="", effect="NoSchedule")
    device = tree.Device(pool="rack/enc", name="gpu-1", taints=(taint,), **changes)
    assert bool(tuple(faults.list_faults(device))) == is_named
    rule = tree.Device(pool="rack/enc", name="gpu-1", taints=(msgspec.structs.replace(taint, rule="psu"),))
    assert not tuple(faults.list_faults(rule)), "an administrator set it"


def test_a_warning_of_the_manager_is_not_called_bad_health():
    taint = tree.Taint(key=f"{DRIVER}/fabric-health", value="warning", effect="None")
    device = tree.Device(pool="rack/enc", name="gpu-1", taints=(taint,))
    (problem,) = faults.list_problems(device, SOON)
    assert problem.severity == "note"
    assert "which reports a warning" in problem.remedy
