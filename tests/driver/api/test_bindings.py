"""What a writer applies to a claim's status."""

import msgspec
import pytest

from drawbar.driver.api import bindings, claims, meta

DRIVER = "drawbar.dev"
THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
VISIBLE, NODE_FAILED = f"{DRIVER}/visible", f"{DRIVER}/node-failed"
KEY = bindings.Key(pool="p", device="d1")
OTHER = bindings.Key(pool="p", device="d2")


def condition(kind, status="True", reason="Old", message="old", since=THEN):
    return meta.Condition(
        type=kind, status=status, reason=reason, message=message, last_transition_time=since
    )


def device_status(device, *conditions, driver=DRIVER):
    return claims.AllocatedDevice(driver=driver, pool="p", device=device, conditions=conditions)


def make_result(device, driver=DRIVER, **more):
    return claims.AllocationResult(request="r", driver=driver, pool="p", device=device, **more)


def claim(*results, devices=()):
    return claims.ResourceClaim(
        metadata=meta.ObjectMeta(name="c", namespace="ns", uid="u", resource_version="7"),
        status=claims.ClaimStatus(
            allocation=claims.Allocation(
                devices=claims.DeviceAllocation(results=results or (make_result("d1"),)),
                allocation_timestamp=THEN,
            ),
            devices=devices,
        ),
    )


STATEMENT = bindings.Statement(condition=bindings.VISIBLE, status=True, reason="New", message="new")


def build_apply_body(claim, statements=None, own=bindings.NODE_CONDITIONS):
    return bindings.build_apply(
        claim,
        DRIVER,
        own=own,
        statements={KEY: STATEMENT} if statements is None else statements,
        now=NOW,
    )


def conditions_by_device(body):
    """Return the applied conditions by device, as (type, status, reason, since)."""
    return {
        entry["device"]: [
            (condition["type"], condition["status"], condition["reason"], condition["lastTransitionTime"])
            for condition in entry["conditions"]
        ]
        for entry in body["status"]["devices"]
    }


FRESH = (VISIBLE, "True", "New", NOW)

