"""The rules of 1.31 that a driver's controller never breaks; the contract has those of both classic releases."""

from collections.abc import Iterator
from typing import Any

import pytest

from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import alpharequests

Json = dict[str, Any]
INVALID, REQUIRED, DUPLICATE = "FieldValueInvalid", "FieldValueRequired", "FieldValueDuplicate"
LONG, UNSUPPORTED = "FieldValueTooLong", "FieldValueNotSupported"
NO_TERM: Json = {"nodeSelectorTerms": []}
NODE: Json = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
}
ONE = {"name": "one", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}
RESULT = {"request": "one", "driver": "a.dev", "pool": "p", "device": "d"}
OPAQUE = {"opaque": {"driver": "a.dev", "parameters": {}}}


def fields_and_reasons(causes: Iterator[Cause]) -> list[tuple[str, str]]:
    return [(cause.field, cause.reason) for cause in causes]


@pytest.mark.parametrize(
    ("devices", "complaints"),
    [
        ({"requests": [ONE]}, []),
        ({"requests": [ONE, ONE]}, [("requests[1].name", DUPLICATE)]),
        ({"requests": [{**ONE, "name": f"n{number}"} for number in range(33)]}, [("requests", LONG)]),
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
