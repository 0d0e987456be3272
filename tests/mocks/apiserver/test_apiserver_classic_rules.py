"""The rules of classic dynamic resource allocation, one change of a valid object at a time; 1.30 first, then 1.31."""

from collections.abc import Iterator
from typing import Any

import pytest

from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import alpharequests, classicclaims, podclaims, resourceclasses

Json = dict[str, Any]
INVALID, REQUIRED, DUPLICATE = "FieldValueInvalid", "FieldValueRequired", "FieldValueDuplicate"
LONG, FORBIDDEN, UNSUPPORTED = "FieldValueTooLong", "FieldValueForbidden", "FieldValueNotSupported"
NO_TERM: Json = {"nodeSelectorTerms": []}
NODE: Json = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
}
POD: Json = {"resource": "pods", "name": "p", "uid": "u"}
MODEL = {"namedResources": {"name": "x", "selector": "true"}}
ONE = {"name": "one", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}
RESULT = {"request": "one", "driver": "a.dev", "pool": "p", "device": "d"}
OPAQUE = {"opaque": {"driver": "a.dev", "parameters": {}}}


def fields_and_reasons(causes: Iterator[Cause]) -> list[tuple[str, str]]:
    return [(cause.field, cause.reason) for cause in causes]


def make_names(number: int) -> list[str]:
    return [f"n{index}" for index in range(number)]


@pytest.mark.parametrize(
    ("change", "complaints"),
    [
        ({}, []),
        ({"allocationMode": "Immediate"}, []),
        ({"allocationMode": "Sometime"}, [("spec.allocationMode", UNSUPPORTED)]),
        ({"resourceClassName": "A b"}, [("spec.resourceClassName", INVALID)]),
        ({"parametersRef": {"kind": "K", "name": "n"}}, []),
        (
            {"parametersRef": {}},
            [("spec.parametersRef.kind", REQUIRED), ("spec.parametersRef.name", REQUIRED)],
        ),
    ],
)
def test_a_claim_names_a_class_and_its_parameters(change: Json, complaints: list[Any]) -> None:
    spec = {"resourceClassName": "c", "allocationMode": "WaitForFirstConsumer", **change}
    assert fields_and_reasons(resourceclasses.claim(spec)) == complaints


@pytest.mark.parametrize(
    ("change", "complaints"),
    [
        ({}, []),
        ({"driverName": ""}, [("driverName", REQUIRED)]),
        ({"driverName": "x" * 64}, [("driverName", LONG)]),
        (
            {"parametersRef": {"kind": "K", "name": "n", "namespace": "A"}},
            [("parametersRef.namespace", INVALID)],
        ),
        ({"suitableNodes": NODE}, []),
        ({"suitableNodes": NO_TERM}, [("suitableNodes.nodeSelectorTerms", REQUIRED)]),
    ],
)
def test_a_class_names_its_driver(change: Json, complaints: list[Any]) -> None:
    assert fields_and_reasons(resourceclasses.resource_class({"driverName": "a.dev", **change})) == complaints


@pytest.mark.parametrize(
    ("allocation", "complaints"),
    [
        ({}, []),
        ({"availableOnNodes": NODE}, []),
        ({"availableOnNodes": NO_TERM}, [("availableOnNodes.nodeSelectorTerms", REQUIRED)]),
        ({"resourceHandles": [{"driverName": "a.dev", "data": "x" * 16384}] * 32}, []),
        ({"resourceHandles": [{"driverName": "a.dev"}] * 33}, [("resourceHandles", LONG)]),
        ({"resourceHandles": [{"data": "x" * 16385}]}, [
            ("resourceHandles[0].driverName", REQUIRED), ("resourceHandles[0].data", LONG)
        ]),
        # Bytes count, not characters.
        ({"resourceHandles": [{"driverName": "a.dev", "data": "ü" * 8193}]}, [("resourceHandles[0].data", LONG)]),
        ({"resourceHandles": [{"driverName": "a.dev", "data": "x", "structuredData": {"results": [MODEL]}}]}, [
            ("resourceHandles[0]", INVALID)
        ]),
        ({"resourceHandles": [{"driverName": "a.dev", "structuredData": {"nodeName": "A", "results": [{}]}}]}, [
            ("resourceHandles[0].structuredData.nodeName", INVALID),
            ("resourceHandles[0].structuredData.results[0]", REQUIRED),
        ]),
    ],
)  # fmt: skip
def test_an_allocation_consists_of_handles_of_drivers(allocation: Json, complaints: list[Any]) -> None:
    status = {"driverName": "a.dev", "allocation": allocation}
    expected = [(f"status.allocation.{field}", reason) for field, reason in complaints]
    assert fields_and_reasons(resourceclasses.claim_status(status, {}, deleted=False)) == expected


