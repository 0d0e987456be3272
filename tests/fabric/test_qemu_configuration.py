"""The file that describes a QEMU fabric: all its problems are reported at once."""

import json

import pytest

from drawbar.fabric import contract, errors
from drawbar.fabric.qemu import configuration
from drawbar.fabric.qemu.adapter import QemuAdapter

HOST = {"id": "vm1", "qmp": "/run/vm1.qmp"}


def problems(described):
    with pytest.raises(errors.InvalidConfiguration) as caught:
        configuration.parse(json.dumps(described).encode())
    return caught.value.problems


def test_a_whole_fabric_is_read():
    read = configuration.parse(
        json.dumps(
            {
                "hosts": [HOST | {"name": "node-1", "ports": ["p1"], "identifiers": {"serial": "x"}}],
                "devices": [
                    {"driver": "nvme", "id": "n", "serial": "S", "file": "/n", "properties": {"mdts": 7}},
                    {"driver": "igb", "id": "i", "mac": "52:54:00:00:00:01", "enclosure": "e", "model": "I"},
                ],
                "detachSeconds": 9,
            }
        ).encode()
    )
    assert [device.id for device in read.devices] == ["n", "i"]
    assert (read.hosts[0].ports, read.detach_seconds) == (("p1",), 9)


def test_all_problems_are_told_at_once():
    reported = problems(
        {
            "hosts": [HOST, HOST | {"qmp": "relative"}, {"id": "vm3"}, {"id": "", "qmp": "/" + "x" * 107}],
            "devices": [
                {"driver": "nvme", "id": "a.b", "serial": "S" * 21, "file": "n"},
                {"driver": "edu", "id": "e", "properties": {"bus": "x"}},
                {"driver": "edu", "id": "e", "model": "x" * 129},
                {"driver": "igb", "id": "i", "mac": "52:54"},
                {"driver": "floppy", "id": "f"},
                {
                    "driver": "cxl-type3",
                    "id": "m",
                    "serial": 0,
                    "file": "/m",
                    "labelsFile": "/m",
                    "sizeMiB": 0,
                },
            ],
            "detachSeconds": 0,
        }
    )
    for words in (
        'host id "vm1" is used 2 times',
        'qmp "relative" is not an absolute path',
        "hosts[2]",
        "empty id",
        "the kernel allows 107",
        "device a.b: its id must be",
        "device a.b: its serial must be",
        'device a.b: file "n" is not an absolute path',
        "device e: properties sets bus",
        'device id "e" is used 2 times',
        "device e: model has more than 128 bytes",
        "device i: its mac",
        "devices[4]",
        'file "/m" is used 2 times',
        "device m: its serial",
        "device m: sizeMiB is less than 1",
        "detachSeconds is 0",
    ):
        assert any(words in problem for problem in reported), words


@pytest.mark.parametrize("text", [b"", b"[]", b'{"hosts": 1}', b'{"colour": 1}'])
def test_an_invalid_description_is_refused(text):
    with pytest.raises(errors.InvalidConfiguration):
        configuration.parse(text)


def test_a_fabric_without_hosts_is_none():
    assert problems({}) == ("there is no host: name at least one virtual machine",)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(errors.InvalidConfiguration, match="cannot be read"):
        configuration.load(tmp_path / "nothing.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(errors.InvalidConfiguration, match=r"bad\.json: there is no host"):
        configuration.load(tmp_path / "bad.json")


def test_the_adapters_own_configuration_is_judged_without_reading_anything():
    QemuAdapter.validate(contract.AdapterConfig(name="lab", endpoint="file:/no/such/file.json"))
    with pytest.raises(errors.InvalidConfiguration) as caught:
        QemuAdapter.validate(
            contract.AdapterConfig(
                name="lab",
                endpoint="unix:/x",
                parameters={"colour": "red"},
                timeout_seconds=0,
                credentials=contract.Credentials(token="secret"),
            )
        )
    assert len(caught.value.problems) == 4
    assert "secret" not in str(caught.value)
