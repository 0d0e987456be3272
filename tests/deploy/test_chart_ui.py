"""The page in a cluster: off by default, without a right of its own, and started as the verb understands."""

import pytest

from drawbar.driver import main

pytestmark = pytest.mark.tool("chart")
NAME = "drawbar-ui"


def index_documents(documents):
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


async def test_it_is_off_by_default(render):
    assert not [name for _, name in index_documents(await render()) if name == NAME]


@pytest.mark.parametrize("values", [{}, {"tlsSecretName": "mine"}], ids=["self-signed", "own certificate"])
async def test_its_pod_has_no_right_and_no_token(render, validator, values):
    documents = await render(ui={"enabled": True} | values)
    for document in documents:
        if NAME in document["metadata"]["name"]:
            validator.validate(document, "1.32", strict=True)
        for subject in document.get("subjects", ()):
            assert subject["name"] != NAME, "no role is bound to the account"
    objects = index_documents(documents)
    pod = objects["Deployment", NAME]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert objects["ServiceAccount", NAME]["automountServiceAccountToken"] is False
    sources = {volume["name"]: volume for volume in pod["volumes"]}
    assert sources.pop("authority")["configMap"]["name"] == "kube-root-ca.crt"
    secrets = {volume["secret"]["secretName"] for volume in sources.values()}
    assert secrets == ({"mine"} if values else set())
    [container] = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    service = objects["Service", NAME]["spec"]
    labels = objects["Deployment", NAME]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    [port] = service["ports"]
    assert port["targetPort"] in {each["name"] for each in container["ports"]}


@pytest.mark.parametrize("values", [{}, {"tlsSecretName": "mine"}], ids=["self-signed", "own certificate"])
async def test_the_verb_understands_its_arguments(render, capsys, monkeypatch, tmp_path, values):
    objects = index_documents(await render(ui={"enabled": True} | values))
    [container] = objects["Deployment", NAME]["spec"]["template"]["spec"]["containers"]
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main.main([*container["command"][1:], *container["args"]]) != 0
    printed = capsys.readouterr().err
    assert printed == "error: KUBERNETES_SERVICE_HOST is not set: run this in a pod of the cluster\n"


async def test_only_the_named_clients_reach_it_and_it_reaches_the_api_server_alone(render):
    sources = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}]
    documents = await render(
        ui={"enabled": True}, networkPolicy={"uiFrom": sources, "apiServerCIDRs": ["10.0.0.1/32"]}
    )
    policy = index_documents(documents)["NetworkPolicy", NAME]["spec"]
    assert policy["ingress"] == [{"ports": [{"port": 8443, "protocol": "TCP"}], "from": sources}]
    [egress] = policy["egress"]
    assert egress["to"] == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    assert {each["port"] for each in egress["ports"]} == {443, 6443}
