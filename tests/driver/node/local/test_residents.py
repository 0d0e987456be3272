"""Which cards of a node are its own to give out, and under which names."""

import msgspec
import pytest
from tests.scenes import attachments as scenes
from tests.scenes import cards

from drawbar.driver.api import attachments, nodepools
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import residents, selections
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Kind

BOOT = "boot-1"
UUID = "8d3ab7c0-14fe-9c02-6b1d-70a2e94f0c55"
NQN = "nqn.2019-10.com.kioxia:kcd6xlul960g:61x0a003tcd8"


def function(address="0000:65:00.0", device_class=DeviceClass.GPU, **fields):
    return cards.function(address, device_class, **{"driver": "vendor"} | fields)


def card(*functions, slot=None, memdevs=(), **changes):
    return model.Card(functions=functions or (function(**changes),), slot=slot, memdevs=memdevs)


def attachment(serial="", *, status=None, **identity):
    identifiers = attachments.Identity(device_class="gpu", serial=serial, **identity)
    return scenes.attachment(deleting=True, identity=identifiers, status=status, device="x")


def make_identifier(kind, value, **more):
    return attachments.DeviceIdentifier(kind=kind, value=value, **more)


def make_status(**report):
    return attachments.AttachmentStatus(node=attachments.NodeReport(**report))


def choose_residents(*cards, wanted=None, mismatch=lambda resident: None, **situation):
    """Return the names that are offered, and the reasons why the rest is not."""
    listed = residents.residents(cards)
    about = residents.Situation(**{"boot_id": BOOT} | situation)
    made = residents.choose(listed, wanted or selections.Selection(), about, mismatch)
    return {resident.name for resident in made.offered}, dict(made.refused)


def test_a_card_that_lives_here_is_offered():
    assert choose_residents(card(dsn="48-b0-2d-00-00-00-00-01")) == ({"gpu-48-b0-2d-00-00-00-00-01"}, {})


@pytest.mark.parametrize(
    ("resident", "situation", "reason"),
    [
        pytest.param(card(device_class=DeviceClass.BRIDGE), {}, "bridge", id="bridge"),
        pytest.param(card(vendor=0x1A03, device=0x2000), {}, "screen of a management", id="bmc-screen"),
        pytest.param(card(vendor=0x1234, device=0x1111), {}, "screen", id="emulated-screen"),
        pytest.param(
            card(device_class=DeviceClass.NVME), {}, "nvme driver is not bound", id="disk-without-driver"
        ),
        pytest.param(
            card(driver=None, unassigned_bars=(0, 2)), {}, "no memory addresses for BAR 0", id="no-addresses"
        ),
        pytest.param(card(function(slot="3")), {}, "hot-plug slot 3", id="slot-not-known"),
        pytest.param(
            card(function(slot="3"), slot=cards.slot("3")), {}, "hot-plug slot 3", id="hot-plug-slot"
        ),
        pytest.param(
            card(function(slot="3"), slot=cards.slot("3", powered=None)),
            {},
            "hot-plug slot 3",
            id="slot-without-power-file",
        ),
        pytest.param(
            card(serial="Sn1 "),
            {"attached": (attachment("sN1"),)},
            "belongs to fabric fab",
            id="attached-by-serial",
        ),
        pytest.param(
            card(dsn="00-00-00-00-00-00-12-34"),
            {"attached": (attachment("0x1234"),)},
            "belongs to fabric",
            id="attached-by-serial-in-another-notation",
        ),
        pytest.param(
            card(function(), function("0000:65:00.1")),
            {"attached": (attachment(status=make_status(pci_address="0000:65:00.1", boot_id=BOOT)),)},
            "belongs to fabric",
            id="attached-and-seen-in-this-boot",
        ),
        pytest.param(
            card(function(slot="3"), slot=cards.slot("3", powered=None, present=None)),
            {"attached": (attachment(slot="3"),)},
            "belongs to fabric",
            id="attached-by-slot",
        ),
        pytest.param(
            card(),
            {"attached": (attachment(pci_id="10de:2330"),)},
            "may be the device of attachment fab.x",
            id="attached-and-nothing-known-but-the-kind",
        ),
        pytest.param(
            card(identifiers=cards.identifiers(Kind.GPU_UUID, UUID)),
            {"attached": (attachment("1654422009913", identifiers=(make_identifier("gpu-uuid", UUID),)),)},
            "belongs to fabric",
            id="attached-by-an-identifier",
        ),
        pytest.param(
            card(dsn="b4-96-91-ff-ff-4a-31-d2"),
            {"attached": (attachment(identifiers=(make_identifier("board-serial", "b496914a31d2"),)),)},
            "belongs to fabric",
            id="attached-by-an-identifier-derived-from-another",
        ),
        pytest.param(
            card(identifiers=cards.identifiers(Kind.VPD_SERIAL, "MT2304XZ04QF")),
            {"attached": (attachment("mt2304xz04qf"),)},
            "belongs to fabric",
            id="attached-by-a-serial-in-vital-product-data",
        ),
        pytest.param(
            card(),
            {"attached": (attachment("1654422009913", pci_id="10de:2330", sole_arrival=True),)},
            "may be the device of attachment fab.x",
            id="attached-with-a-number-that-no-node-reads",
        ),
        pytest.param(
            card(dsn="5c-21-0f-69-a4-2d-b0-48"),
            {
                "attached": (
                    attachment(
                        "1654422009913", pci_id="10de:2330", identifiers=(make_identifier("gpu-uuid", UUID),)
                    ),
                )
            },
            "may be the device of attachment fab.x",
            id="attached-with-a-number-that-the-card-does-not-show-yet",
        ),
        pytest.param(
            card(), {"busy": {"0000:65:00.0": "the host uses its disk: x"}}, "the host uses", id="busy"
        ),
    ],
)
def test_foreign_and_busy_devices_are_refused_with_the_reason(resident, situation, reason):
    offered, refused = choose_residents(resident, **situation)
    assert offered == set()
    (reported,) = refused.values()
    assert reason in reported


