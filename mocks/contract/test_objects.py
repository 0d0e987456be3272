"""Creating, reading, replacing and deleting: the rules that hold for every kind."""

import pytest

STALE = "1"


async def test_a_created_object_gets_uid_time_and_version(world):
    made = await world.make("configmaps", data={"a": "1"})
    assert len(made["metadata"]["uid"]) == 36
    assert made["metadata"]["creationTimestamp"].endswith("Z")
    assert int(made["metadata"]["resourceVersion"]) > 0
    assert made["metadata"]["namespace"] == world.namespace


async def test_uid_and_creation_time_in_a_creation_are_ignored(world):
    mine = {"uid": "11111111-1111-1111-1111-111111111111", "creationTimestamp": "2001-01-01T00:00:00Z"}
    made = await world.make("configmaps", metadata=mine)
    assert made["metadata"]["uid"] != mine["uid"]
    assert made["metadata"]["creationTimestamp"] != mine["creationTimestamp"]


async def test_a_name_cannot_be_created_twice(world):
    made = await world.make("configmaps")
    reply = await world.post("configmaps", world.body("configmaps", made["metadata"]["name"]))
    assert (reply.code, reply.reason) == (409, "AlreadyExists")
    assert reply.message == f'configmaps "{made["metadata"]["name"]}" already exists'


async def test_a_deleted_name_can_be_created_again_with_a_new_uid(world):
    made = await world.make("configmaps")
    name = made["metadata"]["name"]
    assert (await world.api.delete(world.path("configmaps", name))).code == 200
    again = await world.make("configmaps", name)
    assert again["metadata"]["uid"] != made["metadata"]["uid"]


async def test_generate_name_adds_five_characters(world):
    base = world.name("g") + "-"
    made = await world.make("configmaps", metadata={"generateName": base})
    assert made["metadata"]["name"].startswith(base)
    assert len(made["metadata"]["name"]) == len(base) + 5
    assert (await world.make("configmaps", metadata={"generateName": base}))["metadata"] != made["metadata"]


async def test_a_long_generate_name_is_cut_to_58_characters(world):
    base = (world.name("g") + "x" * 80)[:80]
    made = await world.make("configmaps", metadata={"generateName": base})
    assert made["metadata"]["name"][:58] == base[:58]
    assert len(made["metadata"]["name"]) == 63


async def test_an_object_without_any_name_is_invalid(world):
    reply = await world.post("configmaps", world.body("configmaps", ""))
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.causes == {"metadata.name": "FieldValueRequired"}


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "dot.", "x" * 254])
async def test_a_name_is_a_dns_subdomain(world, name):
    reply = await world.post("configmaps", world.body("configmaps", name))
    assert reply.code == 422
    assert "metadata.name" in reply.causes


@pytest.mark.parametrize(
    ("key", "value"), [("a b", "x"), ("a/b/c", "x"), ("key", "has space"), ("key", "x" * 64), ("", "x")]
)
async def test_labels_have_their_own_alphabet(world, key, value):
    reply = await world.post(
        "configmaps", world.body("configmaps", world.name(), metadata={"labels": {key: value}})
    )
    assert reply.code == 422
    assert "metadata.labels" in reply.causes


async def test_a_namespace_that_is_not_there_holds_nothing(world):
    missing = world.name("missing")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    reply = await world.api.post(world.path("configmaps", namespace=missing), body)
    assert (reply.code, reply.body["details"]["kind"], reply.body["details"]["name"]) == (
        404,
        "namespaces",
        missing,
    )
    assert reply.message == f'namespaces "{missing}" not found'


async def test_the_namespace_of_the_body_must_be_that_of_the_path(world):
    body = world.body("configmaps", world.name(), metadata={"namespace": "elsewhere"})
    reply = await world.api.post(world.path("configmaps"), body)
    assert (reply.code, reply.reason) == (400, "BadRequest")


async def test_a_creation_with_a_resource_version_is_refused(world):
    reply = await world.post(
        "configmaps", world.body("configmaps", world.name(), metadata={"resourceVersion": "7"})
    )
    assert reply.code == 500
    assert "resourceVersion should not be set" in reply.message


@pytest.mark.needs("v1")
async def test_a_missing_object_is_not_found(world):
    reply = await world.api.get(world.path("resourceclaims", name := world.name()))
    assert (reply.code, reply.reason, reply.body["kind"]) == (404, "NotFound", "Status")
    assert reply.message == f'resourceclaims.resource.k8s.io "{name}" not found'
    assert reply.body["details"] == {"name": name, "group": "resource.k8s.io", "kind": "resourceclaims"}


