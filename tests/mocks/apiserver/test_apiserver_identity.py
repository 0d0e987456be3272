"""Who asks: impersonation, tokens on request, and reviews of tokens."""

from typing import Any

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


async def who(api: Any, **headers: str) -> Any:
    client = api.acting_as("admin")
    client.headers |= {key.replace("_", "-"): value for key, value in headers.items()}
    return await client.post(WHO, {})


async def test_extra_information_can_be_impersonated(api: Any) -> None:
    key = "Impersonate_Extra_Authentication.kubernetes.io%2fnode_name"
    reply = await who(api, Impersonate_User="system:serviceaccount:drawbar:node", **{key: "node-a"})
    extra = reply.body["status"]["userInfo"]["extra"]
    assert extra == {"authentication.kubernetes.io/node-name": ["node-a"]}


async def test_who_may_not_impersonate_is_told_so(api: Any) -> None:
    jane = api.acting_as("jane")
    jane.headers["Impersonate-User"] = "admin"
    reply = await jane.post(WHO, {})
    assert reply.code == 403
    assert reply.body["message"] == (
        'users "admin" is forbidden: User "jane" cannot impersonate resource "users" in API group "" at the '
        "cluster scope"
    )


async def test_groups_without_a_user_are_a_bad_request(api: Any) -> None:
    assert (await who(api, Impersonate_Group="developers")).code == 400


async def test_a_token_on_request_is_its_accounts_and_names_the_node_of_its_pod(api: Any) -> None:
    await api.post(ACCOUNTS, {"metadata": {"name": "node"}})
    spec = {"containers": [{"name": "c"}], "nodeName": "node-a"}
    pod = await api.post("/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": spec})
    bound = {"kind": "Pod", "name": "p", "uid": pod.body["metadata"]["uid"]}
    reply = await api.post(f"{ACCOUNTS}/node/token", {"spec": {"boundObjectRef": bound}})
    assert reply.code == 201, reply.body
    client = api.acting_as("admin")
    client.headers = {"Authorization": f"Bearer {reply.body['status']['token']}"}
    info = (await client.post(WHO, {})).body["status"]["userInfo"]
    assert info["username"] == "system:serviceaccount:default:node"
    assert info["extra"] == {"authentication.kubernetes.io/node-name": ["node-a"]}
    review = {"spec": {"token": reply.body["status"]["token"]}}
    status = (await api.post("/apis/authentication.k8s.io/v1/tokenreviews", review)).body["status"]
    assert (status["authenticated"], status["user"]) == (True, info)
    stale = {"spec": {"boundObjectRef": {**bound, "uid": "other"}}}
    assert (await api.post(f"{ACCOUNTS}/node/token", stale)).code == 409
    short = {"spec": {"expirationSeconds": 60}}
    assert (await api.post(f"{ACCOUNTS}/node/token", short)).code == 422


async def test_an_unknown_token_is_reviewed_as_unknown(api: Any) -> None:
    reply = await api.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}})
    assert "authenticated" not in reply.body["status"]
