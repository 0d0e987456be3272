"""Which cards the slices of other drivers mean, by the attributes that real drivers publish."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.api import otherslices
from drawbar.fabric import witnesses

ADDRESS = "0000:3b:00.0"
UUID = "GPU-9d6d1a2b-3c4d-5e6f-7081-92a3b4c5d6e7"


def make_slice(name="d", generation=1, pool="p", driver="other.example.com", **attributes):
    document = {
        "metadata": {"name": f"{pool}-{generation}"},
        "spec": {
            "driver": driver,
            "nodeName": "node-1",
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": name, "attributes": attributes, "capacity": {"memory": {"value": "1Gi"}}}],
        },
    }
    return msgspec.convert(document, otherslices.Slice)


def read_device(name="d", **attributes):
    (device,) = otherslices.devices([make_slice(name, **attributes)])
    return device


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (ADDRESS, ADDRESS),
        ("00000000:3B:00.0", ADDRESS),
        ("3b:00.0", ADDRESS),
        ("0000:3b:00", ADDRESS),
        ("10001:00:1f.7", "10001:00:1f.7"),
        (" 0000:3b:00.0 ", ADDRESS),
        ("0000:3b:00.8", ""),
        ("0000:3b:20.0", ""),
        ("pci0000:3b", ""),
        ("aa:bb:cc:dd:ee:ff", ""),
        ("0000:3b:00.0\n0000:3c:00.0", ""),
        ("", ""),
        ("0" * 5000, ""),
    ],
)
def test_an_address_is_recognised_in_each_of_its_forms(text, address):
    assert otherslices.address(text) == address


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        pytest.param(
            "gpu-0", {"resource.kubernetes.io/pciBusID": ADDRESS}, id="nvidia-intel-and-the-standard"
        ),
        pytest.param("gpu-0", {"pcieBusID": "00000000:3B:00.0"}, id="nvidia-25"),
        pytest.param("gpu-1-129", {"pciAddr": ADDRESS}, id="amd"),
        pytest.param("0000-3b-00-0-0x56c0", {"pciAddress": ADDRESS}, id="intel-gpu"),
        pytest.param("0000-3b-00-0-0x1020", {"serial": "AM1", "pciRoot": "3a"}, id="gaudi"),
        pytest.param("qatvf-0000-3b-00-0", {"services": "sym"}, id="qat"),
        pytest.param("pci-0000-3b-00-0", {"dra.net/pciAddress": ADDRESS}, id="dranet"),
        pytest.param(
            "0000-3b-00-0", {"sriovnetwork.k8snetworkplumbingwg.io/pciAddress": ADDRESS}, id="sriov-function"
        ),
        pytest.param("x", {"vendor.example.com/bdf": "3b:00.0"}, id="an-unknown-vendor"),
    ],
)
def test_the_address_of_a_device_is_found(name, attributes):
    texts = {key: {"string": text} for key, text in attributes.items()}
    assert read_device(name, **texts).addresses == {ADDRESS}


@pytest.mark.parametrize(
    "attribute", ["parentPciAddr", "sriovnetwork.k8snetworkplumbingwg.io/pfPciAddress"], ids=["amd", "sriov"]
)
def test_the_card_that_a_device_is_a_part_of_counts_for_the_whole_card_alone(attribute):
    device = read_device(**{attribute: {"string": ADDRESS}})
    assert device.addresses == frozenset()
    assert device.is_at({ADDRESS}, whole=True)
    assert not device.is_at({ADDRESS}, whole=False)


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param({"resource.kubernetes.io/pcieRoot": {"string": "pci0000:3a"}}, id="root"),
        pytest.param({"upstreamBridgePciAddress": {"string": ADDRESS}}, id="bridge"),
        pytest.param({"closestNicPciAddress": {"string": ADDRESS}}, id="neighbour"),
        pytest.param({"firmwareTime": {"string": "3b:00.0"}}, id="short-form-of-something-else"),
        pytest.param({"pciAddress": {"int": 3}}, id="a-number"),
        pytest.param({"pciAddress": {"version": "1.2.3"}}, id="a-version"),
    ],
)
def test_an_attribute_about_something_else_is_no_address(attributes):
    device = read_device("gpu-0", **attributes)
    assert (device.addresses, device.parents) == (frozenset(), frozenset())
    assert not device.is_located


def test_a_list_of_addresses_means_each_of_them():
    device = read_device(pciBusIDs={"strings": [ADDRESS, "0000:3c:00.0", "x"]})
    assert device.addresses == {ADDRESS, "0000:3c:00.0"}


def test_a_uuid_is_compared_with_identifiers_of_its_kind_and_a_part_number_never():
    device = read_device(uuid={"string": UUID}, partSerial={"string": "900-21010"})
    same = witnesses.identifier(witnesses.Kind.GPU_UUID, UUID)
    model = witnesses.identifier(witnesses.Kind.PART_NUMBER, "900-21010")
    assert device.has_number([same])
    assert not device.has_number([model])
    assert not device.has_number([witnesses.identifier(witnesses.Kind.BOARD_SERIAL, "1654922006536")])


def test_a_pool_shows_its_newest_generation():
    old, new = make_slice("a", generation=1), make_slice("b", generation=2)
    another = make_slice("c", generation=1, pool="q")
    assert [device.name for device in otherslices.devices([old, new, another])] == ["b", "c"]


@pytest.mark.parametrize(
    ("capacity", "allocatable", "resources"),
    [
        pytest.param(
            {"nvidia.com/gpu": "8", "cpu": "4"}, {"nvidia.com/gpu": "8"}, {"nvidia.com/gpu"}, id="gpu"
        ),
        pytest.param(
            {"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "0"}, {"nvidia.com/gpu"}, id="plugin-restarts"
        ),
        pytest.param({"nvidia.com/gpu": "0"}, {"nvidia.com/gpu": "0"}, set(), id="plugin-is-gone"),
        pytest.param({"hugepages-2Mi": "10", "pods": "110"}, {}, set(), id="own-resources"),
        pytest.param({"x.io/a": "10"}, {}, {"x.io/a"}, id="ten"),
    ],
)
def test_the_resources_of_device_plugins_are_those_with_a_quantity(capacity, allocatable, resources):
    document = {"metadata": {"name": "n"}, "status": {"capacity": capacity, "allocatable": allocatable}}
    assert msgspec.convert(document, otherslices.Node).resources == resources


TEXTS = st.one_of(st.text(max_size=200), st.from_regex(r"[0-9a-fA-F:.]{0,20}", fullmatch=True))


@given(name=TEXTS, attributes=st.dictionaries(TEXTS, st.fixed_dictionaries({"string": TEXTS}), max_size=40))
def test_no_slice_breaks_the_reader_and_every_address_is_one(name, attributes):
    for device in otherslices.devices([make_slice(name, **attributes)]):
        for found_address in device.addresses | device.parents:
            assert otherslices.address(found_address) == found_address