@pytest.mark.parametrize("body", [b"{", b'["a"]', b"\xff\xfe"])
async def test_a_body_without_an_object_is_a_bad_request(world, body):
    reply = await world.api.post(world.path("configmaps"), body)
    assert reply.code == 400


async def test_a_body_of_another_kind_is_a_bad_request(world):
    body = {**world.body("configmaps", world.name()), "kind": "Secret"}
    assert (await world.api.post(world.path("configmaps"), body)).code == 400


async def test_a_body_of_an_unknown_media_type_is_not_supported(world):
    reply = await world.api.send("POST", world.path("configmaps"), b"a: b", kind="text/plain")
    assert reply.code == 415


async def test_yaml_is_accepted_as_a_body(world):
    name = world.name()
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  a: '1'\n".encode()
    world.remember(world.path("configmaps", name))
    reply = await world.api.send("POST", world.path("configmaps"), text, kind="application/yaml")
    assert (reply.code, reply.body["data"]) == (201, {"a": "1"})


async def test_a_replacement_with_the_current_version_succeeds_and_moves_it(world):
    made = await world.make("configmaps", data={"a": "1"})
    reply = await world.api.put(
        world.path("configmaps", made["metadata"]["name"]), {**made, "data": {"b": "2"}}
    )
    assert (reply.code, reply.body["data"]) == (200, {"b": "2"})
    assert int(reply.version) > int(made["metadata"]["resourceVersion"])


async def test_a_replacement_with_an_old_version_is_a_conflict(world):
    made = await world.make("configmaps", data={"a": "1"})
    path = world.path("configmaps", made["metadata"]["name"])
    assert (await world.api.put(path, {**made, "data": {"a": "2"}})).code == 200
    reply = await world.api.put(path, {**made, "data": {"a": "3"}})
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert "the object has been modified" in reply.message


async def test_a_replacement_without_a_version_overwrites_a_built_in_object(world):
    made = await world.make("configmaps", data={"a": "1"})
    name = made["metadata"]["name"]
    reply = await world.api.put(
        world.path("configmaps", name), world.body("configmaps", name, data={"z": "9"})
    )
    assert (reply.code, reply.body["data"]) == (200, {"z": "9"})
    assert reply.body["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_replacement_with_another_uid_is_a_conflict(world):
    made = await world.make("configmaps")
    other = {**made["metadata"], "uid": "11111111-1111-1111-1111-111111111111"}
    reply = await world.api.put(world.path("configmaps", other["name"]), {**made, "metadata": other})
    assert (reply.code, reply.reason) == (409, "Conflict")


async def test_a_replacement_that_changes_nothing_keeps_the_version(world):
    made = await world.make("configmaps", data={"a": "1"})
    reply = await world.api.put(world.path("configmaps", made["metadata"]["name"]), made)
    assert (reply.code, reply.version) == (200, made["metadata"]["resourceVersion"])


async def test_a_replacement_under_another_name_is_a_bad_request(world):
    made = await world.make("configmaps")
    other = {**made, "metadata": {**made["metadata"], "name": "other"}}
    assert (await world.api.put(world.path("configmaps", made["metadata"]["name"]), other)).code == 400


async def test_replacing_a_missing_object_does_not_create_most_kinds(world):
    body = world.body("configmaps", name := world.name())
    assert (await world.api.put(world.path("configmaps", name), body)).code == 404


async def test_replacing_a_missing_lease_creates_it(world):
    body = world.body("leases", name := world.name(), spec={"holderIdentity": "a"})
    world.remember(world.path("leases", name))
    assert (await world.api.put(world.path("leases", name), body)).code == 201


@pytest.mark.parametrize(
    ("key", "label", "fate"),
    [("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")],
)
async def test_a_deletion_meant_for_another_object_is_a_conflict(world, key, label, fate):
    made = await world.make("configmaps")
    path = world.path("configmaps", made["metadata"]["name"])
    reply = await world.api.delete(path, {"preconditions": {key: STALE}})
    assert (reply.code, reply.reason) == (409, "Conflict")
    name, held = made["metadata"]["name"], made["metadata"][key]
    assert reply.message == (
        f'Operation cannot be fulfilled on ConfigMap "{name}": the {label} in the precondition ({STALE}) does not match '
        f"the {label} in record ({held}). The object might have been {fate}"
    )
    assert (await world.api.get(path)).code == 200


async def test_a_deletion_with_fitting_preconditions_deletes(world):
    made = await world.make("configmaps")
    fitting = {key: made["metadata"][key] for key in ("uid", "resourceVersion")}
    path = world.path("configmaps", made["metadata"]["name"])
    assert (await world.api.delete(path, {"preconditions": fitting})).code == 200
    assert (await world.api.get(path)).code == 404


async def test_a_deletion_is_answered_with_a_success_that_names_the_uid(world):
    made = await world.make("configmaps")
    reply = await world.api.delete(world.path("configmaps", made["metadata"]["name"]))
    assert (reply.body["kind"], reply.body["status"]) == ("Status", "Success")
    assert reply.body["details"]["uid"] == made["metadata"]["uid"]


async def test_deleting_a_missing_object_is_not_found(world):
    assert (await world.api.delete(world.path("configmaps", world.name()))).code == 404


async def test_a_finalizer_holds_a_deleted_object_until_it_is_removed(world):
    made = await world.make("configmaps", metadata={"finalizers": ["contract.drawbar.dev/hold"]})
    path = world.path("configmaps", made["metadata"]["name"])
    assert (await world.api.delete(path)).code == 200
    held = await world.api.get(path)
    assert held.body["metadata"]["deletionTimestamp"]
    assert held.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await world.api.merge(path, {"metadata": {"finalizers": []}})).code == 200
    assert (await world.api.get(path)).code == 404


