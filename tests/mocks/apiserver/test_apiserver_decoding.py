"""What the server makes of a body: types, unknown and repeated fields, times and quantities."""

from typing import Any

import pytest

from drawbar.mocks.apiserver import profiles, quantities, timestamps, typetable

MAPS = "/api/v1/namespaces/default/configmaps"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


async def send_raw(
    api: Any, method: str, path: str, body: Any, kind: str = "application/json", **query: str
) -> Any:
    """Return the status, the body and the warnings of an answer."""
    import json

    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {**api.headers, "Content-Type": kind}
    url = api.server.url + path
    async with api.session.request(method, url, data=data, headers=headers, params=query) as response:
        return response.status, await response.json(), response.headers.getall("Warning", [])


async def test_unknown_fields_are_dropped_with_a_warning_unless_asked_otherwise(api: Any) -> None:
    body = {"metadata": {"name": "a", "colour": "red"}, "data": {"k": "v"}, "extra": 1}
    code, made, warnings = await send_raw(api, "POST", MAPS, body)
    assert (code, "extra" in made, "colour" in made["metadata"]) == (201, False, False)
    assert warnings == ['299 - "unknown field \\"metadata.colour\\""', '299 - "unknown field \\"extra\\""']
    body["metadata"]["name"] = "b"
    code, made, warnings = await send_raw(api, "POST", MAPS, body, fieldValidation="Ignore")
    assert (code, warnings, "extra" in made) == (201, [], False)


async def test_strict_validation_refuses_unknown_fields_in_the_servers_words(
    api: Any, make_slice: Any
) -> None:
    body = make_slice(devices=[{"name": "a", "color": "red"}], taintz=[])
    code, refused, _ = await send_raw(api, "POST", SLICES, body, fieldValidation="Strict")
    assert (code, refused["reason"]) == (400, "BadRequest")
    assert refused["message"] == (
        'ResourceSlice in version "v1" cannot be handled as a ResourceSlice: strict decoding error: '
        'unknown field "spec.devices[0].color", unknown field "spec.taintz"'
    )
    assert (await api.get(SLICES)).body["items"] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"metadata":{"name":"a"},"data":{"k":"1","k":"2"}}', 'duplicate field "data.k"'),
        (b'{"metadata":{"name":"a","name":"b"},"data":{}}', 'duplicate field "metadata.name"'),
    ],
)
async def test_fields_that_stand_twice_are_reported(api: Any, text: bytes, problem: str) -> None:
    code, refused, _ = await send_raw(api, "POST", MAPS, text, fieldValidation="Strict")
    assert (code, refused["message"].endswith(f"strict decoding error: {problem}")) == (400, True)
    code, _, warnings = await send_raw(api, "POST", MAPS, text)
    assert code == 201
    assert problem in warnings[0].replace("\\", "")


async def test_a_patch_with_an_unknown_field_is_invalid_when_strict(api: Any, make_config_map: Any) -> None:
    await api.post(MAPS, make_config_map())
    merge = "application/merge-patch+json"
    code, refused, _ = await send_raw(
        api, "PATCH", f"{MAPS}/one", {"more": 1}, merge, fieldValidation="Strict"
    )
    assert (code, refused["details"]["causes"][0]["field"]) == (422, "patch")
    assert 'strict decoding error: unknown field "more"' in refused["message"]
    code, patched, warnings = await send_raw(
        api, "PATCH", f"{MAPS}/one", {"more": 1, "data": {"x": "y"}}, merge
    )
    assert (code, patched["data"], "more" in patched) == (200, {"x": "y"}, False)
    assert warnings == ['299 - "unknown field \\"more\\""']


async def test_an_undeclared_applied_field_fails_even_without_validation(api: Any) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "more": {}}
    refused = await api.apply(f"{MAPS}/a", body, fieldValidation="Ignore")
    assert refused.code == 500
    assert refused.body["message"] == (
        "failed to create typed patch object (default/a; v1, Kind=ConfigMap): .more: field not declared in schema"
    )


async def test_an_unknown_level_of_validation_is_refused(api: Any, make_config_map: Any) -> None:
    refused = await api.post(MAPS, make_config_map(), fieldValidation="Maybe")
    assert refused.code == 422
    assert refused.body["message"].startswith('CreateOptions.meta.k8s.io "" is invalid: fieldValidation: ')


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"driver": 1},
            "json: cannot unmarshal number into Go struct field ResourceSliceSpec.spec.driver of type string",
        ),
        (
            {"devices": {}},
            "json: cannot unmarshal object into Go struct field ResourceSliceSpec.spec.devices of type []v1.Device",
        ),
        (
            {"devices": [{"name": "a", "bindsToNode": "yes"}]},
            "json: cannot unmarshal string into Go struct field Device.spec.devices.bindsToNode of type bool",
        ),
        (
            {"pool": {"name": "p", "generation": 1.5, "resourceSliceCount": 1}},
            "json: cannot unmarshal number 1.5 into Go struct field ResourcePool.spec.pool.generation of type int64",
        ),
        ({"devices": [{"name": "a", "capacity": {"m": {"value": "much"}}}]}, "quantities must match"),
    ],
)
async def test_a_value_of_the_wrong_type_is_a_bad_request(
    api: Any, make_slice: Any, spec: Any, text: Any
) -> None:
    refused = await api.post(SLICES, make_slice(**spec))
    assert (refused.code, refused.body["reason"]) == (400, "BadRequest")
    prefix = 'ResourceSlice in version "v1" cannot be handled as a ResourceSlice: '
    assert refused.body["message"].startswith(prefix + text)