@pytest.mark.parametrize(
    ("resident", "situation"),
    [
        pytest.param(
            card(serial="A"), {"attached": (attachment("B", pci_id="10de:2330"),)}, id="another-serial"
        ),
        pytest.param(
            card(),
            {
                "attached": (
                    attachment("B", status=make_status(pci_address="0000:65:00.0", boot_id="before")),
                )
            },
            id="address-of-an-earlier-boot",
        ),
        pytest.param(card(), {"attached": (attachment(pci_id="10de:1111"),)}, id="another-kind"),
        pytest.param(
            card(identifiers=cards.identifiers(Kind.GPU_UUID, UUID.replace("8", "9"))),
            {
                "attached": (
                    attachment(
                        "1654422009913", pci_id="10de:2330", identifiers=(make_identifier("gpu-uuid", UUID),)
                    ),
                )
            },
            id="another-number-of-the-kind",
        ),
        pytest.param(
            card(identifiers=cards.identifiers(Kind.VPD_SERIAL, "MT2304XZ04QF")),
            {
                "attached": (
                    attachment(identifiers=(make_identifier("vpd-serial", "mt2304xz04qf", shared=True),)),
                )
            },
            id="a-number-of-several-devices",
        ),
        pytest.param(
            card(function(slot="3"), slot=cards.slot("3", powered=None, present=None)),
            {},
            id="slot-that-is-only-a-name",
        ),
        pytest.param(card(), {"busy": {"0000:66:00.0": "x"}}, id="another-is-busy"),
        pytest.param(
            card(), {"busy": {"0000:65:00.0": "x"}, "held": {"gpu-0000-65-00-0"}}, id="busy-with-its-claim"
        ),
        pytest.param(
            card(),
            {"attached": (attachment(pci_id="10de:2330"),), "held": {"gpu-0000-65-00-0"}},
            id="a-kind-like-it-arrives-while-a-claim-has-it",
        ),
    ],
)
def test_a_device_that_only_resembles_a_foreign_one_is_offered(resident, situation):
    offered, refused = choose_residents(resident, **situation)
    assert len(offered) == 1, refused


@pytest.mark.parametrize(("pattern", "offered"), [("3", 1), ("*", 1), ("4", 0), ("[12]", 0)])
def test_the_configuration_can_give_hot_plug_slots_to_the_node(pattern, offered):
    wanted = selections.Selection(slots=(pattern,))
    assert len(choose_residents(card(function(slot="3"), slot=cards.slot("3")), wanted=wanted)[0]) == offered