def test_a_drivers_name_goes_with_an_allocation() -> None:
    nameless = {"allocation": {}}
    assert fields_and_reasons(resourceclasses.claim_status(nameless, {}, deleted=False)) == [
        ("status.driverName", REQUIRED)
    ]
    wrong = {"driverName": "a b"}
    assert fields_and_reasons(resourceclasses.claim_status(wrong, {}, deleted=False)) == [
        ("status.driverName", INVALID)
    ]


@pytest.mark.parametrize("shareable", [True, False, None])
def test_only_a_shareable_claim_has_two_consumers(shareable: bool | None) -> None:
    reserved = [POD, {**POD, "uid": "v"}]
    status = {"driverName": "a.dev", "allocation": {"shareable": shareable}, "reservedFor": reserved}
    complaints = [] if shareable else [("status.reservedFor", FORBIDDEN)]
    assert fields_and_reasons(resourceclasses.claim_status(status, {}, deleted=False)) == complaints


@pytest.mark.parametrize(
    ("item", "complaints"),
    [
        ({}, []),
        ({"driverRequests": [{"driverName": "a.dev", "requests": [MODEL]}]}, []),
        ({"driverRequests": [{"driverName": "a.dev", "requests": []}] * 2}, [
            ("driverRequests[1].driverName", DUPLICATE),
            ("driverRequests[0].requests", REQUIRED),
            ("driverRequests[1].requests", REQUIRED),
        ]),
        ({"driverRequests": [{"driverName": "a.dev", "requests": [{}]}]}, [
            ("driverRequests[0].requests[0]", REQUIRED)
        ]),
        ({"generatedFrom": {"kind": "K"}}, [("generatedFrom.name", REQUIRED)]),
    ],
)  # fmt: skip
def test_parameters_of_a_claim_are_for_different_drivers(item: Json, complaints: list[Any]) -> None:
    assert fields_and_reasons(resourceclasses.claim_parameters(item)) == complaints


@pytest.mark.parametrize(
    ("item", "complaints"),
    [
        ({"filters": [{"driverName": "a.dev", **MODEL}], "vendorParameters": [{"driverName": "a.dev"}]}, []),
        ({"filters": [{"driverName": "a.dev"}]}, [("filters[0]", REQUIRED)]),
        (
            {"vendorParameters": [{"driverName": "a.dev"}] * 2},
            [("vendorParameters[1].driverName", DUPLICATE)],
        ),
        ({"vendorParameters": [{}]}, [("vendorParameters[0].driverName", REQUIRED)]),
    ],
)
def test_parameters_of_a_class_are_for_different_drivers(item: Json, complaints: list[Any]) -> None:
    assert fields_and_reasons(resourceclasses.class_parameters(item)) == complaints


@pytest.mark.parametrize(
    ("change", "old", "complaints"),
    [
        ({}, None, []),
        ({}, {"nodeName": "n", "driverName": "a.dev"}, []),
        ({}, {"nodeName": "m", "driverName": "b.dev"}, [("nodeName", INVALID), ("driverName", INVALID)]),
        ({"nodeName": "A"}, None, [("nodeName", INVALID)]),
        ({"driverName": ""}, None, [("driverName", REQUIRED)]),
        ({"namedResources": None}, None, [("", REQUIRED)]),
    ],
)
def test_a_slice_of_named_resources_stays_with_its_node(
    change: Json, old: Json | None, complaints: list[Any]
) -> None:
    item = {"nodeName": "n", "driverName": "a.dev", "namedResources": {"instances": []}, **change}
    assert fields_and_reasons(resourceclasses.resource_slice(item, old)) == complaints