async def test_a_deleted_object_may_still_change_but_gets_no_new_finalizer(world):
    made = await world.make("configmaps", metadata={"finalizers": ["contract.drawbar.dev/hold"]})
    path = world.path("configmaps", made["metadata"]["name"])
    await world.api.delete(path)
    assert (await world.api.merge(path, {"data": {"a": "1"}})).code == 200
    both = ["contract.drawbar.dev/hold", "contract.drawbar.dev/more"]
    reply = await world.api.merge(path, {"metadata": {"finalizers": both}})
    assert (reply.code, reply.causes) == (422, {"metadata.finalizers": "FieldValueForbidden"})
    assert "no new finalizers can be added" in reply.message


async def test_a_second_deletion_of_a_held_object_keeps_the_first_time(world):
    made = await world.make("configmaps", metadata={"finalizers": ["contract.drawbar.dev/hold"]})
    path = world.path("configmaps", made["metadata"]["name"])
    await world.api.delete(path)
    first = (await world.api.get(path)).body
    assert (await world.api.delete(path)).code == 200
    assert (await world.api.get(path)).body == first


async def test_a_finalizer_has_a_qualified_name(world):
    reply = await world.post(
        "configmaps", world.body("configmaps", world.name(), metadata={"finalizers": ["a b"]})
    )
    assert reply.code == 422


async def test_a_dry_run_answers_as_if_and_stores_nothing(world):
    body = world.body("configmaps", name := world.name(), data={"a": "1"})
    reply = await world.post("configmaps", body, dryRun="All")
    assert (reply.code, reply.body["data"]) == (201, {"a": "1"})
    assert reply.body["metadata"]["uid"]
    assert (await world.api.get(world.path("configmaps", name))).code == 404


async def test_a_dry_run_changes_and_deletes_nothing(world):
    made = await world.make("configmaps", data={"a": "1"})
    path = world.path("configmaps", made["metadata"]["name"])
    patched = await world.api.merge(path, {"data": {"a": "2"}}, dryRun="All")
    assert patched.body["data"] == {"a": "2"}
    assert (await world.api.delete(path, dryRun="All")).code == 200
    assert (await world.api.get(path)).body == made


async def test_the_body_of_a_deletion_says_whether_it_is_a_dry_run(world):
    made = await world.make("configmaps")
    path = world.path("configmaps", made["metadata"]["name"])
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert (await world.api.delete(path, options | {"dryRun": ["All"]})).code == 200
    assert (await world.api.get(path)).body == made
    reply = await world.api.delete(path, options | {"dryRun": ["Some"]})
    assert (reply.code, reply.causes) == (422, {"dryRun": "FieldValueNotSupported"})
    assert (await world.api.get(path)).body == made


async def test_beside_the_body_of_a_deletion_options_in_the_query_do_not_count(world):
    made = await world.make("configmaps")
    path = world.path("configmaps", made["metadata"]["name"])
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert (await world.api.delete(path, options, dryRun="All")).code == 200
    assert (await world.api.get(path)).code == 404


