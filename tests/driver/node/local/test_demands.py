"""What claims ask of a node's own devices, as pure decisions."""

import itertools

import msgspec
import pytest
from tests.scenes import cards

from drawbar.driver.api import attachments, claims, meta
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import demands
from drawbar.driver.node.preparation import readiness

NODE, DRIVER, DEVICE = "node-1", "drawbar.dev", "fpga-0000-65-00-0"
HEAD = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters"}
VISIBLE = f"{DRIVER}/visible"
ADDRESS = "0000:65:00.0"
DIGEST = "0" * 64
BITSTREAM = {"fpga": {"bitstream": "a.bit", "sha256": DIGEST}}


def config(source="FromClass", **reported):
    opaque = claims.OpaqueConfiguration(driver=DRIVER, parameters=HEAD | reported)
    return claims.AllocatedConfiguration(source=source, opaque=opaque)


def claim(*configs, uid="u1", at="T1", **result):
    fields = {"request": "r", "driver": DRIVER, "pool": NODE, "device": DEVICE} | result
    allocation = claims.Allocation(
        devices=claims.DeviceAllocation(results=(claims.AllocationResult(**fields),), config=configs),
        allocation_timestamp=at,
    )
    metadata = meta.ObjectMeta(name="c", namespace="default", uid=uid)
    return claims.ResourceClaim(metadata=metadata, status=claims.ClaimStatus(allocation=allocation))


def list_demands(*configs, **fields):
    return demands.list_demands(claim(*configs, **fields), DRIVER, NODE)


@pytest.mark.parametrize(
    "reported",
    [
        {"initialise": {"hook": "loads"}},
        BITSTREAM,
        {"minimumVersions": {"firmware": "2"}},
        {"virtualFunctions": {"groups": [{"count": 2}]}},
    ],
    ids=["hook", "bitstream", "versions", "virtual functions"],
)
def test_parameters_that_ask_for_work_make_a_demand_with_and_without_binding_conditions(reported):
    (demand,) = list_demands(config(**reported))
    assert (demand.device, demand.needs_work, demand.is_awaited) == (DEVICE, True, False)
    (demand,) = list_demands(config(**reported), binding_conditions=(VISIBLE,))
    assert (demand.needs_work, demand.is_awaited) == (True, True)


@pytest.mark.parametrize(
    "claim",
    [
        claim(),
        claim(config(environment={"A": "1"}, cleanUp={"hook": "wipes"})),
        claim(config(**BITSTREAM), driver="another.example.com"),
        claim(config(**BITSTREAM), pool="node-2"),
        claim(config(**BITSTREAM), pool="fab/enc"),
        claim(config(**BITSTREAM), device="none"),
        claim(config(**BITSTREAM), device="none-1"),
        claim(config(**BITSTREAM), admin_access=True),
        claim(config(**BITSTREAM), share_id="s"),
        claims.ResourceClaim(metadata=meta.ObjectMeta(name="c")),
        None,
    ],
    ids=[
        "nothing asked",
        "what a container gets, and what is done after it",
        "another driver",
        "another node",
        "a fabric's",
        "null device",
        "copy of the null device",
        "admin access",
        "share",
        "not allocated",
        "gone",
    ],
)
def test_the_node_has_nothing_to_do_for_others(claim):
    assert demands.list_demands(claim, DRIVER, NODE) == ()


def test_a_claim_that_asks_nothing_of_a_device_with_binding_conditions_waits_for_the_condition_alone():
    (demand,) = list_demands(binding_conditions=(VISIBLE,))
    assert (demand.needs_work, demand.is_awaited, demand.failure) == (False, True, None)


def test_parameters_that_cannot_be_obeyed_are_a_failure_of_the_claim():
    (demand,) = list_demands(config("FromClaim", initialise={"hook": "x"}), binding_conditions=(VISIBLE,))
    assert demand.failure.reason == "InvalidParameters"


@pytest.mark.parametrize(
    ("configs", "own"),
    [
        ((config(**BITSTREAM),), False),
        ((config(), config("FromClaim", **BITSTREAM)), True),
        ((config("FromClaim", environment={}),), False),
    ],
    ids=["class", "claim", "claim without a bitstream"],
)
def test_it_is_known_who_names_the_bitstream(configs, own):
    (demand,) = list_demands(*configs, binding_conditions=(VISIBLE,))
    assert demand.loads_own is own