@pytest.mark.parametrize(
    ("new", "old", "deleted", "complaints"),
    [
        ({}, {}, False, []),
        ({"reservedFor": [POD]}, {}, False, [("status.reservedFor", FORBIDDEN)]),
        ({"allocation": {}, "reservedFor": [POD]}, {}, False, []),
        ({"allocation": {}, "reservedFor": [POD, POD]}, {}, False, [("status.reservedFor[1].uid", DUPLICATE)]),
        ({"allocation": {}, "reservedFor": [{"uid": "u"}]}, {}, False, [
            ("status.reservedFor[0].resource", REQUIRED), ("status.reservedFor[0].name", REQUIRED)
        ]),
        ({"allocation": {}, "reservedFor": [POD]}, {"allocation": {}}, True, [("status.reservedFor", FORBIDDEN)]),
        ({"allocation": {}, "reservedFor": [POD]}, {"allocation": {}, "reservedFor": [POD]}, True, []),
        ({"allocation": {"controller": "b.dev"}}, {"allocation": {}}, False, [("status.allocation", INVALID)]),
        ({"allocation": {}, "deallocationRequested": True}, {"allocation": {}}, False, []),
        ({"allocation": {}, "deallocationRequested": True, "reservedFor": [POD]},
         {"allocation": {}, "reservedFor": [POD]}, False, [("status.deallocationRequested", FORBIDDEN)]),
        ({"allocation": {}, "deallocationRequested": True, "reservedFor": [POD]},
         {"allocation": {}, "deallocationRequested": True}, False, [("status.reservedFor", FORBIDDEN)]),
        ({"deallocationRequested": True}, {}, False, [("status", FORBIDDEN)]),
        ({"allocation": {}}, {"allocation": {}, "deallocationRequested": True}, False, [
            ("status.deallocationRequested", FORBIDDEN)
        ]),
        ({}, {"allocation": {}, "deallocationRequested": True}, False, []),
    ],
)  # fmt: skip
def test_a_claim_is_asked_back_when_it_has_no_consumer(
    new: Json, old: Json, deleted: bool, complaints: list[Any]
) -> None:
    assert fields_and_reasons(alpharequests.claim_status(new, old, {}, deleted=deleted)) == complaints


@pytest.mark.parametrize(
    ("devices", "complaints"),
    [
        ({"requests": [ONE]}, []),
        ({"requests": [ONE, ONE]}, [("requests[1].name", DUPLICATE)]),
        ({"requests": [{**ONE, "name": name} for name in make_names(33)]}, [("requests", LONG)]),
        ({"requests": [{**ONE, "name": "A"}]}, [("requests[0].name", INVALID)]),
        ({"requests": [{**ONE, "deviceClassName": ""}]}, [("requests[0].deviceClassName", REQUIRED)]),
        ({"requests": [{**ONE, "allocationMode": "All"}]}, [("requests[0].count", INVALID)]),
        ({"requests": [{**ONE, "allocationMode": "Some"}]}, [("requests[0].allocationMode", UNSUPPORTED)]),
        ({"requests": [{**ONE, "selectors": [{}]}]}, [("requests[0].selectors[0].cel", REQUIRED)]),
        ({"requests": [{**ONE, "selectors": [{"cel": {"expression": "device."}}]}]}, [
            ("requests[0].selectors[0].cel.expression", INVALID)
        ]),
        ({"constraints": [{}]}, [("constraints[0].matchAttribute", REQUIRED)]),
        ({"constraints": [{"requests": ["x"], "matchAttribute": "model"}]}, [
            ("constraints[0].requests[0]", INVALID), ("constraints[0].matchAttribute", INVALID)
        ]),
        ({"requests": [ONE], "config": [{"requests": ["one", "one"], **OPAQUE}]}, [
            ("config[0].requests[1]", DUPLICATE)
        ]),
        ({"config": [{}]}, [("config[0].opaque", REQUIRED)]),
        ({"config": [{"opaque": {"parameters": "x"}}]}, [
            ("config[0].opaque.driver", REQUIRED), ("config[0].opaque.driver", INVALID),
            ("config[0].opaque.parameters", INVALID),
        ]),
        ({"config": [{"opaque": {"driver": "a.dev"}}]}, [("config[0].opaque.parameters", REQUIRED)]),
    ],
)  # fmt: skip
def test_a_claim_asks_for_devices_of_classes(devices: Json, complaints: list[Any]) -> None:
    expected = [(f"spec.devices.{field}", reason) for field, reason in complaints]
    assert fields_and_reasons(alpharequests.claim({"devices": devices})) == expected


