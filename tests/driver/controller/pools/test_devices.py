"""What claims select fabric devices by, from the fabric manager's listing to the scheduler's choice."""

import asyncio

import pytest

from drawbar.driver.api import slices
from drawbar.driver.controller.offers import group
from drawbar.driver.controller.pools import devices
from drawbar.driver.kube import config, kinds
from drawbar.fabric import attributes, contract
from drawbar.mocks import scheduler

OWN = 'device.attributes["drawbar.dev"]'
VENDOR = 'device.attributes["example.com"]'
CAPABLE = f"has({OWN}.computeCapability) && {OWN}.computeCapability"
MEMORY = 'device.capacity["drawbar.dev"].memory'
# Each differs from the first in one thing, and is the only one that its selector fits.
USUAL = {
    "class": "gpu",
    "computeCapability": "9.0",
    "memoryBytes": 80 << 30,
    "maxLinkSpeedMTs": 32_000,
    "maxLinkWidth": 16,
}
OTHERS = {
    "newer": ({"computeCapability": "10"}, f'{CAPABLE}.isGreaterThan(semver("9.0.0"))'),
    "older": ({"computeCapability": "8.9.1"}, f'{CAPABLE}.compareTo(semver("9.0.0")) < 0'),
    "larger": ({"memoryBytes": 141 << 30}, f'{MEMORY}.isGreaterThan(quantity("80Gi"))'),
    "smaller": ({"memoryBytes": 40 << 30}, f'{MEMORY}.compareTo(quantity("80Gi")) < 0'),
    "slower": ({"maxLinkSpeedMTs": 16_000}, f"{OWN}.maxLinkSpeedMTs < 32000"),
    "narrower": ({"maxLinkWidth": 8}, f"{OWN}.maxLinkWidth == 8"),
    "nvlink": (
        {"attributes": {"example.com/nvlinkDomain": 7, "example.com/rack": "r7"}},
        f'has({VENDOR}.nvlinkDomain) && {VENDOR}.nvlinkDomain == 7 && {VENDOR}.rack == "r7"',
    ),
    "fast-nic": (
        {"attributes": {"example.com/firmware": {"version": "24.1.0"}, "example.com/rdma": True}},
        f'has({VENDOR}.rdma) && {VENDOR}.rdma && {VENDOR}.firmware.isGreaterThan(semver("9.0.0"))',
    ),
    "unknown": ({"computeCapability": ""}, f"!has({OWN}.computeCapability)"),
}


def attributes_of(**fields):
    listed = contract.Device(id="d", device_class=contract.DeviceClass.GPU, **fields)
    return devices.build_device("drawbar.dev", "f", listed, ()).attributes


@pytest.mark.parametrize(
    ("capability", "version"),
    [
        ("9.0", "9.0.0"),
        ("10", "10.0.0"),
        ("8.9.1", "8.9.1"),
        ("", None),
        ("sm_90", None),
        ("09.0", None),
        ("9.0.0.0", None),
        ("9.0 ", None),
        ("9" * 10, None),
    ],
)
def test_a_compute_capability_becomes_a_whole_version_or_is_left_out(capability, version):
    attribute = attributes_of(compute_capability=capability).get("computeCapability")
    assert attribute == (None if version is None else slices.Attribute(version=version))


def test_a_link_is_published_as_a_node_publishes_its_own_and_left_out_where_it_is_not_known():
    published = attributes_of(max_link_speed_mts=32_000, max_link_width=16)
    assert published["maxLinkSpeedMTs"] == slices.Attribute(int_=32_000)
    assert published["maxLinkWidth"] == slices.Attribute(int_=16)
    assert not {"maxLinkSpeedMTs", "maxLinkWidth"} & attributes_of().keys()


def test_a_switch_is_published_for_claims_that_match_it_and_left_out_where_it_is_not_known():
    assert attributes_of(switch="chassis-1:sw-0")["switch"] == slices.Attribute(string="chassis-1:sw-0")
    assert "switch" not in attributes_of()


def test_a_text_is_measured_in_bytes_as_the_api_server_measures_it():
    assert attributes_of(model="é" * 32)["model"] == slices.Attribute(string="é" * 32)
    assert "model" not in attributes_of(model="é" * 33)


def describe_fabric():
    every = {"usual": USUAL} | {name: USUAL | changes for name, (changes, _) in OTHERS.items()}
    return {
        "hosts": [{"id": "host-1", "name": "node-1", "ports": len(every)}],
        "enclosures": [
            {"id": "enc-1", "devices": [{"id": name, **fields} for name, fields in every.items()]}
        ],
    }