def test_a_slot_of_the_node_does_not_make_an_attached_device_its_own():
    wanted = selections.Selection(slots=("*",))
    here = card(function(slot="3", serial="S"), slot=cards.slot("3"))
    offered, refused = choose_residents(here, wanted=wanted, attached=(attachment("S"),))
    assert (offered, list(refused)) == (set(), ["gpu-s"])


def test_a_device_outside_the_selector_is_refused_with_the_reason():
    assert choose_residents(card(serial="A"), mismatch=lambda resident: f"not {resident.name}") == (
        set(),
        {"gpu-a": "not gpu-a"},
    )


PARENT = function(
    serial="P", sriov=model.Sriov(total_vfs=4, num_vfs=2, virtual_functions=("0000:65:00.4", "0000:65:00.5"))
)
PARTS = tuple(
    function(address, physical_function="0000:65:00.0") for address in ("0000:65:00.4", "0000:65:00.5")
)


def test_virtual_functions_are_part_of_their_card_unless_they_are_asked_for_and_never_both():
    whole = card(PARENT, *PARTS)
    assert choose_residents(whole)[0] == {"gpu-p"}
    asked = selections.Selection(virtual_functions=True)
    offered, refused = choose_residents(whole, wanted=asked)
    assert offered == {"gpu-p-vf0", "gpu-p-vf1"}
    assert "virtual functions are offered in its place" in refused["gpu-p"]
    assert choose_residents(card(msgspec.structs.replace(PARENT, sriov=None)), wanted=asked)[0] == {"gpu-p"}


def test_a_virtual_function_keeps_its_name_when_its_address_moves():
    moved = msgspec.structs.replace(
        PARENT, sriov=model.Sriov(total_vfs=4, num_vfs=1, virtual_functions=("0000:70:00.1",))
    )
    vf = function("0000:70:00.1", physical_function=PARENT.address)
    assert {resident.name for resident in residents.residents([card(moved, vf)])} == {"gpu-p", "gpu-p-vf0"}


LENT = cards.slot("3")
LENT_PARENT = msgspec.structs.replace(PARENT, slot="3")
LENT_PARTS = tuple(msgspec.structs.replace(part, slot="3") for part in PARTS)


def by_hand(*, deleting=False, boot_id=BOOT, visible=True, **changes):
    conditions = (attachments.VISIBLE,) if visible else ()
    node = attachments.NodeReport(boot_id=boot_id, pci_address=PARENT.address, slot="3")
    fields = {"serial": "P", "node": node, "deleting": deleting} | changes
    return scenes.attachment(*conditions, **fields)


def choose_lent_residents(*attached, virtual_functions=True, **situation):
    asked = selections.Selection(virtual_functions=virtual_functions)
    whole = card(LENT_PARENT, *LENT_PARTS, slot=LENT)
    return choose_residents(whole, wanted=asked, attached=attached, driver="drawbar.dev", **situation)


def test_the_virtual_functions_of_a_card_that_is_attached_by_hand_are_offered_and_never_the_card():
    offered, refused = choose_lent_residents(by_hand())
    assert offered == {"gpu-p-vf0", "gpu-p-vf1"}
    assert list(refused) == ["gpu-p"]
    assert choose_lent_residents(by_hand(), virtual_functions=False)[0] == set()


@pytest.mark.parametrize(
    "attached",
    [
        pytest.param((by_hand(visible=False),), id="not-visible"),
        pytest.param((by_hand(boot_id="boot-0"),), id="of-another-boot"),
        pytest.param((by_hand(driver="another.example.com"),), id="of-another-driver"),
        pytest.param((by_hand(idle_since="2026-01-02T03:04:05Z"),), id="waits-for-the-next-claim"),
        pytest.param(
            (by_hand(claim=attachments.ClaimReference(namespace="ns", name="c", uid="u")),), id="for-a-claim"
        ),
        pytest.param((by_hand(), by_hand(device="e")), id="two-attachments"),
    ],
)
def test_the_virtual_functions_of_any_other_card_of_a_fabric_are_not_offered(attached):
    assert choose_lent_residents(*attached)[0] == set()