async def test_null_counts_as_absent(api: Any) -> None:
    body = {"metadata": {"name": "a", "creationTimestamp": None, "labels": None}, "data": None}
    made = await api.post(MAPS, body)
    assert (made.code, "data" in made.body, "labels" in made.body["metadata"]) == (201, False, False)


async def test_quantities_and_times_are_stored_in_their_canonical_form(api: Any, make_slice: Any) -> None:
    taint = {"key": "a.dev/b", "effect": "NoSchedule", "timeAdded": "2026-01-01T02:00:00.5+02:00"}
    device = {
        "name": "a",
        "capacity": {"memory": {"value": "81920Mi"}, "lanes": {"value": 16}},
        "taints": [taint],
    }
    made = await api.post(SLICES, make_slice(devices=[device]))
    stored = made.body["spec"]["devices"][0]
    assert stored["capacity"] == {"memory": {"value": "80Gi"}, "lanes": {"value": "16"}}
    assert stored["taints"][0]["timeAdded"] == "2026-01-01T00:00:00Z"


async def test_a_lease_wants_six_digits_of_a_second(api: Any) -> None:
    def lease(stamp: str) -> Any:
        return {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "renewTime": stamp}}

    refused = await api.post(LEASES, lease("2026-01-01T00:00:00Z"))
    assert refused.code == 400
    assert 'parsing time "2026-01-01T00:00:00Z"' in refused.body["message"]
    assert (await api.post(LEASES, lease("2026-01-01T00:00:00.000000Z"))).code == 201


async def test_unknown_fields_of_custom_resources_are_treated_alike(api: Any, definition: Any) -> None:
    await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    path = "/apis/drawbar.dev/v1alpha1/widgets"
    body = {"metadata": {"name": "w", "x": 1}, "spec": {"nodeName": "n", "weight": 1}}
    code, made, warnings = await send_raw(api, "POST", path, body)
    assert (code, "weight" in made["spec"]) == (201, False)
    assert len(warnings) == 2
    body["metadata"]["name"] = "v"
    code, refused, _ = await send_raw(api, "POST", path, body, fieldValidation="Strict")
    assert (code, 'unknown field "spec.weight"' in refused["message"]) == (400, True)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("100000", "100k"),
        ("1e3", "1e3"),
        ("512", "512"),
        ("0.1n", "1n"),
        ("-1024", "-1024"),
        ("1000Ki", "1000Ki"),
        ("0.9765625Ki", "1k"),
        ("16Ei", "9223372036854775807"),
        (16, "16"),
    ],
)
def test_quantities_have_one_canonical_form(text: Any, stored: Any) -> None:
    assert quantities.canonical(text) == stored
    assert quantities.canonical(stored) == stored


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "1GiB", "--1", "1e999", "1" * 65])
def test_an_invalid_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        quantities.canonical(text)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z", "2026-01-01 00:00:00Z"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="parsing time"):
        timestamps.seconds(text)


def test_each_profile_knows_the_fields_of_its_release() -> None:
    tables = {name: typetable.table(profile) for name, profile in profiles.PROFILES.items()}
    spec = {name: set(types.fields("ResourceSliceSpec")) for name, types in tables.items()}
    assert "bindingConditions" in tables["1.34"].fields("Device")  # the gate is off, the type knows it
    assert (
        "ints" in tables["1.34"].fields("DeviceAttribute"),
        "ints" in tables["1.36"].fields("DeviceAttribute"),
    ) == (
        False,
        True,
    )
    assert [name for name in spec if "taints" in spec[name]] == ["kep-5055"]
    assert "taints" not in tables["kep-5055"].fields("Device")


NOT_EMULATED = {
    *("allNodes", "consumesCounters", "nodeAllocatableResources", "nodeName", "nodeSelector"),
    *("partitionTypeAttribute", "perDeviceNodeSelection", "sharedCounters", "skipNodeOperations"),
}


def test_the_table_agrees_with_the_python_client() -> None:
    """The table was made from the client; a new client with other fields fails this test."""
    models = pytest.importorskip("kubernetes.client.models")
    table = typetable.table(profiles.profile("1.37"))
    for model in ("V1ResourceSliceSpec", "V1Device", "V1DeviceTaint", "V1ResourceClaimStatus", "V1LeaseSpec"):
        declared = getattr(models, model)
        names = getattr(declared, "attribute_map", None)
        fields = (
            set(names.values())
            if names
            else {field.serialization_alias or name for name, field in declared.model_fields.items()}
        )
        known = set(table.fields(model.removeprefix("V1")))
        assert known <= fields <= known | NOT_EMULATED, model