CASES = {
    "the-first-word": (claim(), {"d1": [FRESH]}),
    "the-same-status-keeps-its-time": (
        claim(devices=(device_status("d1", condition(VISIBLE)),)),
        {"d1": [(VISIBLE, "True", "New", THEN)]},
    ),
    "another-status-has-a-new-time": (
        claim(devices=(device_status("d1", condition(VISIBLE, "False")),)),
        {"d1": [FRESH]},
    ),
    "a-status-without-a-time-gets-one": (
        claim(devices=(device_status("d1", condition(VISIBLE, since=None)),)),
        {"d1": [FRESH]},
    ),
    "conditions-of-this-device-are-kept": (
        claim(devices=(device_status("d1", condition(NODE_FAILED, "False")),)),
        {"d1": [(NODE_FAILED, "False", "Old", THEN), FRESH]},
    ),
    "conditions-of-another-device-are-kept": (
        claim(make_result("d1"), make_result("d2"), devices=(device_status("d2", condition(VISIBLE)),)),
        {"d1": [FRESH], "d2": [(VISIBLE, "True", "Old", THEN)]},
    ),
    "a-device-without-conditions-is-left-out": (claim(make_result("d1"), make_result("d2")), {"d1": [FRESH]}),
    "conditions-of-the-other-writer-are-left-to-it": (
        claim(devices=(device_status("d1", condition(f"{DRIVER}/attached"), condition("Ready")),)),
        {"d1": [FRESH]},
    ),
    "devices-of-other-drivers-are-left-to-them": (
        claim(
            make_result("d1"),
            make_result("d1", driver="other.dev"),
            devices=(device_status("d1", condition(VISIBLE, "False"), driver="other.dev"),),
        ),
        {"d1": [FRESH]},
    ),
    "admin-access-is-left-out": (
        claim(
            make_result("d1"),
            make_result("d2", admin_access=True),
            devices=(device_status("d2", condition(VISIBLE, "False")),),
        ),
        {"d1": [FRESH]},
    ),
    "a-device-that-is-no-longer-allocated-is-left-out": (
        claim(devices=(device_status("d9", condition(VISIBLE)),)),
        {"d1": [FRESH]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_apply_carries_all_that_its_writer_states_and_nothing_else(case):
    claim, expected = CASES[case]
    assert conditions_by_device(build_apply_body(claim)) == expected


SAME = condition(VISIBLE, reason="New", message="new")
SILENT = {
    "reported-already": (claim(devices=(device_status("d1", SAME),)), None),
    "nothing-to-say": (claim(devices=(device_status("d1", condition(NODE_FAILED)),)), {}),
    "about-a-device-that-is-not-allocated": (claim(make_result("d2")), None),
    "about-another-driver's-device": (claim(make_result("d1", driver="other.dev")), None),
    "about-admin-access": (claim(make_result("d1", admin_access=True)), None),
    "not-allocated": (claims.ResourceClaim(metadata=meta.ObjectMeta(name="c")), None),
}


@pytest.mark.parametrize("case", SILENT)
def test_unchanged_statements_are_not_written(case):
    claim, statements = SILENT[case]
    assert build_apply_body(claim, statements) is None


@pytest.mark.parametrize(
    "change",
    [{"status": False}, {"reason": "Other"}, {"message": "other"}, {"condition": bindings.NODE_FAILED}],
    ids=lambda change: next(iter(change)),
)
def test_every_difference_is_written(change):
    statement = msgspec.structs.replace(STATEMENT, **change)
    assert build_apply_body(claim(devices=(device_status("d1", SAME),)), {KEY: statement}) is not None


def test_the_write_is_guarded_by_the_view_it_was_decided_on():
    body = build_apply_body(claim())
    assert body["metadata"] == {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    assert (body["apiVersion"], body["kind"]) == ("resource.k8s.io/v1", "ResourceClaim")


def test_a_share_is_named_with_its_id_and_a_whole_device_without():
    share = msgspec.structs.replace(KEY, share_id="s1")
    body = build_apply_body(
        claim(make_result("d1", share_id="s1"), make_result("d2")), {share: STATEMENT, OTHER: STATEMENT}
    )
    assert [entry.get("shareID") for entry in body["status"]["devices"]] == ["s1", None]
    assert "shareID" not in body["status"]["devices"][1]


def test_the_body_can_be_sent_as_it_is():
    assert msgspec.json.decode(msgspec.json.encode(build_apply_body(claim()))) == build_apply_body(claim())


@pytest.mark.parametrize(
    ("uid", "since", "expected"),
    [
        pytest.param("u", THEN, True, id="the-same"),
        pytest.param("x", THEN, False, id="another-claim-of-that-name"),
        pytest.param("u", NOW, False, id="another-allocation"),
        pytest.param("u", None, False, id="no-timestamp-known"),
    ],
)
def test_a_claim_is_current_only_under_the_same_allocation(uid, since, expected):
    assert bindings.is_current(claim(), uid=uid, allocation_timestamp=since) is expected


def test_a_claim_without_an_allocation_is_not_current():
    unallocated = claims.ResourceClaim(metadata=meta.ObjectMeta(name="c", uid="u"))
    assert not bindings.is_current(unallocated, uid="u", allocation_timestamp=None)


def test_a_statement_counts_if_its_condition_is_true_for_the_device():
    written = claim(
        devices=(device_status("d1", condition(VISIBLE)), device_status("d2", condition(VISIBLE, "False")))
    )
    assert bindings.is_true(written, DRIVER, KEY, bindings.VISIBLE)
    assert not bindings.is_true(written, DRIVER, OTHER, bindings.VISIBLE)
    assert not bindings.is_true(written, DRIVER, KEY, bindings.ATTACHED)
    assert not bindings.is_true(written, "other.dev", KEY, bindings.VISIBLE)


def test_each_condition_has_one_writer_and_all_of_them_are_published():
    own = (*bindings.CONTROLLER_CONDITIONS, *bindings.NODE_CONDITIONS)
    published = (*bindings.binding_conditions(DRIVER), *bindings.failure_conditions(DRIVER))
    assert sorted(bindings.condition_type(DRIVER, condition) for condition in own) == sorted(published)
    assert len(set(published)) == 4


def test_a_patch_has_the_conditions_of_an_apply_and_leaves_the_rest_as_it_is():
    fresh = {"type": VISIBLE, "status": "True", "reason": "New", "message": "new", "lastTransitionTime": NOW}
    entries = [
        {"driver": DRIVER, "pool": "p", "device": device, "conditions": [fresh]} for device in ("d1", "d2")
    ]
    body = bindings.document(claim(make_result("d1"), make_result("d2")), entries)
    guard = [
        {"op": "replace", "path": "/metadata/uid", "value": "u"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
    ]
    assert bindings.operations(claim(), body) == [
        *guard,
        {"op": "add", "path": "/status/devices", "value": entries},
    ]
    other = device_status("d1", condition("b/other"), driver="b")
    current = claim(
        devices=(other, device_status("d1", condition(VISIBLE, "False"), condition(f"{DRIVER}/attached")))
    )
    attached = {
        "type": f"{DRIVER}/attached",
        "status": "True",
        "reason": "Old",
        "message": "old",
        "lastTransitionTime": THEN,
    }
    assert bindings.operations(current, body) == [
        *guard,
        {"op": "add", "path": "/status/devices/1/conditions", "value": [attached, fresh]},
        {"op": "add", "path": "/status/devices/-", "value": entries[1]},
    ]


def test_a_patch_of_an_interface_leaves_the_conditions_as_they_are():
    interface = {"interfaceName": "net0"}
    body = bindings.document(
        claim(make_result("d1")), [{"driver": DRIVER, "pool": "p", "device": "d1", "networkData": interface}]
    )
    _, _, *rest = bindings.operations(claim(devices=(device_status("d1", condition(VISIBLE)),)), body)
    assert rest == [{"op": "add", "path": "/status/devices/0/networkData", "value": interface}]


def test_of_two_shares_of_a_device_each_has_its_own_conditions():
    shares = [msgspec.structs.replace(KEY, share_id=share_id) for share_id in ("s1", "s2")]
    body = build_apply_body(
        claim(make_result("d1", share_id="s1"), make_result("d1", share_id="s2")), {shares[1]: STATEMENT}
    )
    assert [entry["shareID"] for entry in body["status"]["devices"]] == ["s2"]
