"""Which cards a simulated host has: decided from the DeviceAttachments of its node alone."""

import pytest

from drawbar.driver.node.classes import driverfiles, users
from drawbar.driver.node.discovery import reader
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import attachments, sysfs
from drawbar.mocks.fabric import pool
from drawbar.mocks.host import cards
from drawbar.mocks.kube import meta
from drawbar.mocks.sysfs import device


def attachment(
    name="rack.nvme-1",
    *,
    port="1",
    attached="True",
    device_class="nvme",
    serial="S1",
    pci_id="144d:a824",
    uid="u",
):
    connection = None if port is None else attachments.Connection(port=port, slot=port)
    return attachments.DeviceAttachment(
        metadata=meta.ObjectMeta(name=name, uid=uid),
        spec=attachments.Spec(
            device_id="nvme-1",
            pool="rack/chassis-1",
            device="nvme-1",
            node_name="node-1",
            host_id="node-1",
            identity=attachments.Identity(device_class=device_class, serial=serial, pci_id=pci_id),
        ),
        status=attachments.Status(
            connection=connection, conditions=(meta.Condition(type="Attached", status=attached),)
        ),
    )


def disk(serial="S1"):
    return cards.card(attachments.Identity(device_class="nvme", serial=serial, pci_id="144d:a824"))


@pytest.mark.parametrize(
    ("device", "slots"),
    [
        pytest.param(attachment(), {1}, id="attached"),
        pytest.param(attachment(attached="False"), set(), id="not attached"),
        pytest.param(attachment(port=None), set(), id="no port yet"),
    ],
)
def test_a_device_is_in_the_slot_of_its_port_while_it_is_attached(device, slots):
    wanted = cards.find_wanted_cards([device], 4)
    assert wanted.cards.keys() == slots
    assert not wanted.problems


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (attachment(port="5"), "none of this host's slots 1 to 4"),
        (attachment(port="0"), "none of this host's slots"),
        (attachment(port="x"), "none of this host's slots"),
        (attachment(device_class="nic"), "class nic cannot be simulated"),
        (attachment(device_class="bridge"), "class bridge is no card"),
        (attachment(pci_id=""), "no PCI id"),
        (attachment(device_class="gpu", serial="a\x1b"), "no serial number"),
    ],
)
def test_a_device_that_cannot_appear_is_reported_with_the_reason(device, why):
    wanted = cards.find_wanted_cards([device], 4)
    assert not wanted.cards
    assert why in wanted.problems["rack.nvme-1"]


def test_one_slot_has_one_card():
    wanted = cards.find_wanted_cards([attachment("rack.b"), attachment("rack.a", serial="S2")], 4)
    assert {slot: card.serial for slot, card in wanted.cards.items()} == {1: "S2"}
    assert "another attachment" in wanted.problems["rack.b"]


def test_a_card_is_that_of_its_model():
    memory = attachments.Identity(device_class="cxl-memory", serial="352000001", pci_id="1b00:c001")
    assert cards.card(memory).memory_bytes == 8 << 30
    other = attachments.Identity(device_class="new", serial="", pci_id="1234:5678")
    assert cards.card(other).device_class is DeviceClass.OTHER


def plug(slot, serial="S1"):
    return cards.Plug(slot=slot, card=disk(serial))


@pytest.mark.parametrize(
    ("attached", "present", "plugged", "actions"),
    [
        pytest.param({}, {}, {}, (), id="nothing"),
        pytest.param({1: "a"}, {}, {}, (plug(1),), id="it is attached"),
        pytest.param({1: "a"}, {1: disk()}, {1: "a"}, (), id="it is there"),
        pytest.param({1: "a"}, {1: disk()}, {}, (), id="it is there after a restart"),
        pytest.param({}, {1: disk()}, {1: "a"}, (cards.Unplug(slot=1),), id="it is detached"),
        pytest.param({1: "a"}, {}, {1: "a"}, (), id="it was pulled out"),
        pytest.param({1: "b"}, {}, {1: "a"}, (plug(1),), id="it was pulled out and attached again"),
        pytest.param(
            {1: "b"}, {1: disk()}, {1: "a"}, (cards.Unplug(slot=1), plug(1)), id="it is attached again"
        ),
        pytest.param(
            {1: "b", 2: "c"},
            {1: disk("S2")},
            {1: "a"},
            (cards.Unplug(slot=1), plug(1), plug(2)),
            id="a slot is emptied before another card comes",
        ),
    ],
)
def test_cards_come_and_go_with_their_attachments(attached, present, plugged, actions):
    wanted = cards.Wanted(cards=dict.fromkeys(attached, disk()), owners=attached, problems={})
    assert cards.changes(wanted, present, plugged) == actions


@pytest.mark.parametrize("device_class", sorted(set(device.CLASS_CODES) - {DeviceClass.OTHER}))
def test_no_device_file_of_a_real_cluster_has_the_number_of_a_real_driver(tmp_path, device_class):
    tree = sysfs.SysfsTree.create(tmp_path / "sys", harmless_numbers=True)
    serial = {"nvme": "S1", "cxl-memory": "1"}.get(device_class, "00-11-22-33-44-55-66-77")
    card = sysfs.MockDevice(
        device_class=device_class, vendor=0x1002, device=1, serial=serial, memory_bytes=1 << 28
    )
    tree.attach(1, card)
    if device_class is DeviceClass.CXL_MEMORY:
        tree.create_region([1])
    numbers = [file.read_text() for file in tree.root.rglob("dev") if file.is_file()]
    reported = [
        line
        for file in tree.root.rglob("uevent")
        for line in file.read_text().splitlines()
        if line.startswith("MAJOR=")
    ]
    assert bool(numbers) == (device_class is not DeviceClass.NIC)
    assert len(reported) == len(numbers)
    local = {*range(60, 64), *range(120, 128)}
    assert {int(number.partition(":")[0]) for number in numbers} <= local
    assert {int(line.partition("=")[2]) for line in reported} <= local


@pytest.mark.parametrize(
    "model",
    [model for model in pool.MODELS if model.device_class not in cards.REFUSED],
    ids=lambda each: each.model,
)
def test_a_container_runtime_finds_every_file_of_a_pretended_card(model, tmp_path):
    tree = sysfs.SysfsTree.create(tmp_path / "sys", slots=1)
    pci_id = f"{model.pci_vendor:04x}:{model.pci_device:04x}"
    tree.attach(
        1, cards.card(attachments.Identity(device_class=model.device_class, serial="7", pci_id=pci_id))
    )
    card = reader.read(tree.root).card_of(tree.address(1))
    assert card.device_class == model.device_class
    assert driverfiles.find_shared(card, users.Host.from_sysfs(tree.root)) == ()
