import json

import pytest

from drawbar.fabric import contract, errors, witnesses
from drawbar.fabric.witnesses import Kind
from drawbar.mocks import identities
from drawbar.mocks.fabric import configuration

WHOLE = {
    "hosts": [{"id": "h1", "name": "node-1", "ports": 2, "sysfs": "/tmp/h1", "identifiers": {"serial": "S"}}],
    "enclosures": [
        {
            "id": "e1",
            "devices": [
                {
                    "id": "d1",
                    "class": "cxl-memory",
                    "model": "M",
                    "vendor": "V",
                    "serial": "0x1234",
                    "switch": "sw-0",
                    "memoryBytes": 1024,
                    "computeCapability": "9.0",
                    "maxLinkSpeedMTs": 32000,
                    "maxLinkWidth": 16,
                    "pciVendor": "0x1af4",
                    "pciDevice": 17,
                }
            ],
        }
    ],
    "attachSeconds": 1.5,
    "detachSeconds": 2,
    "attachFails": [{"device": "d1", "reason": "PORT_DOWN", "message": "port down", "times": 2}],
}


def parse(**changes):
    return configuration.parse(json.dumps({**WHOLE, **changes}).encode())


def problems(**changes):
    with pytest.raises(errors.InvalidConfiguration) as caught:
        parse(**changes)
    return caught.value.problems


def test_every_field_is_read():
    read = parse()
    assert (read.attach_seconds, read.detach_seconds) == (1.5, 2.0)
    assert (read.hosts[0].name, read.hosts[0].ports, read.hosts[0].sysfs) == ("node-1", 2, "/tmp/h1")
    ((enclosure, spec),) = read.devices()
    assert configuration.device(enclosure, spec) == contract.Device(
        id="d1",
        device_class=contract.DeviceClass.CXL_MEMORY,
        model="M",
        vendor="V",
        pci_vendor_id=0x1AF4,
        pci_device_id=17,
        serial="0x1234",
        identifiers=identities.defaults(contract.DeviceClass.CXL_MEMORY, "0x1234"),
        enclosure="e1",
        switch="sw-0",
        memory_bytes=1024,
        compute_capability="9.0",
        max_link_speed_mts=32000,
        max_link_width=16,
        health=contract.Health.OK,
    )
    assert read.attach_fails[0].times == 2


def test_a_device_shows_the_identifiers_of_its_configuration():
    listed = [{"kind": "mac", "value": "94-6D-AE-51-C0-2A"}, {"kind": "board-serial", "value": "B 1"}]
    ((enclosure, spec),) = parse(enclosures=device(identifiers=listed)).devices()
    shown = configuration.device(enclosure, spec).identifiers
    assert shown == (
        witnesses.identifier(Kind.MAC, "94:6d:ae:51:c0:2a", "identifiers"),
        witnesses.identifier(Kind.BOARD_SERIAL, "b 1", "identifiers"),
    )


def test_a_device_with_an_empty_list_shows_none():
    ((enclosure, spec),) = parse(enclosures=device(identifiers=[])).devices()
    assert configuration.device(enclosure, spec).identifiers == ()


