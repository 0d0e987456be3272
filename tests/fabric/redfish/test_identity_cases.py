"""Real managers' words about devices, and the identifiers that each declares."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric import contract, witnesses
from drawbar.fabric.grpc import conversion
from drawbar.fabric.redfish import entities, identities, models
from drawbar.fabric.redfish.documents import Document
from drawbar.proto.fabric.v1alpha1 import fabric_pb2 as pb

CASES = json.loads((Path(__file__).parents[2] / "cases" / "identity" / "fabric.json").read_text())
REDFISH = [case for case in CASES if "redfish" in case]
ADAPTERS = [case for case in CASES if "adapter" in case]
SCHEMAS = (
    "Assembly",
    "Drive",
    "EthernetInterface",
    "Memory",
    "NetworkAdapter",
    "NetworkDeviceFunction",
    "NetworkPort",
    "PCIeDevice",
    "PCIeFunction",
    "Port",
    "Processor",
    "StorageController",
)


def parametrize_cases(cases):
    return pytest.mark.parametrize("case", cases, ids=[case["id"] for case in cases])


def documents(resources):
    """Return the resources as they are read: functions that came with a PCIe device are documents of their own."""
    listed = [Document.from_json(each) for each in resources]
    inline = [each.objects("PCIeFunctions", "Members") for each in listed]
    return [*listed, *(Document.from_json(function) for functions in inline for function in functions)]


def summary(device):
    pci_id = (
        "" if device.pci_vendor_id is None else f"{device.pci_vendor_id:04x}:{device.pci_device_id or 0:04x}"
    )
    shown = {}
    for each in device.identifiers:
        shown.setdefault(each.kind.value, []).append(each.value)
    return {"class": device.device_class.value, "pciID": pci_id, "identifiers": shown}


@parametrize_cases(REDFISH)
def test_each_number_of_a_redfish_service_has_its_kind(case):
    assert summary(entities.device("d", Document(uri="/e"), documents(case["redfish"]))) == case["identity"]


@parametrize_cases(REDFISH)
def test_the_order_of_the_resources_changes_nothing(case):
    for listed in itertools.permutations(documents(case["redfish"])):
        device = entities.device("d", Document(uri="/e"), listed)
        assert summary(device)["class"] == case["identity"]["class"]
        assert {(each.kind.value, each.value) for each in device.identifiers} == {
            (kind, value) for kind, values in case["identity"]["identifiers"].items() for value in values
        }


@parametrize_cases(ADAPTERS)
def test_each_number_of_another_manager_has_its_kind_on_the_wire(case):
    shown = case["adapter"]
    vendor, device_id = (int(part, 16) for part in shown.get("pciID", "0:0").split(":"))
    message = pb.Device(
        id="d",
        device_class=f"DEVICE_CLASS_{shown['class'].upper().replace('-', '_')}",
        pci_vendor_id=vendor,
        pci_device_id=device_id,
        serial=shown.get("serial", ""),
        identifiers=[
            pb.Identifier(kind=f"IDENTIFIER_KIND_{kind.upper().replace('-', '_')}", value=value)
            for kind, value in shown.get("identifiers", {}).items()
        ],
    )
    assert summary(conversion.device(message)) == case["identity"]


def test_a_label_of_a_slot_in_the_chassis_is_no_slot_of_a_host():
    (case,) = (case for case in REDFISH if case["id"] == "service-label-is-not-the-kernels-slot")
    assert entities.device("d", Document(uri="/e"), documents(case["redfish"])).connection is None


@pytest.mark.parametrize("order", [1, -1])
def test_people_see_the_serial_number_of_the_drive(order):
    (case,) = (case for case in REDFISH if case["id"].startswith("dell-nvme"))
    device = entities.device("d", Document(uri="/e"), documents(case["redfish"])[::order])
    assert device.serial == "61X0A003TCD8"


def test_people_see_the_printed_serial_number_of_memory():
    (case,) = (case for case in REDFISH if case["id"] == "cxl-gcxlid")
    assert entities.device("d", Document(uri="/e"), documents(case["redfish"])).serial == "CMMD-A07713"


@pytest.mark.parametrize("shown", ["N/A", " ", "To Be Filled By O.E.M.", "0000000000", "Unknown"])
def test_people_see_no_placeholder(shown):
    part = Document.from_json(
        {"@odata.type": "#Processor.v1_20_0.Processor", "SerialNumber": shown, "Model": "N/A"}
    )
    device = entities.device("d", Document(uri="/e", body={"Name": "GPU 1"}), [part])
    assert (device.serial, device.model, device.identifiers) == (None, "GPU 1", ())


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (("0x10DE", "0x2330"), (0x10DE, 0x2330)),
        (("10DE", "2324"), (0x10DE, 0x2324)),
        (("8086", "1592"), (0x8086, 0x1592)),
        (("5555", "4129"), (0x15B3, 0x1021)),
        (("32902", "5522"), (0x8086, 0x1592)),
        ((5555, 4129), (0x15B3, 0x1021)),
        (("4660", "1"), (None, None)),
        (("0x0000", "0x0000"), (None, None)),
        (("0xffff", "0xffff"), (None, None)),
        (("0x10de", "0x0000"), (0x10DE, None)),
        (("", "0x2330"), (None, None)),
        ((None, 7), (None, None)),
        ((True, True), (None, None)),
        ((1 << 64, -1), (None, None)),
    ],
)
def test_pci_ids_are_read_in_the_notation_of_their_manager(ids, expected):
    part = Document(uri="/f", body={"VendorId": ids[0], "DeviceId": ids[1]})
    read = models.pci_ids(Document(uri="/e"), [part])
    assert (read.vendor, read.device) == expected


def test_the_ids_of_two_functions_are_not_mixed():
    parts = [Document(uri="/f", body={"VendorId": "0x10de", "DeviceId": "0x0000"})]
    parts.append(Document(uri="/g", body={"VendorId": "0x15b3", "DeviceId": "0x1021"}))
    assert models.pci_ids(Document(uri="/e"), parts) == models.PciIds(vendor=0x15B3, device=0x1021)


@pytest.mark.parametrize("key", ["EntityPciId", "PciId"])
def test_pci_ids_of_an_endpoint_are_those_of_its_entity(key):
    described = {"VendorId": "0x144d", "DeviceId": "0xa824", "ClassCode": "0x010802"}
    inside = Document(uri="/e", body={"ConnectedEntities": [{key: described}]})
    assert models.pci_ids(inside, ()) == models.PciIds(vendor=0x144D, device=0xA824)
    assert models.device_class(inside, ()) is contract.DeviceClass.NVME
    outside = Document(uri="/e", body={"PciId": described})
    assert models.pci_ids(outside, ()) == models.PciIds(vendor=0x144D, device=0xA824)


@pytest.mark.parametrize(
    ("class_code", "named_class", "expected"),
    [
        ("0x020700", None, "nic"),
        ("0302", None, "gpu"),
        ("0x00030200", None, "gpu"),
        (0x030200, None, "gpu"),
        (3, None, "gpu"),
        ("3", None, "gpu"),
        ("0x03", None, "gpu"),
        ("0x000003", None, "gpu"),
        ("0x000003", "DisplayController", "gpu"),
        ("0x000203", "DisplayController", "gpu"),
        ("0x000108", None, "nvme"),
        ("0x000302", None, "other"),
        ("0x000302", "NetworkController", "nic"),
        ("0x888888", None, "other"),
        ("0x888888", "NetworkController", "nic"),
        ("12", None, "other"),
        ("0x12", None, "accelerator"),
        ("2", "DisplayController", "gpu"),
        ("0x000001", "MassStorageController", "other"),
        ("0x000801", "MassStorageController", "nvme"),
        ("0x0c0330", "ProcessingAccelerators", "other"),
        (None, "ProcessingAccelerators", "accelerator"),
        (None, "MemoryController", "other"),
        (None, "displaycontroller", "gpu"),
        (None, "Display Controller", "gpu"),
        ([], {}, "other"),
        (1 << 64, None, "other"),
    ],
)
def test_class_codes_are_read_in_the_form_of_their_manager(class_code, named_class, expected):
    part = Document(uri="/f", body={"ClassCode": class_code, "DeviceClass": named_class})
    assert models.device_class(Document(uri="/e"), [part]).value == expected


@pytest.mark.parametrize("protocol", ["NVMe", "NVME", "nvme", "PCIE"])
@pytest.mark.parametrize("name_format", ["EUI", "eui"])
def test_values_of_enumerations_are_read_in_any_case(protocol, name_format):
    name = {"DurableNameFormat": name_format, "DurableName": "0025388411b00001"}
    drive = {"@odata.type": "#Drive.v1_0_0.Drive", "SerialNumber": "S64GNA0R1", "Identifiers": [name]}
    made = entities.device("d", Document(uri="/e"), [Document(uri="/d", body=drive | {"Protocol": protocol})])
    assert [(each.kind.value, each.value) for each in made.identifiers] == [
        ("eui64", "0025388411b00001"),
        ("nvme-serial", "s64gna0r1"),
    ]


@pytest.mark.parametrize("name", ["{%s}", "urn:uuid:%s", "%s"])
def test_a_uuid_of_a_drive_is_read_in_any_form(name):
    uuid = "a1b2c3d4-5678-90ab-cdef-1234567890ab"
    names = [{"DurableNameFormat": "UUID", "DurableName": name % uuid.upper()}]
    drive = {"@odata.type": "#Drive.v1_0_0.Drive", "Protocol": "NVMe", "Identifiers": names}
    (shown,) = entities.device("d", Document(uri="/e"), [Document(uri="/d", body=drive)]).identifiers
    assert shown.value == f"nvme-uuid={uuid}"


@pytest.mark.parametrize("permanent", [None, "", "N/A", "00:00:00:00:00:00"])
def test_a_current_address_stands_in_for_a_placeholder(permanent):
    ethernet = {"PermanentMACAddress": permanent, "MACAddress": "B8:59:9F:11:22:33"}
    part = {"@odata.type": "#NetworkDeviceFunction.v1_0_0.NetworkDeviceFunction", "Ethernet": ethernet}
    (shown,) = entities.device("d", Document(uri="/e"), [Document(uri="/d", body=part)]).identifiers
    assert shown.value == "b8:59:9f:11:22:33"


def test_pci_ids_are_read_by_the_names_of_hpe():
    part = {"VendorID": 4318, "DeviceID": 9008, "ClassCode": 3, "SubclassCode": 2}
    assert models.pci_ids(Document(uri="/e"), [Document(uri="/d", body=part)]) == models.PciIds(
        vendor=0x10DE, device=0x2330
    )


@pytest.mark.parametrize(
    ("uri", "shown", "schema"),
    [
        ("/redfish/v1/Chassis/1/Drives/1", None, "Drive"),
        ("/redfish/v1/Systems/1/Processors/GPU1", None, "Processor"),
        ("/redfish/v1/Systems/1/Processors/GPU1", "#AcmeGpu.v1_0_0.AcmeGpu", "Processor"),
        ("/redfish/v1/Chassis/1/Drives/1", "", "Drive"),
        ("/redfish/v1/Chassis/1/PCIeDevices/1", "#Processor.v1_0_0.Processor", "Processor"),
        ("/redfish/v1/Chassis/1", None, ""),
        ("/redfish/v1/Chassis/1", "#Chassis.v1_0_0.Chassis", "Chassis"),
        ("/e", None, ""),
    ],
)
def test_a_resource_without_a_known_type_has_that_of_its_place(uri, shown, schema):
    assert models.schema(Document(uri=uri, body={"@odata.type": shown})) == schema


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=40),
    st.sampled_from(
        ("N/A", "GPU-", "\x00" * 20, "9f" * 70_000, "9f-21-0f-69-a4-2d-b0-48", "0x1234", "NVMe", "GPU")
    ),
)
names = st.sampled_from(
    [
        "AssociatedMACAddresses",
        "AssociatedNodeGUIDs",
        "AssociatedNetworkAddresses",
        "Assemblies",
        "Assembly",
        "ClassCode",
        "ConnectedEntities",
        "Controllers",
        "CXLDevice",
        "DeviceClass",
        "DeviceId",
        "DeviceType",
        "Drives",
        "DurableName",
        "DurableNameFormat",
        "EntityPciId",
        "EntityType",
        "Ethernet",
        "Identifiers",
        "InfiniBand",
        "Links",
        "MACAddress",
        "Manufacturer",
        "Model",
        "Name",
        "NetworkDeviceFunctions",
        "NodeGUID",
        "PartNumber",
        "PciId",
        "PermanentMACAddress",
        "Ports",
        "ProcessorType",
        "Protocol",
        "SerialNumber",
        "UUID",
        "VendorId",
        "@odata.id",
    ]
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5),
    max_leaves=15,
)
resources = st.builds(
    lambda schema, body: Document.from_json({**body, "@odata.type": f"#{schema}.v1_0_0.{schema}"}),
    st.sampled_from(SCHEMAS),
    st.dictionaries(names, values, max_size=8),
)


@given(origin=resources, parts=st.lists(resources, max_size=6))
def test_any_document_gives_bounded_identifiers_in_their_normal_forms(origin, parts):
    device = entities.device("d", origin, parts)
    assert len(device.identifiers) <= witnesses.IDENTIFIERS_MAX
    assert len({(each.kind, each.value) for each in device.identifiers}) == len(device.identifiers)
    for each in device.identifiers:
        assert each.value
        assert witnesses.normal(each.kind, each.value) == each.value
        assert len(each.value) <= witnesses.VALUE_MAX
        assert len(each.source.encode()) <= contract.STRING_BYTES
    more = identities.find_more(device.device_class, parts)
    assert len(more.resources) <= 16
    conversion.device(conversion.device_message(device))


def test_thousands_of_addresses_are_bounded():
    addresses = [f"94:6d:ae:00:{number >> 8:02x}:{number & 255:02x}" for number in range(5000)]
    body = {"@odata.type": "#Port.v1_9_0.Port", "Ethernet": {"AssociatedMACAddresses": addresses}}
    parts = [Document(uri=f"/p{number}", body=body) for number in range(200)]
    device = entities.device("d", Document(uri="/e"), parts)
    assert 0 < len(device.identifiers) <= witnesses.IDENTIFIERS_MAX
