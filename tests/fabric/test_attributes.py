"""Attributes of adapters: one that does not fit is dropped alone, with a reason."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric import attributes
from drawbar.fabric.attributes import Version
from drawbar.fabric.grpc import conversion
from drawbar.proto.fabric.v1alpha1 import fabric_pb2 as pb

GOOD = ("example.com/rack", "r7")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("example.com/nvlinkDomain", 7),
        ("a.b/_x", -(1 << 63)),
        ("example.com/" + "n" * 32, (1 << 63) - 1),
        ("example.com/rdma", False),
        ("example.com/rack", "row 3 / r7"),
        ("example.com/rack", "x" * 64),
        ("a" * 59 + ".com/x", "at most"),
        ("example.com/firmware", Version("1.2.3-rc.1+build.7")),
        ("mydrawbar.dev/x", 1),
    ],
)
def test_an_attribute_that_fits_is_kept_as_it_is(name, value):
    collected = attributes.collect([(name, value)])
    assert collected.refused == ()
    (attribute,) = collected.kept
    assert (attribute.name, attribute.value, type(attribute.value)) == (name, value, type(value))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("rack", "r7", "not DOMAIN/NAME"),
        ("", "r7", "not DOMAIN/NAME"),
        ("example/rack", "r7", "not DOMAIN/NAME"),
        ("Example.com/rack", "r7", "not DOMAIN/NAME"),
        ("a" * 60 + ".com/x", "r7", "at most 63"),
        ("example.com/rack\n", "r7", "letters, digits"),
        ("example.com/a/b", "r7", "letters, digits"),
        ("example.com/7rack", "r7", "letters, digits"),
        ("example.com/" + "n" * 33, "r7", "1 to 32"),
        ("example.com/", "r7", "1 to 32"),
        ("drawbar.dev/class", "gpu", "not the adapter's own"),
        ("a.drawbar.dev/class", "gpu", "not the adapter's own"),
        ("resource.kubernetes.io/pcieRoot", "pci0000:00", "not the adapter's own"),
        ("dra.k8s.io/x", "y", "not the adapter's own"),
        ("example.com/rack", "", "1 to 64"),
        ("example.com/rack", "x" * 65, "1 to 64"),
        ("example.com/rack", "\x1b[31m", "printable"),
        ("example.com/rack", "é", "printable"),
        ("example.com/n", 1 << 63, "64 bits"),
        ("example.com/v", Version("1.2"), "semver"),
        ("example.com/v", Version("01.2.3"), "semver"),
        ("example.com/v", Version("1.2.3-" + "9" * 60), "semver"),
        ("example.com/v", None, "no value"),
        ("example.com/v", 1.5, "no value"),
        (*GOOD, "given twice"),
    ],
)
def test_an_attribute_that_does_not_fit_goes_alone_and_says_why(name, value, reason):
    collected = attributes.collect([GOOD, (name, value)])
    assert [attribute.name for attribute in collected.kept] == [GOOD[0]]
    (refused,) = collected.refused
    assert reason in refused
    assert refused.isprintable()
    assert len(refused) < 200


def test_a_flood_of_attributes_is_cut_and_reported_once():
    collected = attributes.collect((f"example.com/a{number}", number) for number in range(10_000))
    assert len(collected.kept) == attributes.ATTRIBUTES_MAX
    assert len(collected.refused) == attributes.READ_MAX - attributes.ATTRIBUTES_MAX + 1
    assert "not read" in collected.refused[-1]


VALUES = st.text() | st.integers() | st.booleans() | st.none() | st.builds(Version, st.text())
NAMES = st.text() | st.from_regex(r"[a-z.]{1,70}/\w{0,40}")


@given(st.lists(st.tuples(NAMES, VALUES), max_size=80))
def test_only_attributes_valid_for_the_api_server_are_kept(given_attributes):
    collected = attributes.collect(given_attributes)
    assert len(collected.kept) <= attributes.ATTRIBUTES_MAX
    for attribute in collected.kept:
        domain, _, name = attribute.name.partition("/")
        assert len(domain) <= 63
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,31}", name)
        assert not domain.endswith(("drawbar.dev", "kubernetes.io", "k8s.io")) or "." in domain
        if isinstance(attribute.value, str):
            assert 0 < len(attribute.value.encode()) <= 64
    assert all(refused.isprintable() for refused in collected.refused)


def test_a_hostile_plugin_loses_attributes_and_never_its_device():
    message = pb.Device(
        id="gpu-1",
        attributes=[
            pb.Attribute(name="example.com/rack", string_value="r7"),
            pb.Attribute(name="example.com/empty"),
            pb.Attribute(name="drawbar.dev/class", string_value="nvme"),
            pb.Attribute(name="x" * 1_000_000, int_value=1),
            pb.Attribute(name="example.com/long", string_value="x" * 1_000_000),
        ],
    )
    device = conversion.device(message)
    assert device.id == "gpu-1"
    assert device.attributes == (attributes.Attribute(name="example.com/rack", value="r7"),)
    assert len(device.refused_attributes) == 4
    assert sum(map(len, device.refused_attributes)) < 1000
