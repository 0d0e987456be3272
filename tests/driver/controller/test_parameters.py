"""Parameters at the controller: nothing is attached for a claim whose parameters cannot be obeyed."""

import datetime

import msgspec
import pytest
from tests.scenes import attachmentplan as scenes

from drawbar.driver.api import attachments, claims
from drawbar.driver.controller import adminaccess, names, outcomes
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller.attachments import actions, plan

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
KEY = names.DeviceKey(fabric="f", device="d")
INVALID = attachments.Failure(reason="InvalidParameters", message="why")
HEAD = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters"}


def claim(*config, admin=False):
    entries = [
        {"source": source, "opaque": {"driver": "drawbar.dev", "parameters": HEAD | reports}}
        for source, reports in config
    ]
    result = {"request": "r", "driver": "drawbar.dev", "pool": "f/e", "device": "d"}
    result |= {"adminAccess": True} if admin else {}
    node = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    allocation = {
        "devices": {
            "results": [result | {"bindingConditions": ["drawbar.dev/attached"]}],
            "config": entries,
        },
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [node]}]},
        "allocationTimestamp": "2026-01-02T00:00:00Z",
    }
    document = {
        "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
        "status": {"allocation": allocation},
    }
    return msgspec.convert(document, claims.ResourceClaim)


def demand(*config):
    return claim_index.demand(claim(*config), "drawbar.dev", KEY, "h1", claim_index.FirstSeen(allocated=NOW))


def test_a_demand_names_the_memory_mode():
    assert demand(("FromClass", {"memory": {"mode": "system-ram"}})).claim.memory_mode == "system-ram"
    assert demand(("FromClaim", {"memory": {"mode": "system-ram"}})).failure.reason == "InvalidParameters"
    assert demand(("FromClaim", {"deviceFiles": {"user": 5}})).claim.memory_mode == ""


def test_a_demand_names_the_hook_and_the_bitstream_that_make_the_device_ready():
    digest = "ab" * 32
    asked = demand(
        ("FromClass", {"initialise": {"hook": "load", "timeoutSeconds": 1200}}),
        ("FromClaim", {"fpga": {"bitstream": "b.bit", "sha256": digest}}),
    )
    assert asked.claim.initialise == attachments.Initialisation(
        hook="load", timeout_seconds=1200, bitstream="b.bit", sha256=digest
    )
    plain = demand(("FromClass", {"initialise": {"hook": "load"}}))
    assert plain.claim.initialise == attachments.Initialisation(hook="load", timeout_seconds=60)
    assert demand().claim.initialise is None
    alone = demand(
        ("FromClass", {"initialise": {"timeoutSeconds": 300}}),
        ("FromClaim", {"fpga": {"bitstream": "b.gbs", "sha256": digest}}),
    )
    assert alone.failure is None
    assert alone.claim.initialise == attachments.Initialisation(
        hook="", timeout_seconds=300, bitstream="b.gbs", sha256=digest
    )
    cleaned = demand(("FromClass", {"cleanUp": {"hook": "blank", "timeoutSeconds": 5}})).claim
    assert cleaned.clean_up == attachments.Hook(hook="blank", timeout_seconds=5)
    assert (cleaned.initialise, cleaned.drain) == (None, None)
    drained = demand(("FromClass", {"drain": {"hook": "drain"}})).claim
    assert (drained.drain, drained.clean_up) == (attachments.Hook(hook="drain", timeout_seconds=60), None)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ([("FromClaim", {"initialise": {"hook": "x"}})], "initialise.hook is reserved for administrators"),
        ([("FromClass", {"initialise": {"hook": "../x"}})], "write the name of a file without its directory"),
        ([("FromClass", {"initialise": {"hook": "x", "timeoutSeconds": 1801}})], "from 1 to 1800"),
        (
            [("FromClass", {"initialise": {"timeoutSeconds": 5}})],
            "name one in initialise.hook of the class, or",
        ),
        ([("FromClaim", {"cleanUp": {"hook": "x"}})], "cleanUp.hook is reserved for administrators"),
        ([("FromClaim", {"drain": {"hook": "x"}})], "drain.hook is reserved for administrators"),
        ([("FromClass", {"drain": {"timeoutSeconds": 5}})], "name it in drain.hook"),
        ([("FromClass", {"cleanUp": {"timeoutSeconds": 5}})], "name it in cleanUp.hook"),
        ([("FromClaim", {"fpga": {"bitstream": "b"}})], "belong together: give both"),
        ([("FromClaim", {"fpga": {"sha256": "xyz"}})], "64 small hexadecimal digits"),
        (
            [
                ("FromClass", {"initialise": {"hook": "x"}, "fpga": {"bitstream": "b", "sha256": "ab" * 32}}),
                ("FromClaim", {"fpga": {"bitstream": "c"}}),
            ],
            "fpga.bitstream is set by its DeviceClass",
        ),
    ],
)
def test_a_wrong_hook_or_bitstream_is_a_clause(config, words):
    assert words in demand(*config).failure.message


