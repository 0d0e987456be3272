"""The part of a manager that a Fabric offers: the selection, and the controller with one or two Fabrics on one manager."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenes.pools import NOW, device, make_fabric_state, publish_slices

from drawbar.driver.api import fabrics
from drawbar.driver.controller import names
from drawbar.driver.controller.offers import selection
from drawbar.driver.controller.pools import desired
from drawbar.driver.kube import kinds
from drawbar.fabric import contract

ELSEWHERE = contract.Connection(host_id="host-of-others")
GPUS = tuple(device(f"g{number}", model="H100") for number in range(4))


def of_class(device_id, device_class, **changes):
    return contract.Device(id=device_id, device_class=device_class, enclosure="z", **changes)


DISKS = tuple(of_class(f"d{number}", contract.DeviceClass.NVME, model="PM1743") for number in range(2))
POOL = of_class("pool", contract.DeviceClass.CXL_MEMORY, carving=contract.Carving(free_bytes=1, is_pool=True))
PART = of_class("part", contract.DeviceClass.CXL_MEMORY, slice_of=contract.Slice(origin_id="pool"))
ALL = (*GPUS, *DISKS, POOL, PART)


def list_offered(offer, *devices, **situation):
    beyond = selection.not_offered(fabrics.Offer(**offer), devices or ALL, **situation)
    return [each.id for each in devices or ALL if names.label(each.id) not in beyond]


@pytest.mark.parametrize(
    ("offer", "expected"),
    [
        pytest.param({}, [each.id for each in ALL], id="everything"),
        pytest.param({"enclosures": ("e",)}, ["g0", "g1", "g2", "g3"], id="enclosure"),
        pytest.param({"models": ("PM1743", "none")}, ["d0", "d1"], id="model"),
        pytest.param(
            {"classes": ("nvme", "gpu"), "enclosures": ("z",)}, ["d0", "d1"], id="class and enclosure"
        ),
        pytest.param({"devices": ("g3", "d0", "nowhere")}, ["g3", "d0"], id="ids"),
        pytest.param({"devices": ("pool",)}, ["pool", "part"], id="a slice goes with its device"),
        pytest.param({"max_per_model": 1}, ["g0", "d0", "pool", "part"], id="number"),
        pytest.param({"max_per_model": 0}, [], id="none"),
        pytest.param({"models": ("H100",), "max_per_model": 2}, ["g0", "g1"], id="number of a model"),
    ],
)
def test_a_device_is_offered_that_meets_every_field(offer, expected):
    assert list_offered(offer) == expected


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        pytest.param({}, ["g0", "g1"], id="first by name"),
        pytest.param({"held": {"g3"}}, ["g0", "g3"], id="what a claim has goes first"),
        pytest.param({"published": {"g2": "H100", "g3": "H100"}}, ["g2", "g3"], id="what is published stays"),
        pytest.param(
            {"held": {"g1"}, "published": {"g2": "H100", "g3": "H100"}},
            ["g1", "g2"],
            id="claims before slices",
        ),
        pytest.param({"held": {"g0", "g1", "g3"}}, ["g0", "g1"], id="more are held than offered"),
        pytest.param(
            {"published": {"gone": "H100", "g3": "H100"}, "missing": {"gone"}},
            ["g3"],
            id="a device missing in one listing keeps its room",
        ),
        pytest.param(
            {"published": {"gone": "H100", "g3": "H100"}}, ["g0", "g3"], id="what is lost makes room"
        ),
        pytest.param({"missing": {"gone"}}, ["g0", "g1"], id="what was never published has no room"),
    ],
)
def test_of_a_number_those_stay_that_are_held_or_published(situation, expected):
    assert list_offered({"max_per_model": 2}, *GPUS, **situation) == expected


def test_devices_of_another_cluster_do_not_count_towards_the_offer():
    used = (device("g0", model="H100", connection=ELSEWHERE), *GPUS[1:])
    assert list_offered({"max_per_model": 2}, *used) == ["g1", "g2"]
    assert list_offered({"max_per_model": 2}, *used, held={"g0"}) == ["g0", "g1"]


MODELS = st.sampled_from(["A", "B", ""])
FLEETS = st.dictionaries(st.sampled_from([f"x{number}" for number in range(12)]), MODELS, max_size=12)


@given(
    FLEETS, st.integers(0, 4), st.sets(st.sampled_from([f"x{number}" for number in range(12)])), st.randoms()
)
def test_a_number_is_never_exceeded_and_no_order_matters(fleet, most, held, dice):
    devices = [device(device_id, model=model) for device_id, model in fleet.items()]
    offer = fabrics.Offer(max_per_model=most)
    first = selection.not_offered(offer, devices, held=held)
    dice.shuffle(devices)
    assert selection.not_offered(offer, devices, held=held) == first
    for model in set(fleet.values()):
        alike = {device_id for device_id, each in fleet.items() if each == model}
        inside = alike - first
        assert len(inside) == min(most, len(alike))
        assert inside >= alike & held or inside <= held


@given(FLEETS, FLEETS, st.integers(0, 4))
def test_arrivals_and_departures_displace_no_offered_device(before, after, most):
    offer = fabrics.Offer(max_per_model=most)

    def choose_devices(fleet, shown):
        devices = [device(device_id, model=model) for device_id, model in fleet.items()]
        beyond = selection.not_offered(offer, devices, published=shown)
        return {each.id: each.model or "gpu" for each in devices if each.id not in beyond}

    shown = choose_devices(before, {})
    after = {device_id: before.get(device_id, model) for device_id, model in after.items()}
    assert choose_devices(after, shown).keys() >= shown.keys() & after.keys()


def test_a_device_beyond_the_offer_is_published_only_for_the_claim_that_has_it():
    a, b = device("a"), device("b")
    shown = publish_slices(a, b)
    shrunk = {"not_offered": frozenset({"b"}), "published": shown}
    (withdrawn,) = desired.plan(make_fabric_state(a, **shrunk), NOW)
    assert [each.name for each in withdrawn.slice.spec.devices] == ["a"]
    (marked,) = desired.plan(make_fabric_state(a, b, ours={"b"}, **shrunk), NOW)
    taints = {each.name: [taint.key for taint in each.taints] for each in marked.slice.spec.devices}
    assert taints == {"a": [], "b": ["drawbar.dev/not-offered"]}


# --- the controller ---

SECOND = names.label("GPU/1")


async def read_taints(cluster, fabric):
    slices = await cluster.list(kinds.SLICE)
    of_fabric = [each["spec"] for each in slices if each["spec"]["pool"]["name"].startswith(f"{fabric}/")]
    return {
        listed["name"]: [taint["key"].partition("/")[2] for taint in listed.get("taints", ())]
        for spec in of_fabric
        for listed in spec["devices"]
    }


async def test_two_fabrics_share_a_manager_by_disjoint_offers(controller_world, until):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric(offer={"devices": ["gpu-0"]})
        await cluster.make_fabric("other", offer={"devices": ["disk-0"]})
        await until(lambda: read_taints(cluster, "fab"), lambda devices: devices == {"gpu-0": []})
        await until(lambda: read_taints(cluster, "other"), lambda devices: devices == {"disk-0": []})
        await cluster.allocate("gpu-0")
        await cluster.allocate("disk-0", name="c2", pod="pod-2", pool="other/enc-1")
        await cluster.wait_until_attached("gpu-0")
        await cluster.wait_until_attached("disk-0", "c2")
        assert await read_taints(cluster, "fab") == {"gpu-0": []}
        assert await read_taints(cluster, "other") == {"disk-0": []}
        fabric = await cluster.api.read(kinds.FABRIC, "fab", into=dict)
        status = fabric["status"]
        assert status["notOffered"] == status["devices"] - 1
        message = (await cluster.fabric_condition("Published"))["message"]
        assert (
            message == f"1 devices are offered to the scheduler, {status['notOffered']} are beyond spec.offer"
        )
        assert (await cluster.fabric_condition("Degraded"))["status"] == "False"
        await cluster.stop()


async def test_a_claim_keeps_its_device_when_the_offer_shrinks_until_it_lets_go(controller_world, until):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric()
        await until(lambda: read_taints(cluster, "fab"), lambda devices: "gpu-0" in devices)
        await cluster.allocate("gpu-0")
        await cluster.wait_until_attached("gpu-0")
        await cluster.patch(kinds.FABRIC, "fab", {"spec": {"offer": {"devices": ["disk-0"]}}})
        await until(
            lambda: read_taints(cluster, "fab"),
            lambda devices: devices == {"gpu-0": ["not-offered"], "disk-0": []},
        )
        assert list(await cluster.attachments()) == ["fab.gpu-0"]
        await cluster.deallocate()
        await cluster.release_attachments("fab.gpu-0")
        await until(lambda: read_taints(cluster, "fab"), lambda devices: devices == {"disk-0": []})
        await cluster.stop()


async def test_of_a_number_the_claims_devices_count_first(controller_world, until):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric()
        await until(lambda: read_taints(cluster, "fab"), lambda devices: SECOND in devices)
        await cluster.allocate(SECOND)
        await cluster.wait_until_attached(SECOND)
        await cluster.patch(kinds.FABRIC, "fab", {"spec": {"offer": {"classes": ["gpu"], "maxPerModel": 1}}})
        await until(lambda: read_taints(cluster, "fab"), lambda devices: devices == {SECOND: []})
        await cluster.stop()


async def test_a_composite_of_a_device_beyond_the_offer_is_not_offered_and_says_so(controller_world, until):
    async with controller_world() as cluster:
        cluster.start()
        pair = [{"name": "pair", "devices": ["disk-0", "gpu-0"]}]
        await cluster.make_fabric(offer={"classes": ["gpu"]}, composites=pair)
        await until(lambda: read_taints(cluster, "fab"), lambda devices: devices == {SECOND: []})
        degraded = await cluster.condition("Degraded", status="True")
        assert "composite pair is not offered: the fabric has no device disk-0" in degraded["message"]
        await cluster.stop()