def test_the_attachment_of_a_demand_is_attached_and_not_yet_visible():
    (demand,) = list_demands(config(**BITSTREAM))
    value = demands.attachment(demand, None, "b1", serial="S1")
    assert value.spec.is_local
    assert (value.identity.device_class, value.identity.serial) == ("fpga", "S1")
    assert value.holds(attachments.ATTACHED)
    assert not value.holds(attachments.VISIBLE)
    assert not value.is_made_ready
    assert not value.has_traces
    assert value.user == demand.user == ("u1", "T1")


def marks():
    """Return every mark that a device can have, and none."""
    for uid, over, at, boot_id, address in itertools.product(
        ("", "u1", "u2"), (False, True), ("", "T1", "T2"), ("", "b1", "b2"), ("", ADDRESS, "0000:66:00.0")
    ):
        yield demands.Mark(
            pool=NODE,
            device=DEVICE,
            uid=uid,
            over=over,
            allocation_timestamp=at,
            boot_id=boot_id,
            pci_address=address,
        )


READY = demands.Mark(
    pool=NODE, device=DEVICE, uid="u1", allocation_timestamp="T1", boot_id="b1", pci_address=ADDRESS
)


@pytest.mark.parametrize("at", ["T1", None], ids=["read", "by its mark"])
def test_prepare_gets_a_device_only_where_its_mark_is_of_this_allocation_and_this_boot(at):
    (demand,) = list_demands(config(**BITSTREAM))
    use = readiness.Use(claim_uid="u1", allocation_timestamp=at)

    def is_ready(mark):
        value = demands.attachment(demand, mark, "b1")
        card = model.Card(functions=(cards.function(ADDRESS),))
        return readiness.find_missing(value, use, boot_id="b1", card=card) is None

    assert [mark for mark in (None, *marks()) if is_ready(mark)] == [READY]


def test_a_device_is_visible_only_where_it_was_made_ready_for_this_allocation_in_this_boot():
    (demand,) = list_demands(config(**BITSTREAM))
    visible = [
        mark for mark in (None, *marks()) if demands.attachment(demand, mark, "b1").holds(attachments.VISIBLE)
    ]
    moved = [msgspec.structs.replace(READY, pci_address=address) for address in ("", ADDRESS, "0000:66:00.0")]
    assert visible == moved


def test_the_mark_of_a_device_names_its_clean_up_work():
    (demand,) = list_demands(
        config(
            virtualFunctions={"groups": [{"count": 1}]}, cleanUp={"hook": "wipes"}, drain={"hook": "drains"}
        )
    )
    mark = demands.build_mark(demand)
    assert (mark.uid, mark.allocation_timestamp, mark.boot_id) == ("u1", "T1", "")
    assert (mark.clean_up.hook, mark.drain.hook, mark.makes_functions) == ("wipes", "drains", True)
    assert msgspec.json.decode(msgspec.json.encode(mark), type=demands.Mark) == mark


@pytest.mark.parametrize(
    ("mark", "allocation", "same"),
    [
        (("u1", "T1"), ("u1", "T1"), True),
        (("u1", "T1"), ("u1", "T2"), False),
        (("u1", "T1"), ("u2", "T1"), False),
        (("u1", ""), ("u1", "T2"), True),
        (("u1", "T1"), ("u1", ""), True),
        (("u1", "T1"), ("u1", None), True),
        (("u1", "T1"), (None, None), False),
    ],
    ids=itertools.count(),
)
def test_a_mark_is_of_an_allocation_by_claim_and_time_where_both_are_known(mark, allocation, same):
    stored = demands.Mark(pool=NODE, device=DEVICE, uid=mark[0], allocation_timestamp=mark[1])
    assert stored.is_of(*allocation) is same


def test_a_hook_that_treats_a_device_gets_it_by_its_mark():
    card = card_with("S7")
    mark = demands.Mark(pool=NODE, device=DEVICE, namespace="default", name="c", uid="u1")
    value = demands.build_attachment(mark, card)
    assert (value.spec.device, value.spec.claim.name, value.identity.serial) == (DEVICE, "c", "S7")


def card_with(serial):
    return model.Card(functions=(cards.function(serial=serial, dsn=serial),), slot=None)
