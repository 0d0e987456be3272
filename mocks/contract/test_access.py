"""Access: authentication, roles, reviews."""

import pytest

from contract import api

REVIEWS = "/apis/authorization.k8s.io/v1"
READ = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}


async def ask_until_allowed(world, ask):
    """Return the first answer of a right that was just given; a cluster takes it up within a second."""
    return await world.eventually(ask, lambda reply: reply.code != 403)


async def test_a_token_that_nobody_gave_is_unauthorized(world):
    client = api.Client(
        connection=world.api.connection,
        session=world.api.session,
        anonymous=True,
        extra={"Authorization": "Bearer bogus"},
    )
    reply = await client.get(world.path("configmaps"))
    assert (reply.code, reply.reason) == (401, "Unauthorized")


async def test_without_a_token_nobody_reads_objects(world):
    client = api.Client(connection=world.api.connection, session=world.api.session, anonymous=True)
    assert (await client.get(world.path("configmaps"))).code in (401, 403)


async def test_an_account_without_roles_may_not_list(world):
    reply = await world.acting_as("alice").get(world.path("configmaps"))
    assert (reply.code, reply.reason) == (403, "Forbidden")
    user = world.user("alice")
    words = f'User "{user}" cannot list resource "configmaps" in API group "" in the namespace "{world.namespace}"'
    assert words in reply.message


@pytest.mark.needs("v1")
async def test_an_account_without_roles_may_not_touch_cluster_scoped_objects(world):
    reply = await world.acting_as("alice").get(world.path("resourceslices"))
    assert reply.code == 403
    assert 'in API group "resource.k8s.io" at the cluster scope' in reply.message


async def test_an_account_without_roles_may_discover(world):
    alice = world.acting_as("alice")
    for path in ("/version", "/apis", "/api/v1", "/openapi/v3"):
        assert (await alice.get(path)).code == 200


async def test_a_role_allows_its_verbs_in_its_namespace_alone(world):
    await world.allow("alice", READ)
    alice = world.acting_as("alice")
    assert (await ask_until_allowed(world, lambda: alice.get(world.path("configmaps")))).code == 200
    assert (await alice.post(world.path("configmaps"), world.body("configmaps", world.name()))).code == 403
    assert (await alice.get(world.path("configmaps", namespace="default"))).code == 403
    assert (await alice.get("/api/v1/configmaps")).code == 403
    assert (await alice.get(world.path("secrets"))).code == 403


async def test_a_role_bound_to_one_account_is_not_anothers(world):
    await world.allow("alice", READ)
    await ask_until_allowed(world, lambda: world.acting_as("alice").get(world.path("configmaps")))
    assert (await world.acting_as("bob").get(world.path("configmaps"))).code == 403


async def test_a_cluster_role_bound_for_the_cluster_allows_everywhere(world):
    await world.allow("alice", READ, everywhere=True)
    alice = world.acting_as("alice")
    assert (await ask_until_allowed(world, lambda: alice.get("/api/v1/configmaps"))).code == 200
    assert (await alice.get(world.path("configmaps"))).code == 200


async def test_a_cluster_role_bound_in_a_namespace_allows_there_alone(world):
    role = await world.make("clusterroles", rules=[READ])
    await world.make(
        "rolebindings",
        roleRef={
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": role["metadata"]["name"],
        },
        subjects=[{"kind": "ServiceAccount", "name": "alice", "namespace": world.namespace}],
    )
    alice = world.acting_as("alice")
    assert (await ask_until_allowed(world, lambda: alice.get(world.path("configmaps")))).code == 200
    assert (await alice.get("/api/v1/configmaps")).code == 403


async def test_resource_names_allow_these_objects_alone(world):
    mine, other = await world.make("configmaps"), await world.make("configmaps")
    name = mine["metadata"]["name"]
    await world.allow("alice", {**READ, "resourceNames": [name]})
    alice = world.acting_as("alice")
    assert (await ask_until_allowed(world, lambda: alice.get(world.path("configmaps", name)))).code == 200
    assert (await alice.get(world.path("configmaps", other["metadata"]["name"]))).code == 403
    assert (await alice.get(world.path("configmaps"))).code == 403
    listed = await alice.get(world.path("configmaps"), fieldSelector=f"metadata.name={name}")
    assert (listed.code, listed.names) == (200, [name])


@pytest.mark.needs("v1")
async def test_a_resource_does_not_include_its_subresources(world):
    claim = await world.make("resourceclaims", spec={})
    name = claim["metadata"]["name"]
    rule = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get", "patch"]}
    await world.allow("alice", rule)
    alice = world.acting_as("alice")
    assert (await ask_until_allowed(world, lambda: alice.get(world.path("resourceclaims", name)))).code == 200
    reply = await alice.merge(world.path("resourceclaims", name, "status"), {"status": {}})
    assert reply.code == 403
    assert 'cannot patch resource "resourceclaims/status"' in reply.message


async def test_watching_is_a_verb_of_its_own(world):
    await world.allow("alice", READ)
    alice = world.acting_as("alice")
    await ask_until_allowed(world, lambda: alice.get(world.path("configmaps")))
    reply = await alice.get(world.path("configmaps"), watch=True)
    assert reply.code == 403
    assert "cannot watch" in reply.message