def test_a_card_that_is_detached_offers_only_the_virtual_functions_that_claims_have():
    offered, refused = choose_lent_residents(by_hand(deleting=True), held=frozenset({"gpu-p-vf1"}))
    assert offered == {"gpu-p-vf1"}
    assert "being detached: attachment fab.d" in refused["gpu-p-vf0"]


@pytest.mark.parametrize(
    "changes", [{"visible": False}, {"deleting": True}, {"idle_since": "2026-01-02T03:04:05Z"}]
)
def test_changes_of_an_attachment_wake_the_pool_of_virtual_functions(changes):
    assert residents.marks(by_hand()) != residents.marks(by_hand(**changes))


def names(*cards):
    return [resident.name for resident in residents.residents(cards)]


def test_devices_are_named_by_serial_and_without_one_by_address():
    assert names(card(serial="SN 42 "), card(address="10000:01:00.0")) == ["gpu-sn-42", "gpu-10000-01-00-0"]


@pytest.mark.parametrize("number", ["00-00-00-00-00-2d-b0-48", "00-00-00-01-01-00-0a-35"])
def test_a_number_of_a_whole_model_names_no_card(number):
    assert choose_residents(card(dsn=number))[0] == {"gpu-0000-65-00-0"}


def test_a_placeholder_names_no_disk():
    assert choose_residents(
        card(device_class=DeviceClass.NVME, nvme="N/A"), wanted=selections.Selection(classes=("nvme",))
    )[0] == {"nvme-0000-65-00-0"}


def test_a_serial_that_two_cards_claim_names_neither():
    first, second = card(serial="7", address="0000:01:00.0"), card(serial="7", address="0000:02:00.0")
    assert names(first, second) == ["gpu-0000-01-00-0", "gpu-0000-02-00-0"]
    nic = card(serial="7", address="0000:03:00.0", device_class=DeviceClass.NIC)
    assert names(first, nic) == ["gpu-7", "nic-7"]


def test_two_serials_that_look_alike_as_labels_name_neither():
    first, second = card(serial="a.b", address="0000:01:00.0"), card(serial="a-b", address="0000:02:00.0")
    assert names(first, second) == ["gpu-0000-01-00-0", "gpu-0000-02-00-0"]


@pytest.mark.parametrize("text", ["0x1", "00-00-00-00-00-00-00-01"])
def test_a_cxl_device_without_a_number_of_its_own_is_named_by_address(text):
    assert names(card(serial=text, device_class=DeviceClass.CXL_MEMORY)) == ["cxl-memory-0000-65-00-0"]


@pytest.mark.parametrize("text", ["0x1234", "00-00-00-00-00-00-12-34"])
def test_a_cxl_device_has_one_name_whether_its_driver_is_bound_or_not(text):
    assert names(card(serial=text, device_class=DeviceClass.CXL_MEMORY)) == [
        "cxl-memory-00-00-00-00-00-00-12-34"
    ]


def test_the_class_of_a_name_is_found_again():
    assert residents.class_of("cxl-memory-00") is DeviceClass.CXL_MEMORY
    assert residents.class_of("disk-1") is None


@pytest.mark.parametrize("text", ["x" * 200, "ß", "-", "", "A_B"])
def test_a_label_is_always_a_label(text):
    made = residents.label(text)
    assert len(made) <= 63
    assert made.strip("-") == made != ""
    assert made.replace("-", "").isalnum()


@pytest.mark.parametrize(
    ("pool", "ours"),
    [("n-1", True), ("n-1/1", True), ("n-1/0", False), ("n-1/01", False), ("n-1/x", False), ("n-1-1", False)],
)
def test_a_pool_of_this_node_is_distinguished_from_others(pool, ours):
    assert nodepools.is_pool(pool, "n-1") is ours


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        pytest.param({"classes": ("disk",)}, "no class of device 'disk'", id="unknown-class"),
        pytest.param({"classes": ("other",)}, "needs a selector", id="other-without-selector"),
        pytest.param({"classes": ()}, "no class of device: name some", id="no-class"),
        pytest.param(
            {"selector": "device.driver =="}, "is not a CEL expression: Failed to parse", id="selector"
        ),
    ],
)
def test_each_wrong_setting_is_reported_in_one_sentence(wanted, words):
    (problem,) = selections.problems(selections.Selection(**wanted))
    assert words in problem
    assert "\n" not in problem