async def device_class(cluster, name, *expressions):
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    await cluster.create(kinds.DEVICE_CLASS, name, spec={"selectors": selectors})


async def pod_with(cluster, name, device_class, **request):
    await cluster.claim(name, device_class, **request)
    await cluster.pod(name, name)


async def list_allocated(api):
    """Return by claim the names of the devices that it was given."""
    listing = await api.list_all(kinds.CLAIM, into=dict, namespace="default")
    return {
        claim["metadata"]["name"]: [result["device"] for result in allocation["devices"]["results"]]
        for claim in listing.items
        if (allocation := (claim.get("status") or {}).get("allocation"))
    }


@pytest.mark.parametrize("profile", ["1.36", "1.37", "kep-5055"])
async def test_claims_and_classes_select_devices_by_capability_memory_and_link(
    controller_world, until, profile
):
    async with controller_world(profile, **describe_fabric()) as cluster, asyncio.timeout(120):
        connection = config.from_kubeconfig(cluster.path / "admin")
        await device_class(cluster, "any", f'{OWN}["class"] == "gpu"')
        cluster.start()
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        # No kubelet is there to say that the node is ready.
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        await cluster.set_status(kinds.NODE, "node-1", ready)
        for name, (_, expression) in OTHERS.items():
            # By the class as well as by the request.
            await device_class(cluster, f"{name}-gpu", f'{OWN}["class"] == "gpu"', expression)
            await pod_with(cluster, f"class-{name}", f"{name}-gpu")
        async with scheduler.serving(connection, scheduler.Settings(backoff_first_seconds=0.05)):
            expected = {f"class-{name}": [name] for name in OTHERS}
            await until(lambda: list_allocated(cluster.api), lambda value: len(value) == len(expected))
            assert await list_allocated(cluster.api) == expected
            # Only the usual one is left, and the request's own selector decides whether it fits.
            too_much = f'{MEMORY}.isGreaterThan(quantity("80Gi"))'
            fits = f'{CAPABLE}.major() == 9 && {MEMORY}.compareTo(quantity("80Gi")) == 0'
            for name, expression in (("greedy", too_much), ("modest", fits)):
                selectors = [{"cel": {"expression": expression}}]
                await pod_with(cluster, name, "any", selectors=selectors)
            await until(lambda: list_allocated(cluster.api), lambda value: "modest" in value)
            assert await list_allocated(cluster.api) == expected | {"modest": ["usual"]}


def make_adapter_attributes(count, domain="example.com"):
    return attributes.collect((f"{domain}/a{number:02}", number) for number in range(count)).kept


def test_attributes_of_the_adapter_stand_in_its_domain_and_leave_the_driver_its_own():
    kept = (*make_adapter_attributes(1), *make_adapter_attributes(1, "gpu.example.com"))
    listed = contract.Device(id="d", device_class=contract.DeviceClass.GPU, attributes=kept)
    ours = devices.build_device("drawbar.dev", "f", listed).attributes
    assert ours.keys() - {"class", "fabric", "deviceID"} == {"example.com/a00", "gpu.example.com/a00"}
    # A name without a domain is in that of the driver, so this would be a second one.
    theirs = devices.build_device("gpu.example.com", "f", listed).attributes
    assert theirs.keys() - {"class", "fabric", "deviceID"} == {"example.com/a00"}


def test_a_device_never_has_more_than_the_api_server_takes():
    kept = make_adapter_attributes(attributes.ATTRIBUTES_MAX)
    full = contract.Device(
        id="d",
        device_class=contract.DeviceClass.GPU,
        model="m",
        vendor="v",
        pci_vendor_id=1,
        pci_device_id=2,
        serial="s",
        enclosure="e",
        switch="sw",
        memory_bytes=1,
        compute_capability="9.0",
        max_link_speed_mts=1,
        max_link_width=1,
        attributes=kept,
    )
    alone = devices.build_device("drawbar.dev", "f", full)
    assert len(alone.attributes) + len(alone.capacity) <= 32
    assert {each.name for each in kept} <= alone.attributes.keys()
    members = tuple(f"m{number}" for number in range(group.MOST_MEMBERS))
    together = devices.build_device("drawbar.dev", "f", full, name="all", members=members)
    assert len(together.attributes) + len(together.capacity) == 32
    assert "member15" in together.attributes


def test_a_composite_has_the_attributes_in_which_all_members_agree():
    first, second = make_adapter_attributes(3), make_adapter_attributes(2)
    device = contract.Device(id="a", device_class=contract.DeviceClass.GPU, attributes=first)
    other = contract.Device(id="b", device_class=contract.DeviceClass.GPU, attributes=second)
    assert group.compose("pair", [device, other]).attributes == second