async def test_a_dry_run_of_some_other_word_is_invalid(world):
    reply = await world.post("configmaps", world.body("configmaps", world.name()), dryRun="Some")
    assert (reply.code, reply.causes) == (422, {"dryRun": "FieldValueNotSupported"})


async def test_an_unknown_field_is_dropped_with_a_warning(world):
    body = world.body("configmaps", world.name(), colour="red")
    reply = await world.post("configmaps", body)
    assert reply.code == 201
    assert "colour" not in reply.body
    assert r"unknown field \"colour\"" in reply.headers["Warning"]


async def test_an_unknown_field_is_dropped_silently_if_asked(world):
    reply = await world.post(
        "configmaps", world.body("configmaps", world.name(), colour="red"), fieldValidation="Ignore"
    )
    assert (reply.code, "Warning" in reply.headers, "colour" in reply.body) == (201, False, False)


async def test_an_unknown_field_is_refused_if_validation_is_strict(world):
    body = world.body("configmaps", world.name(), colour="red")
    reply = await world.post("configmaps", body, fieldValidation="Strict")
    assert (reply.code, reply.reason) == (400, "BadRequest")
    assert 'unknown field "colour"' in reply.message


async def test_a_value_of_the_wrong_type_is_a_bad_request(world):
    reply = await world.post("configmaps", world.body("configmaps", world.name(), data={"a": 1}))
    assert (reply.code, reply.reason) == (400, "BadRequest")


async def test_a_collection_is_deleted_by_selector(world):
    group = {"labels": {"contract.drawbar.dev/group": world.name()}}
    selector = f"contract.drawbar.dev/group={group['labels']['contract.drawbar.dev/group']}"
    doomed = [await world.make("configmaps", metadata=group) for _ in range(2)]
    spared = await world.make("configmaps")
    assert (await world.api.delete(world.path("configmaps"), labelSelector=selector)).code == 200
    for deleted in doomed:
        assert (await world.api.get(world.path("configmaps", deleted["metadata"]["name"]))).code == 404
    assert (await world.api.get(world.path("configmaps", spared["metadata"]["name"]))).code == 200


async def test_the_status_of_an_object_is_written_through_its_subresource_alone(world):
    made = await world.make("nodes", spec={"unschedulable": True})
    path = world.path("nodes", made["metadata"]["name"])
    # Controllers write Nodes, too: no version, no conflict.
    del made["metadata"]["resourceVersion"]
    changed = {**made, "spec": {}, "status": {"capacity": {"cpu": "3"}}}
    status = await world.api.put(world.path("nodes", made["metadata"]["name"], "status"), changed)
    assert status.code == 200, status.body
    assert status.body["status"]["capacity"] == {"cpu": "3"}
    assert status.body["spec"]["unschedulable"] is True
    current = (await world.api.get(path)).body
    del current["metadata"]["resourceVersion"]
    spec = await world.api.put(
        path, {**current, "spec": {"podCIDR": ""}, "status": {"capacity": {"cpu": "9"}}}
    )
    assert spec.body["status"]["capacity"] == {"cpu": "3"}


async def test_a_node_is_created_with_its_status_and_other_kinds_without(world):
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    node = await world.make("nodes", status={"conditions": [ready], "nodeInfo": {"systemUUID": "abc"}})
    (stored,) = node["status"]["conditions"]
    assert ready.items() <= stored.items()
    assert node["status"]["nodeInfo"]["systemUUID"] == "abc"
    budget = await world.make(
        "poddisruptionbudgets", spec={"minAvailable": 1}, status={"disruptionsAllowed": 7}
    )
    assert budget.get("status", {}).get("disruptionsAllowed", 0) == 0