def device(**changes):
    return [{"id": "e", "devices": [{**WHOLE["enclosures"][0]["devices"][0], **changes}]}]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"attachSecond": 1}, "attachSecond", id="unknown field"),
        pytest.param({"hosts": [{"id": "h", "port": 1}]}, "hosts[0]", id="unknown field of a host"),
        pytest.param({"hosts": [{"id": "h"}, {"id": "h"}]}, "h is used 2 times", id="host twice"),
        pytest.param({"hosts": [{"id": "", "ports": 1}]}, "empty id", id="empty id"),
        pytest.param({"hosts": [{"id": "x" * 129}]}, "more than 128 bytes", id="long id"),
        pytest.param({"hosts": [{"id": "h", "ports": 0}]}, "at least 1", id="no ports"),
        pytest.param({"hosts": [{"id": "h", "sysfs": "sys"}]}, "absolute", id="relative tree"),
        pytest.param({"enclosures": device(**{"class": "toaster"})}, "devices[0]", id="unknown class"),
        pytest.param({"enclosures": device(pciVendor="10de")}, "no PCI id", id="hexadecimal without 0x"),
        pytest.param({"enclosures": device(pciVendor=0x10000)}, "no PCI id", id="17 bits"),
        pytest.param(
            {"enclosures": device(pciVendor=None)}, "pciVendor is missing", id="no PCI id with a tree"
        ),
        pytest.param({"enclosures": device(serial="abc")}, "CXL serial", id="serial that cannot be"),
        pytest.param({"enclosures": device(memoryBytes=-1)}, "memoryBytes is negative", id="negative memory"),
        pytest.param({"enclosures": device(memoryBytes=1 << 64)}, "more than 64 bits", id="too much memory"),
        pytest.param(
            {"enclosures": device(maxLinkWidth=-1)}, "maxLinkWidth is negative", id="negative lanes"
        ),
        pytest.param({"enclosures": device(computeCapability="sm_90")}, 'like "9.0"', id="no capability"),
        pytest.param({"enclosures": device(switch="sw 0")}, 'like "sw-0"', id="a space in a switch"),
        pytest.param({"enclosures": device(switch="s" * 65)}, 'like "sw-0"', id="long switch"),
        pytest.param(
            {"enclosures": device(identifiers=[{"kind": "dsn", "value": "1"}])}, "devices[0]", id="no kind"
        ),
        pytest.param(
            {"enclosures": device(identifiers=[{"kind": "mac", "value": "ff:ff:ff:ff:ff:ff"}])},
            "is no mac, or a placeholder",
            id="a placeholder",
        ),
        pytest.param(
            {"enclosures": device(identifiers=[{"kind": "serial", "value": f"S{n}"} for n in range(65)])},
            "more than 64 identifiers",
            id="too many identifiers",
        ),
        pytest.param(
            {"enclosures": device(attributes={"drawbar.dev/x": 1})}, "not the adapter's own", id="our domain"
        ),
        pytest.param(
            {"enclosures": device(attributes={"example.com/v": {"version": "1"}})}, "semver", id="no version"
        ),
        pytest.param({"detachSeconds": -1}, "detachSeconds is negative", id="negative time"),
        pytest.param({"attachFails": [{"device": "d9"}]}, "d9, which no enclosure has", id="unknown device"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(changes, words):
    matching = [problem for problem in problems(**changes) if words in problem]
    assert len(matching) == 1


def test_all_mistakes_are_told_at_once():
    reported = problems(
        hosts=[{"id": "a", "ports": "x"}, {"id": "b", "sysfs": "x"}],
        enclosures=[
            {"id": "e", "devices": [{"id": "d1", "class": "gpu", "oops": 1}, {"id": "d2", "class": "x"}]}
        ],
        attachSeconds=-1,
    )
    assert len([p for p in reported if "hosts[0]" in p or "sysfs x" in p or "devices[" in p]) == 4
    assert any("attachSeconds" in problem for problem in reported)


def test_a_file_that_is_missing_or_no_json_is_named(tmp_path):
    with pytest.raises(errors.InvalidConfiguration, match=r"missing\.json cannot be read"):
        configuration.load(tmp_path / "missing.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(errors.InvalidConfiguration, match=r"bad\.json: the configuration"):
        configuration.load(tmp_path / "bad.json")


def test_an_enclosure_is_cabled_to_the_hosts_that_it_names():
    hosts = [{"id": "h1"}, {"id": "h2"}, {"id": "h3"}]
    first, second = {"id": "e1", "hosts": ["h1", "h2"]}, {"id": "e2", "hosts": ["h2"]}
    read = parse(hosts=hosts, enclosures=[first, second, {"id": "e3"}], attachFails=[])
    groups = {host.id: configuration.reach_groups(read, host.id) for host in read.hosts}
    assert groups == {"h1": {"e1"}, "h2": {"e1", "e2"}, "h3": {"host h3"}}
    devices = {name: configuration.enclosure_groups(read, name) for name in ("e1", "e2", "e3")}
    assert devices == {"e1": {"e1"}, "e2": {"e2"}, "e3": set()}
    plain = parse(hosts=hosts, enclosures=[{"id": "e3"}], attachFails=[])
    assert configuration.reach_groups(plain, "h1") == frozenset()
    (problem,) = problems(hosts=hosts, enclosures=[first | {"hosts": ["h9"]}], attachFails=[])
    assert "h9, which is not a host" in problem
