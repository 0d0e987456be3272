"""Who else has a device of the node, and from when to when it is left out for that."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenes import cards

from drawbar.driver.api import deviceplugins, leftout, otherslices
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import coexistence, residents
from drawbar.fabric import witnesses
from drawbar.fabric.classes import DeviceClass

ADDRESS, FUNCTION = "0000:3b:00.0", "0000:3b:00.4"
UUID = "9d6d1a2b-3c4d-5e6f-7081-92a3b4c5d6e7"
QUIET = 300.0


def resident(*functions, name="gpu-x"):
    card = model.Card(functions=functions or (cards.function(ADDRESS),))
    return residents.Resident(name=name, card=card, whole=card)


def make_virtual_resident():
    function = cards.function(FUNCTION, DeviceClass.NIC, physical_function=ADDRESS, vendor=0x15B3)
    card = cards.function(ADDRESS, DeviceClass.NIC, vendor=0x15B3)
    whole = model.Card(functions=(card, function))
    return residents.Resident(name="nic-x-vf0", card=model.Card(functions=(function,)), whole=whole)


def device(driver="gpu.nvidia.com", **fields):
    texts = {name: frozenset(value) for name, value in fields.items()}
    return otherslices.OtherDevice(driver=driver, pool="node-1", name="gpu-0", **texts)


def sign(resident_, *offered, resources=(), configured=(), openers=None, incomplete=""):
    seen = coexistence.Components(offered=offered, resources=frozenset(resources), incomplete=incomplete)
    return coexistence.find_sign(resident_, seen, configured, openers)


WHOLE = resident(cards.function(ADDRESS), cards.function("0000:3b:00.1", DeviceClass.OTHER))
N3000 = resident(
    cards.function("0000:b1:00.0", DeviceClass.FPGA, vendor=0x8086),
    cards.function("0000:b2:00.0", DeviceClass.NIC, vendor=0x8086),
)


@pytest.mark.parametrize(
    ("resident_", "offer", "taken"),
    [
        pytest.param(WHOLE, device(addresses={ADDRESS}), True, id="the-card"),
        pytest.param(WHOLE, device(addresses={"0000:3b:00.1"}), True, id="another-function-of-the-card"),
        pytest.param(WHOLE, device(parents={ADDRESS}), True, id="a-partition-of-the-card"),
        pytest.param(WHOLE, device(addresses={"0000:3c:00.0"}), False, id="another-card"),
        pytest.param(make_virtual_resident(), device(addresses={FUNCTION}), True, id="the-virtual-function"),
        pytest.param(make_virtual_resident(), device(addresses={ADDRESS}), True, id="its-physical-function"),
        pytest.param(
            make_virtual_resident(),
            device(addresses={"0000:3b:00.5"}, parents={ADDRESS}),
            False,
            id="its-sibling",
        ),
        pytest.param(N3000, device(addresses={"0000:b2:00.0"}), True, id="the-nic-of-a-card-of-two-classes"),
    ],
)
def test_a_device_that_another_driver_offers_is_found_by_its_address(resident_, offer, taken):
    found_sign = sign(resident_, offer)
    assert (found_sign is not None) == taken
    if taken:
        assert found_sign.why is leftout.Why.DRIVER
        assert "driver gpu.nvidia.com offers it as device gpu-0 of pool node-1" in found_sign.reason


def test_a_device_without_an_address_is_found_by_its_uuid():
    gpu = witnesses.identifier(witnesses.Kind.GPU_UUID, UUID)
    mine = resident(cards.function(ADDRESS, identifiers=(gpu,)))
    assert sign(mine, device(numbers={f"GPU-{UUID.upper()}"})) is not None
    assert sign(mine, device(numbers={"GPU-00000000-1111-2222-3333-444444444444"})) is None


@pytest.mark.parametrize(
    ("driver", "taken"),
    [
        ("gpu.nvidia.com", True),
        ("compute-domain.nvidia.com", False),
        ("gpu.amd.com", False),
        ("dra.cpu", False),
    ],
)
def test_a_driver_of_the_vendor_without_any_address_may_offer_every_card_of_its_kind(driver, taken):
    assert (sign(WHOLE, device(driver)) is not None) == taken


@pytest.mark.parametrize(
    ("resource", "taken"),
    [("nvidia.com/gpu", True), ("nvidia.com/mig-1g.10gb", True), ("amd.com/gpu", False), ("x.io/y", False)],
)
def test_a_device_plugin_of_the_vendor_has_every_card_of_its_kind(resource, taken):
    found_sign = sign(WHOLE, resources=[resource])
    assert (found_sign is not None) == taken
    assert not taken or (found_sign.why is leftout.Why.PLUGIN and resource in found_sign.reason)


def test_the_administrators_rows_decide_and_unknown_resources_are_named():
    rows = (deviceplugins.parse("x.io/y=gpu"), deviceplugins.parse("nvidia.com/gpu=none"))
    assert sign(WHOLE, resources=["x.io/y"], configured=rows) is not None
    assert sign(WHOLE, resources=["nvidia.com/gpu"], configured=rows) is None
    seen = coexistence.Components(resources=frozenset({"x.io/y", "z.io/z", "amd.com/gpu"}))
    assert coexistence.unknown_resources(seen, rows) == ("z.io/z",)


def test_a_process_and_slices_that_were_not_read_count_too():
    assert sign(WHOLE, openers={ADDRESS: "pid 812 (Xorg) has it"}).why is leftout.Why.PROCESS
    assert sign(WHOLE, openers={"0000:3c:00.0": "pid 1"}) is None
    assert sign(WHOLE, incomplete="too many").reason == "too many"


TAKEN = {why: coexistence.Sign(why=why, reason=f"by a {why}") for why in leftout.Why}


@dataclasses.dataclass
class History:
    """One device, over time."""

    memories: dict = dataclasses.field(default_factory=dict)
    is_left_out: bool = False
    decision: coexistence.Decision | None = None

    def look(self, now, why=None):
        """Decide with this sign, or none; return whether the device is left out."""
        signs = {} if why is None else {"x": TAKEN[why]}
        offered = () if self.is_left_out else ("x",)
        self.decision = coexistence.decide(signs, self.memories, offered, now, quiet_seconds=QUIET)
        self.memories = self.decision.memories
        self.is_left_out = "x" in self.decision.left_out
        return self.is_left_out


@pytest.mark.parametrize("why", [leftout.Why.DRIVER, leftout.Why.PLUGIN])
def test_a_device_is_withdrawn_at_once_and_offered_again_after_the_quiet_time(why):
    history = History()
    assert history.look(0.0, why)
    assert history.look(10.0)
    assert "until a moment ago" in history.decision.left_out["x"].reason
    assert history.decision.again_seconds == pytest.approx(QUIET - 10.0)
    assert history.look(299.0)
    assert not history.look(300.0)
    assert history.decision.again_seconds is None
    assert history.memories == {}


def test_a_driver_that_is_updated_again_and_again_never_frees_the_device():
    history = History()
    for number in range(20):
        assert history.look(number * 200.0, leftout.Why.DRIVER)
        assert history.look(number * 200.0 + 100.0)


def test_an_offered_device_is_not_withdrawn_for_a_short_look_at_it():
    history = History()
    assert not history.look(0.0, leftout.Why.PROCESS)
    assert history.decision.again_seconds == coexistence.OPEN_SECONDS
    assert not history.look(20.0, leftout.Why.PROCESS)
    assert not history.look(25.0)
    assert not history.look(40.0, leftout.Why.PROCESS)
    assert history.look(70.0, leftout.Why.PROCESS)
    assert history.look(75.0)
    assert not history.look(101.0)


def test_a_device_that_is_open_is_not_offered_to_begin_with():
    history = History(is_left_out=True)
    assert history.look(0.0, leftout.Why.PROCESS)


def test_of_two_drivers_that_leave_devices_to_each_other_one_offers_the_device_in_the_end():
    histories = [History(is_left_out=False), History(is_left_out=False)]
    quiet = [QUIET, QUIET * 1.1]
    changes = []
    for number in range(200):
        offers = [not history.is_left_out for history in histories]
        for index, history in enumerate(histories):
            signs = {"x": TAKEN[leftout.Why.DRIVER]} if offers[1 - index] else {}
            decision = coexistence.decide(
                signs, history.memories, (), number * 10.0, quiet_seconds=quiet[index]
            )
            before, history.memories = history.is_left_out, decision.memories
            history.is_left_out = "x" in decision.left_out
            if before != history.is_left_out:
                changes.append((number, index))
    assert [history.is_left_out for history in histories] == [False, True]
    assert len(changes) == 3, "both withdraw once, and one comes back"


LOOKS = st.lists(
    st.tuples(st.floats(0.0, 120.0), st.sampled_from([None, *leftout.Why])), min_size=1, max_size=60
)


@given(looks=LOOKS)
def test_no_sequence_of_looks_makes_an_offer_flap(looks):
    history, now, last, since = History(), 0.0, {}, None
    for pause, why in looks:
        now += pause
        before = history.is_left_out
        after = history.look(now, why)
        if why in (leftout.Why.DRIVER, leftout.Why.PLUGIN):
            assert after, "another component offers it"
        since = (since if since is not None else now) if why is leftout.Why.PROCESS else None
        if before and not after:
            assert why is None
            assert now - last.get("strong", -QUIET) >= QUIET
            assert now - last["any"] >= coexistence.OPEN_SECONDS
        if after and not before and why is leftout.Why.PROCESS:
            assert now - since >= coexistence.OPEN_SECONDS, "a short look"
        if why is not None:
            last["any"] = now
            if why is not leftout.Why.PROCESS:
                last["strong"] = now
        assert history.decision.again_seconds is None or history.decision.again_seconds >= 0
        assert len(history.memories) <= 1


def test_memories_are_bounded_and_current_signs_are_not():
    memory = coexistence.Memory(sign=TAKEN[leftout.Why.DRIVER], since=0.0, until=100.0, left_out=True)
    memories = {f"old-{number}": memory for number in range(3 * coexistence.DEVICES_MAX)}
    signs = {f"new-{number}": TAKEN[leftout.Why.DRIVER] for number in range(2000)}
    decision = coexistence.decide(signs, memories, (), 1.0, quiet_seconds=QUIET)
    assert signs.keys() <= decision.left_out.keys()
    assert len(decision.memories) == len(signs) + coexistence.DEVICES_MAX