def test_the_defaults_are_right():
    assert selections.problems(selections.Selection()) == []
    assert selections.problems(selections.Selection(enabled=False, classes=())) == []
    assert selections.problems(selections.Selection(classes=("other",), selector="true")) == []


@pytest.mark.parametrize(
    ("changed", "matters"),
    [
        pytest.param(attachment("s", status=make_status(pci_address="0000:65:00.0")), True, id="address"),
        pytest.param(attachment("s", status=make_status(boot_id=BOOT)), True, id="boot"),
        pytest.param(attachment("s", status=make_status(slot="7")), True, id="slot"),
        pytest.param(attachment("t", status=make_status()), True, id="serial-number"),
        pytest.param(attachment("s", status=make_status(), pci_id="10de:2330"), True, id="kind"),
        pytest.param(None, True, id="gone"),
        pytest.param(
            attachment("s", status=make_status(claim_uid="u")), True, id="user-of-a-card-that-lends"
        ),
        pytest.param(attachment("s", status=make_status(health="Healthy")), False, id="health"),
    ],
)
def test_the_marks_of_an_attachment_are_all_that_decides_which_card_it_means(changed, matters):
    marks = residents.marks(attachment("s", status=make_status()))
    assert (residents.marks(changed) != marks) is matters


def file(path, **fields):
    return model.DeviceNode(
        **{"path": path, "major": 1, "minor": 0, "block": False, "subsystem": ""} | fields
    )


def test_the_functions_of_an_iommu_group_are_offered_once():
    first, second, third = (
        card(
            address=f"0000:0{number}:00.0", serial=f"SN {number}", device_nodes=(file(f"/dev/vfio/{group}"),)
        )
        for number, group in ((1, 12), (2, 12), (3, 13))
    )
    names, refused = choose_residents(first, second, third)
    assert names == {"gpu-sn-1", "gpu-sn-3"}
    assert refused == {"gpu-sn-2": "it has /dev/vfio/12 in common with gpu-sn-1, which is offered"}
    assert choose_residents(first, second, held=frozenset({"gpu-sn-2"}))[0] == {"gpu-sn-2"}
    assert choose_residents(first, second, held=frozenset({"gpu-sn-1", "gpu-sn-2"}))[1] == {}


def test_each_virtual_function_of_a_disk_is_offered():
    functions = ("0000:65:00.1", "0000:65:00.2")
    disk = {
        "device_class": DeviceClass.NVME,
        "driver": "nvme",
        "nvme": "61X0A003TCD8",
        "identifiers": cards.identifiers(Kind.NVME_NQN, NQN),
    }
    whole = card(
        function(
            "0000:65:00.0", sriov=model.Sriov(total_vfs=2, num_vfs=2, virtual_functions=functions), **disk
        ),
        *(function(address, physical_function="0000:65:00.0", **disk) for address in functions),
    )
    wanted = selections.Selection(classes=("nvme",), virtual_functions=True)
    names, _ = choose_residents(whole, wanted=wanted)
    assert len(names) == len(functions)


@pytest.mark.parametrize(
    ("nodes", "common"),
    [
        pytest.param(("/dev/nvme0n1", "/dev/nvme0n1"), "/dev/nvme0n1", id="with-multipath"),
        pytest.param(("/dev/nvme0n1", "/dev/nvme1n1"), NQN, id="without-multipath"),
    ],
)
def test_a_disk_with_two_controllers_is_offered_once(nodes, common):
    paths = (
        card(
            address=f"0000:0{number}:00.0",
            device_class=DeviceClass.NVME,
            nvme="61X0A003TCD8",
            identifiers=cards.identifiers(Kind.NVME_NQN, NQN),
            device_nodes=(file(path, block=True),),
        )
        for number, path in enumerate(nodes, 1)
    )
    names, refused = choose_residents(*paths, wanted=selections.Selection(classes=("nvme",)))
    assert names == {"nvme-0000-01-00-0"}
    assert refused == {
        "nvme-0000-02-00-0": f"it has {common} in common with nvme-0000-01-00-0, which is offered"
    }
