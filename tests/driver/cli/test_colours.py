"""Status, the page and explain agree on what is bad, for any mixture of states."""

import datetime

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scenes import colours

from drawbar.driver.api import attachments, claims, fabrics, slices
from drawbar.driver.cli.status import observed

DRIVER, POOL = "drawbar.dev", "rack-1/e"
STAMP = "2026-01-01T00:00:00Z"
# No wait is too long at that time.
NOW = datetime.datetime(2026, 1, 1, 0, 0, 5, tzinfo=datetime.UTC)
NAMES = ("x", "y", "z")
STATUS = st.sampled_from(["True", "False"])
ALWAYS_GOOD = {"Degraded": "False", "FeaturesDropped": "False"}


def condition(kind, status, reason="Reason", message="a message of its own"):
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": f"{kind} is {status}: {message}",
        "lastTransitionTime": STAMP,
    }


@st.composite
def as_fabric(draw):
    reasons = {
        "Ready": ["Reason", "NoUsableNode", "NoUsableDevice"],
        "Connected": ["Reason", "Pending", "LimitExceeded"],
        "Published": ["Reason", "FieldsDropped", "Refused"],
    }
    kinds = ("Connected", "Degraded", "Published", "Writable", "HostsMapped", "FeaturesDropped", "Ready")
    bad = {kind for kind in kinds if draw(st.sampled_from([False] * 9 + [True]))}
    present = {kind for kind in kinds if draw(st.sampled_from([True] * 9 + [False]))} | bad
    listed = [
        condition(
            kind,
            "True" if (kind in bad) == (kind in ALWAYS_GOOD) else "False",
            draw(st.sampled_from(reasons.get(kind, ["Reason"]))),
        )
        for kind in sorted(present)
    ]
    deleted = {"deletionTimestamp": STAMP} if draw(st.sampled_from([False] * 9 + [True])) else {}
    document = {
        "metadata": {"name": "rack-1"} | deleted,
        "spec": {"adapter": "redfish", "driver": DRIVER, "endpoint": "https://rack-1.example"},
        "status": {"conditions": listed},
    }
    return msgspec.convert(document, fabrics.Fabric)


TAINT = st.builds(
    lambda key, effect: {"key": key, "effect": effect},
    st.sampled_from(["drawbar.dev/maintenance", "example.com/psu"]),
    st.sampled_from(["NoSchedule", "NoExecute", "None"]),
)


@st.composite
def as_slice(draw):
    devices = [
        {
            "name": name,
            "attributes": {"fabric": {"string": "rack-1"}, "enclosure": {"string": "e"}},
            "taints": draw(st.sampled_from([[], [], [draw(TAINT)]])),
        }
        for name in NAMES
        if draw(st.sampled_from([True] * 9 + [False]))
    ]
    document = {
        "metadata": {"name": "slice"},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": POOL, "generation": 1, "resourceSliceCount": 1},
            "allNodes": True,
            "devices": devices,
        },
    }
    return msgspec.convert(document, slices.ResourceSlice)


@st.composite
def as_attachment(draw, name):
    phase = draw(st.sampled_from(["Pending", "Attached", "Ready", "Idle", "Failed"]))
    conditions = []
    if phase in ("Attached", "Ready", "Idle"):
        conditions.append(condition("Attached", "True", "Attached"))
    if phase in ("Ready", "Idle"):
        conditions.append(condition("Visible", "True", "Visible"))
    health = draw(st.sampled_from(["Healthy", "Unhealthy", ""]))
    status = {"phase": phase, "conditions": conditions}
    if phase == "Failed" and draw(st.booleans()):
        status["error"] = {"reason": "LinkDown", "message": "the link did not come up within 30 s"}
    if health:
        status["node"] = {"health": health, "healthMessage": "the link has 4 of 16 lanes"}
    deleted = {"deletionTimestamp": STAMP} if draw(st.sampled_from([False, False, True])) else {}
    document = {
        "metadata": {"name": f"rack-1.{name}", "creationTimestamp": STAMP} | deleted,
        "spec": {
            "fabric": "rack-1",
            "deviceID": name,
            "driver": DRIVER,
            "pool": POOL,
            "device": name,
            "nodeName": "node-1",
            "hostID": "host-1",
            "identity": {"deviceClass": "gpu"},
            "claim": {"namespace": "n", "name": "c", "uid": "u"},
        },
        "status": status,
    }
    return msgspec.convert(document, attachments.DeviceAttachment)


@st.composite
def as_claim(draw, name):
    deleted = {"deletionTimestamp": STAMP} if draw(st.sampled_from([False, False, True])) else {}
    document = {"metadata": {"name": name, "namespace": "n", "creationTimestamp": STAMP} | deleted}
    return msgspec.convert(document, claims.ResourceClaim)


@st.composite
def as_pod(draw, number):
    names = draw(st.sets(st.sampled_from(["a", "b"])))
    conditions = draw(
        st.sampled_from(
            [[], [condition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available")]]
        )
    )
    document = {
        "metadata": {"name": f"pod-{number}", "namespace": "n"},
        "spec": {"resourceClaims": [{"name": each, "resourceClaimName": each} for each in sorted(names)]},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(document, observed.UnscheduledPod)


@st.composite
def clusters(draw):
    return observed.Cluster(
        driver=DRIVER,
        fabrics=(draw(st.sampled_from([True] * 9 + [False])) and (draw(as_fabric()),)) or (),
        slices=(draw(as_slice()),),
        attachments=tuple(draw(as_attachment(name)) for name in NAMES if draw(st.booleans())),
        claims=tuple(draw(as_claim(name)) for name in ("a", "b")),
        pods=tuple(draw(as_pod(number)) for number in range(draw(st.integers(0, 2)))),
        unlisted=draw(st.sampled_from([frozenset(), frozenset({"pods"}), frozenset({"fabrics"})])),
    )


@settings(max_examples=300)
@given(clusters())
def test_status_page_and_explain_call_the_same_objects_bad(cluster):
    colours.check(cluster, NOW)