def test_a_demand_names_the_lowest_versions():
    asked = demand(("FromClass", {"minimumVersions": {"driver": "550.54.14", "firmware": "2B4QFXO7"}}))
    assert asked.claim.minimum_versions == attachments.Versions(driver="550.54.14", firmware="2B4QFXO7")
    assert demand().claim.minimum_versions == attachments.Versions()
    words = "write a version as a string"
    assert words in demand(("FromClass", {"minimumVersions": {"driver": 5.15}})).failure.message
    words = "minimumVersions.driver is reserved for administrators"
    assert words in demand(("FromClaim", {"minimumVersions": {"driver": "1"}})).failure.message


def test_a_demand_names_the_virtual_functions():
    asked = demand(
        ("FromClass", {"virtualFunctions": {"groups": [{"count": 2, "vlan": 7}], "offered": True}})
    )
    (group,) = asked.claim.virtual_functions.groups
    assert (group.count, group.vlan, asked.claim.virtual_functions.offered) == (2, 7, True)
    words = "offered needs virtualFunctions.groups: name some"
    assert words in demand(("FromClass", {"virtualFunctions": {"offered": True}})).failure.message
    words = "virtualFunctions.groups is reserved for administrators"
    assert words in demand(("FromClaim", {"virtualFunctions": {"groups": [{"count": 1}]}})).failure.message


def attachment(*, uid="u", deleting=False):
    claim = attachments.ClaimReference(namespace="ns", name="c", uid=uid)
    fields = {"claim": claim, "allocation_timestamp": "2026-01-02T00:00:00Z"}
    return scenes.attachment(deleting=deleting, **fields)


def test_a_demand_has_the_failure_of_the_claims_parameters():
    bad = demand(("FromClaim", {"attachTimeoutSeconds": 5}))
    assert bad.failure.reason == "InvalidParameters"
    assert "attachTimeoutSeconds is reserved for administrators" in bad.failure.message
    assert demand(("FromClaim", {"deviceFiles": {"user": 5}})).failure is None


def test_a_class_decides_how_long_an_attach_may_take():
    assert demand(("FromClass", {"attachTimeoutSeconds": 5})).patience == datetime.timedelta(seconds=5)
    assert demand().patience is None


def test_the_node_reads_a_claim_with_parameters():
    assert demand().claim.devices == 1
    assert demand(("FromClaim", {})).claim.devices == 0


REFUSED = {
    "nothing is attached": {},
    "the fabric is silent": {"present": None},
    "the last claim's device is still attached": {"attachment": attachment(uid="other")},
    "the device is on its way back": {"attachment": attachment(uid="other", deleting=True)},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=list(REFUSED))
def test_the_claim_gets_the_failure_before_anything_else_is_done(changes):
    bad = msgspec.structs.replace(demand(), failure=INVALID)
    assert plan.plan(scenes.make_part_state(demand=bad, **changes), NOW) == (
        actions.ReportFailed(demand=bad, failure=INVALID),
    )


def test_once_it_has_the_failure_the_device_goes_its_way():
    reported = msgspec.structs.replace(demand(), failure=INVALID, failure_reported=True)
    assert plan.plan(scenes.make_part_state(demand=reported), NOW) == ()
    held = scenes.make_part_state(demand=reported, attachment=attachment(uid="other"), host_id="h1")
    assert plan.plan(held, NOW) == (actions.Delete(),)


def test_a_device_attached_for_the_claim_is_left_alone():
    bad = msgspec.structs.replace(demand(), failure=INVALID)
    steps = plan.plan(scenes.make_part_state(demand=bad, attachment=attachment()), NOW)
    assert steps == (actions.QueryOperation(side=outcomes.Side.ATTACH),)


def test_a_claim_with_admin_access_gets_the_failure_too():
    bad = claim(("FromClaim", {"attachTimeoutSeconds": 5}), admin=True)
    key, attached = names.DeviceKey(fabric="f", device="d"), attachment(uid="other")
    body = adminaccess.build_apply(bad, "drawbar.dev", {key: attached}, "2026-01-02T00:00:00Z")
    (condition,) = body["status"]["devices"][0]["conditions"]
    assert (condition["type"], condition["reason"]) == ("drawbar.dev/attach-failed", "InvalidParameters")
    good = claim(("FromClaim", {"deviceFiles": {"user": 5}}), admin=True)
    assert adminaccess.build_apply(good, "drawbar.dev", {key: attached}, "2026-01-02T00:00:00Z") is None