async def test_a_heartbeat_changes_one_condition_of_a_node_and_keeps_the_others(world):
    pressure = {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting"}
    made = await world.make("nodes", status={"conditions": [pressure, ready]})
    beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-02T00:00:00Z"}
    path = world.path("nodes", made["metadata"]["name"], "status")
    reply = await world.api.strategic(path, {"status": {"conditions": [beat]}})
    assert reply.code == 200, reply.body
    first, second = reply.body["status"]["conditions"]
    assert pressure.items() <= first.items()
    assert {**ready, **beat}.items() <= second.items()


@pytest.mark.needs("v1")
async def test_the_generation_counts_changes_of_the_spec_alone(world):
    made = await world.make("deviceclasses", spec={})
    path = world.path("deviceclasses", made["metadata"]["name"])
    assert made["metadata"]["generation"] == 1
    labelled = await world.api.merge(path, {"metadata": {"labels": {"a": "b"}}})
    assert labelled.body["metadata"]["generation"] == 1
    selector = {"cel": {"expression": "true"}}
    changed = await world.api.merge(path, {"spec": {"selectors": [selector]}})
    assert changed.body["metadata"]["generation"] == 2


async def test_the_text_of_a_secret_is_stored_as_data(world):
    made = await world.make("secrets", stringData={"a": "1"})
    assert made["data"] == {"a": "MQ=="}
    assert "stringData" not in made
    assert made["type"] == "Opaque"


async def test_a_secret_that_is_replaced_without_a_type_keeps_it(world):
    made = await world.make("secrets", data={"a": "MQ=="})
    path = world.path("secrets", made["metadata"]["name"])
    bare = {key: value for key, value in made.items() if key != "type"} | {"data": {"a": "Mg=="}}
    replaced = await world.api.put(path, bare)
    assert (replaced.code, replaced.body["type"], replaced.body["data"]) == (200, "Opaque", {"a": "Mg=="})


async def test_an_immutable_config_map_does_not_change(world):
    made = await world.make("configmaps", data={"a": "1"}, immutable=True)
    reply = await world.api.merge(world.path("configmaps", made["metadata"]["name"]), {"data": {"a": "2"}})
    assert (reply.code, reply.causes) == (422, {"data": "FieldValueForbidden"})


async def test_a_lease_keeps_microseconds_and_wants_a_positive_duration(world):
    moment = "2026-01-01T00:00:00.123456Z"
    made = await world.make(
        "leases", spec={"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": moment}
    )
    assert made["spec"]["renewTime"] == moment
    bad = await world.post("leases", world.body("leases", world.name(), spec={"leaseDurationSeconds": 0}))
    assert (bad.code, bad.causes) == (422, {"spec.leaseDurationSeconds": "FieldValueInvalid"})


async def test_only_one_of_two_candidates_takes_a_lease(world):
    made = await world.make("leases", spec={"holderIdentity": "former-holder", "leaseDurationSeconds": 15})
    path = world.path("leases", made["metadata"]["name"])
    codes = []
    for candidate in ("first", "second"):
        reply = await world.api.put(path, {**made, "spec": {**made["spec"], "holderIdentity": candidate}})
        codes.append(reply.code)
    assert codes == [200, 409]
    assert (await world.api.get(path)).body["spec"]["holderIdentity"] == "first"


def event(world, **fields):
    regarding = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": world.namespace}
    whole = {
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "contract.drawbar.dev/suite",
        "reportingInstance": "one",
        "action": "Testing",
        "reason": "Tested",
        "type": "Normal",
        "note": "a note",
        "regarding": regarding,
        **fields,
    }
    return world.body(
        "events", world.name(), **{key: value for key, value in whole.items() if value is not None}
    )


async def test_an_event_of_the_new_group_is_also_one_of_the_core_group(world):
    reply = await world.post("events", event(world))
    assert reply.code == 201
    name = reply.body["metadata"]["name"]
    core = (await world.api.get(f"/api/v1/namespaces/{world.namespace}/events/{name}")).body
    assert (core["message"], core["involvedObject"]["name"]) == ("a note", "a")
    assert core["reportingComponent"] == "contract.drawbar.dev/suite"


@pytest.mark.parametrize(
    "field", ["reportingController", "reportingInstance", "action", "reason", "eventTime"]
)
async def test_an_event_of_the_new_group_requires_its_reporting_fields(world, field):
    reply = await world.post("events", event(world, **{field: None}))
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert field in reply.causes


async def test_an_event_is_normal_or_a_warning(world):
    reply = await world.post("events", event(world, type="Loud"))
    assert reply.code == 422
    assert "type" in reply.causes


async def test_an_event_without_event_time_needs_its_objects_namespace(world):
    elsewhere = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": "elsewhere"}
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": world.name(), "namespace": world.namespace},
        "involvedObject": elsewhere,
        "reason": "Tested",
        "message": "a note",
        "type": "Normal",
    }
    reply = await world.api.post(f"/api/v1/namespaces/{world.namespace}/events", body)
    assert reply.code == 422
    assert "involvedObject.namespace" in reply.message