async def test_deleting_a_collection_is_a_verb_of_its_own(world):
    await world.allow("alice", {**READ, "verbs": ["delete", "get"]})
    alice = world.acting_as("alice")
    await ask_until_allowed(world, lambda: alice.get(world.path("configmaps", "none")))
    reply = await alice.delete(world.path("configmaps"), labelSelector="none=none")
    assert reply.code == 403
    assert "cannot deletecollection" in reply.message


async def test_applying_a_new_object_needs_the_right_to_create(world):
    await world.allow("alice", {**READ, "verbs": ["get", "patch"]})
    alice = world.acting_as("alice")
    await ask_until_allowed(world, lambda: alice.get(world.path("configmaps", "none")))
    reply = await alice.apply(world.path("configmaps", name := world.name()), world.body("configmaps", name))
    assert reply.code == 403
    assert (
        reply.message.endswith("is forbidden: ")
        if world.can.minor <= 31
        else "cannot create" in reply.message
    )


async def test_a_role_that_is_unbound_allows_nothing_any_more(world):
    await world.allow("alice", READ)
    alice = world.acting_as("alice")
    await ask_until_allowed(world, lambda: alice.get(world.path("configmaps")))
    await world.clean()
    reply = await world.eventually(
        lambda: alice.get(world.path("configmaps")), lambda reply: reply.code == 403
    )
    assert reply.reason == "Forbidden"


async def test_the_role_of_a_binding_never_changes(world):
    await world.allow("alice", READ)
    binding = (await world.api.get(world.path("rolebindings"))).items[0]
    changed = {**binding, "roleRef": {**binding["roleRef"], "name": "other"}}
    reply = await world.api.put(world.path("rolebindings", binding["metadata"]["name"]), changed)
    assert (reply.code, reply.causes) == (422, {"roleRef": "FieldValueInvalid"})


async def ask(client, **attributes):
    body = {"spec": {"resourceAttributes": attributes}, "apiVersion": "authorization.k8s.io/v1"}
    reply = await client.post(
        f"{REVIEWS}/selfsubjectaccessreviews", {**body, "kind": "SelfSubjectAccessReview"}
    )
    assert reply.code == 201
    return reply.body["status"]["allowed"]


async def test_an_account_can_query_its_own_rights(world):
    await world.allow("alice", READ)
    alice = world.acting_as("alice")
    await ask_until_allowed(world, lambda: alice.get(world.path("configmaps")))
    access = {"group": "", "resource": "configmaps", "namespace": world.namespace}
    assert await ask(alice, **access, verb="list") is True
    assert await ask(alice, **access, verb="delete") is False
    assert await ask(world.api, **access, verb="delete") is True


async def test_others_can_be_asked_about(world):
    await world.allow("alice", READ)
    await ask_until_allowed(world, lambda: world.acting_as("alice").get(world.path("configmaps")))
    access = {"group": "", "resource": "configmaps", "namespace": world.namespace, "verb": "get"}
    for account, expected in (("alice", True), ("bob", False)):
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": world.user(account), "resourceAttributes": access},
        }
        reply = await world.api.post(f"{REVIEWS}/subjectaccessreviews", body)
        assert (reply.code, reply.body["status"]["allowed"]) == (201, expected)


async def test_an_account_can_ask_who_it_is(world):
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reply = await world.acting_as("alice").post("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    who = reply.body["status"]["userInfo"]
    assert who["username"] == world.user("alice")
    assert f"system:serviceaccounts:{world.namespace}" in who["groups"]
    assert "system:authenticated" in who["groups"]


async def with_token(world, account, **headers):
    """Return a client with a token of a service account of ours."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600},
    }
    reply = await world.api.post(world.path("serviceaccounts", account, "token"), body)
    assert (reply.code, reply.body["kind"]) == (201, "TokenRequest")
    assert reply.body["status"]["expirationTimestamp"]
    extra = {"Authorization": f"Bearer {reply.body['status']['token']}", **headers}
    return api.Client(connection=world.api.connection, session=world.api.session, anonymous=True, extra=extra)


async def test_an_administrator_may_act_as_somebody_else(world):
    headers = {"Impersonate-User": "jane", "Impersonate-Group": "developers"}
    jane = api.Client(connection=world.api.connection, session=world.api.session, extra=headers)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    who = (await jane.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)).body["status"][
        "userInfo"
    ]
    assert (who["username"], set(who["groups"])) == ("jane", {"developers", "system:authenticated"})


async def test_who_has_no_right_to_it_may_not_act_as_somebody_else(world):
    bob = await with_token(world, "bob", **{"Impersonate-User": "jane"})
    reply = await bob.get("/version")
    assert reply.code == 403
    assert "cannot impersonate" in reply.message


async def test_a_token_can_be_asked_for_and_is_its_accounts(world):
    bob = await with_token(world, "bob")
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    who = await bob.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    assert who.body["status"]["userInfo"]["username"] == world.user("bob")