@pytest.mark.parametrize(
    ("allocation", "complaints"),
    [
        ({"controller": "a.dev", "devices": {"results": [RESULT]}, "nodeSelector": NODE}, []),
        ({"controller": "a b"}, [("controller", INVALID)]),
        ({"nodeSelector": NO_TERM}, [("nodeSelector.nodeSelectorTerms", REQUIRED)]),
        ({"devices": {"results": [RESULT] * 33}}, [("devices.results", LONG)]),
        ({"devices": {"results": [{**RESULT, "request": "two"}]}}, [("devices.results[0].request", INVALID)]),
        ({"devices": {"results": [{"request": "one", "device": "D"}]}}, [
            ("devices.results[0].driver", REQUIRED),
            ("devices.results[0].driver", INVALID),
            ("devices.results[0].pool", REQUIRED),
            ("devices.results[0].device", INVALID),
        ]),
        ({"devices": {"config": [{"source": "FromClaim", **OPAQUE}]}}, []),
        ({"devices": {"config": [OPAQUE]}}, [("devices.config[0].source", REQUIRED)]),
        ({"devices": {"config": [{"source": "FromClass"}]}}, [("devices.config[0].opaque", REQUIRED)]),
        ({"devices": {"config": [{"source": "Me", "requests": ["two"], **OPAQUE}]}}, [
            ("devices.config[0].source", UNSUPPORTED), ("devices.config[0].requests[0]", INVALID)
        ]),
    ],
)  # fmt: skip
def test_an_allocation_answers_the_requests_of_its_claim(allocation: Json, complaints: list[Any]) -> None:
    spec = {"devices": {"requests": [ONE]}}
    reported = fields_and_reasons(
        alpharequests.claim_status({"allocation": allocation}, {}, spec, deleted=False)
    )
    assert reported == [(f"status.allocation.{field}", reason) for field, reason in complaints]


@pytest.mark.parametrize(
    ("spec", "complaints"),
    [
        ({"suitableNodes": NODE, "selectors": [{"cel": {"expression": "device.driver == 'a'"}}]}, []),
        ({"suitableNodes": NO_TERM}, [("suitableNodes.nodeSelectorTerms", REQUIRED)]),
        ({"selectors": [{}]}, [("spec.selectors[0].cel", REQUIRED)]),
        ({"config": [OPAQUE] * 33}, [("spec.config", LONG)]),
    ],
)
def test_a_class_selects_devices_and_nodes(spec: Json, complaints: list[Any]) -> None:
    assert fields_and_reasons(alpharequests.device_class(spec)) == complaints


@pytest.mark.parametrize(
    ("change", "old", "complaints"),
    [
        ({}, None, []),
        ({"driver": "b.dev"}, {}, [("driver", INVALID)]),
        ({"nodeName": None}, None, [("", REQUIRED)]),
        ({"driver": ""}, None, [("driver", REQUIRED), ("driver", INVALID)]),
        ({"nodeName": "A"}, None, [("nodeName", INVALID)]),
        ({"allNodes": True}, None, [("", INVALID)]),
        ({"nodeName": None, "nodeSelector": NODE}, None, []),
        ({"nodeName": None, "nodeSelector": {"nodeSelectorTerms": NODE["nodeSelectorTerms"] * 2}}, None, [
            ("nodeSelector.nodeSelectorTerms", INVALID)
        ]),
        ({"pool": {"name": "p", "generation": -1}}, None, [
            ("pool.resourceSliceCount", INVALID), ("pool.generation", INVALID)
        ]),
        ({"devices": [{"name": "d"}]}, None, [("devices[0].basic", REQUIRED)]),
        ({"devices": [{"name": "d", "basic": {}}] * 2}, None, [("devices[1].name", DUPLICATE)]),
        ({"devices": [{"name": name, "basic": {}} for name in make_names(129)]}, None, [("devices", LONG)]),
        ({"devices": [{"name": "d", "basic": {"attributes": {"m": {"string": "a", "int": 1}}}}]}, None, [
            ("devices[0].basic.attributes[m]", INVALID)
        ]),
        ({"devices": [{"name": "d", "basic": {"capacity": dict.fromkeys(make_names(32), "1")}}]}, None, []),
        ({"devices": [{"name": "d", "basic": {"capacity": dict.fromkeys(make_names(33), "1")}}]}, None, [
            ("devices[0].basic", INVALID)
        ]),
    ],
)  # fmt: skip
def test_a_slice_of_basic_devices_says_who_reaches_them(
    change: Json, old: Json | None, complaints: list[Any]
) -> None:
    whole = {
        "driver": "a.dev",
        "pool": {"name": "p", "generation": 0, "resourceSliceCount": 1},
        "nodeName": "n",
    }
    before = None if old is None else {**whole, **old}
    expected = [(f"spec.{field}" if field else "spec", reason) for field, reason in complaints]
    assert fields_and_reasons(alpharequests.resource_slice({**whole, **change}, before)) == expected


@pytest.mark.parametrize(
    ("spec", "status", "complaints"),
    [
        ({"potentialNodes": make_names(128), "selectedNode": "x"}, {}, []),
        ({"potentialNodes": make_names(129)}, {}, [("spec.potentialNodes", LONG)]),
        ({"potentialNodes": ["a", "a"]}, {}, [("spec.potentialNodes[1]", DUPLICATE)]),
        ({"potentialNodes": ["A"]}, {}, [("spec.potentialNodes[0]", INVALID)]),
        ({}, {"resourceClaims": [{"name": "a", "unsuitableNodes": make_names(128)}, {"name": "b"}]}, []),
        ({}, {"resourceClaims": [{"name": "a"}, {"name": "a"}]}, [("status.claims[1]", DUPLICATE)]),
        ({}, {"resourceClaims": [{"name": "a", "unsuitableNodes": make_names(129)}]}, [
            ("status.claims[0].unsuitableNodes", LONG)
        ]),
    ],
)  # fmt: skip
def test_a_context_lists_128_different_nodes(spec: Json, status: Json, complaints: list[Any]) -> None:
    assert (
        fields_and_reasons(classicclaims.context_spec(spec))
        + fields_and_reasons(classicclaims.context_status(status))
        == complaints
    )


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize(
    ("entries", "complaints"),
    [
        ([("a", {"resourceClaimName": "c"}), ("b", {"resourceClaimTemplateName": "t"})], []),
        ([("a", {"resourceClaimName": "c"})] * 2, [("[1].name", DUPLICATE)]),
        ([("", {"resourceClaimName": "c"})], [("[0].name", REQUIRED)]),
        ([("A", {"resourceClaimName": "c"})], [("[0].name", INVALID)]),
        ([("a" * 63, {"resourceClaimTemplateName": "t"})], [("[0].name", INVALID)]),
        ([("a", {})], [("[0]S", INVALID)]),
        ([("a", {"resourceClaimName": "c", "resourceClaimTemplateName": "t"})], [("[0]S", INVALID)]),
        ([("a", {"resourceClaimName": "C c"})], [("[0]S.resourceClaimName", INVALID)]),
    ],
)
def test_each_claim_of_a_pod_has_one_source(entries: list[Any], complaints: list[Any], nested: bool) -> None:
    claims = [{"name": name, **({"source": source} if nested else source)} for name, source in entries]
    source = ".source" if nested else ""
    expected = [(f"spec.resourceClaims{field.replace('S', source)}", reason) for field, reason in complaints]
    causes = podclaims.validate({"name": "p" * 200}, {"resourceClaims": claims}, nested=nested)
    assert fields_and_reasons(causes) == expected


def test_a_container_uses_claims_of_its_pod() -> None:
    container = {"resources": {"claims": [{"name": "g"}, {"name": "h"}, {}]}}
    spec = {"resourceClaims": [{"name": "g", "resourceClaimName": "c"}], "initContainers": [container]}
    where = "spec.initContainers[0].resources.claims"
    expected = [(f"{where}[1]", "FieldValueNotFound"), (f"{where}[2]", REQUIRED)]
    assert fields_and_reasons(podclaims.validate({}, spec, nested=False)) == expected
