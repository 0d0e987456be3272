"""The webhook of the chart: its pod has no rights, its certificate is not the chart's, and its questions are few."""

import base64
import contextlib
import dataclasses
import json
import ssl

import aiohttp
import pytest
import trustme

from drawbar.driver.configuration import schema
from drawbar.driver.kube import kinds
from drawbar.driver.webhook import daemon, settings
from drawbar.mocks.apiserver import expressions
from drawbar.mocks.testing import helm

pytestmark = pytest.mark.tool("chart")
# What the chart decides by itself, or what the pod tells.
DECIDED = {"driverName", "listen.address", "listen.port", "tls.certificate", "tls.key"}
# Of cert-manager, whose schemas are not Kubernetes' own.
FOREIGN = {"Certificate", "Issuer"}
OWN = {"from": "secret", "secretName": "mine", "caBundle": "QQ=="}
NAME = "drawbar-webhook"
WEBHOOKS = kinds.Kind(
    group="admissionregistration.k8s.io",
    version="v1",
    kind="ValidatingWebhookConfiguration",
    plural="validatingwebhookconfigurations",
    namespaced=False,
)


def webhook(**changes):
    return {"webhook": {"enabled": True} | changes, "networkPolicy": {"apiServerCIDRs": ["10.0.0.1/32"]}}


def index_documents(documents):
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def is_webhooks(document):
    return NAME in document["metadata"]["name"] or document["kind"] in {
        "ValidatingWebhookConfiguration",
        *FOREIGN,
    }


@pytest.fixture
def webhook_objects(render):
    """Return a function: `await webhook_objects(**values)` returns the webhook's objects by kind and name."""

    async def documents(driver="drawbar.dev", **values):
        everything = await render(driverName=driver, **webhook(**values))
        return index_documents(document for document in everything if is_webhooks(document))

    return documents


async def test_by_default_there_is_none(render):
    assert [document for document in await render() if is_webhooks(document)] == []


async def test_its_pod_is_restricted_and_its_account_may_nothing(render):
    everything = await render(**webhook())
    documents = index_documents(everything)
    pod = documents["Deployment", NAME]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "hostPath" not in str(pod["volumes"])
    subjects = [subject["name"] for document in everything for subject in document.get("subjects") or ()]
    assert subjects
    assert NAME not in subjects


ANYWHERE = {"ipBlock": {"cidr": "0.0.0.0/0"}}


@pytest.mark.parametrize(
    ("policy_values", "peers"),
    [
        ({"apiServerCIDRs": ["10.0.0.1/32"]}, [{"ipBlock": {"cidr": "10.0.0.1/32"}}]),
        ({"apiServerCIDRs": ["10.0.0.1/32"], "webhookFrom": [ANYWHERE]}, [ANYWHERE]),
    ],
    ids=["the API server's addresses", "what is given"],
)
async def test_the_api_server_alone_connects_to_it_and_it_connects_to_nothing(render, policy_values, peers):
    documents = index_documents(await render(**webhook() | {"networkPolicy": policy_values}))
    policy = documents["NetworkPolicy", NAME]["spec"]
    assert policy["ingress"] == [{"ports": [{"port": 9443, "protocol": "TCP"}], "from": peers}]
    assert (policy["egress"], policy["policyTypes"]) == ([], ["Ingress", "Egress"])


async def test_it_is_not_opened_to_every_client_by_default(render):
    with pytest.raises(helm.HelmError, match=r"networkPolicy\.apiServerCIDRs"):
        await render(**webhook() | {"networkPolicy": {}})
    # Without any policy there is nothing to report.
    await render(**webhook() | {"networkPolicy": {"enabled": False}})


async def test_the_webhook_receives_only_objects_with_its_drivers_parameters(webhook_objects):
    documents = await webhook_objects(driver="gpu.example.com")
    entries = documents["ValidatingWebhookConfiguration", "drawbar-parameters-gpu.example.com"]["webhooks"]
    assert [
        (entry["name"], rule["resources"], rule["operations"], condition["expression"])
        for entry in entries
        for rule in entry["rules"]
        for condition in entry["matchConditions"]
    ] == [
        (
            f"{name}.parameters.gpu.example.com",
            [resource],
            operations,
            f"object.{path}.orValue([]).exists(c, c.?opaque.?driver.orValue('') == 'gpu.example.com')",
        )
        for name, resource, operations, path in (
            ("claims", "resourceclaims", ["CREATE"], "?spec.?devices.?config"),
            ("templates", "resourceclaimtemplates", ["CREATE"], "?spec.?spec.?devices.?config"),
            ("classes", "deviceclasses", ["CREATE", "UPDATE"], "?spec.?config"),
        )
    ]
    assert {entry["failurePolicy"] for entry in entries} == {"Ignore"}
    assert {tuple(rule["apiVersions"]) for entry in entries for rule in entry["rules"]} == {
        ("v1", "v1beta2", "v1beta1", "v1alpha3")
    }
    service = entries[0]["clientConfig"]["service"]
    assert service["name"] == "drawbar-webhook-gpu-example-com"
    assert ("Service", service["name"]) in documents


def holds(entry, config):
    """Return whether the API server asks about an object with this configuration."""
    kind = entry["name"].partition(".")[0]
    spec = {"config": config} if kind == "classes" else {"devices": {"config": config}}
    body = {"spec": {"spec": spec} if kind == "templates" else spec}
    (condition,) = entry["matchConditions"]
    assert expressions.evaluate(condition["expression"], {"object": {}}) is False
    return expressions.evaluate(condition["expression"], {"object": body})


async def test_the_conditions_hold_for_objects_with_such_parameters_and_for_no_others(webhook_objects):
    entries = (await webhook_objects())["ValidatingWebhookConfiguration", "drawbar-parameters"]["webhooks"]
    ours = {"opaque": {"driver": "drawbar.dev", "parameters": {}}}
    foreign = {"opaque": {"driver": "gpu.example.com", "parameters": {}}}
    for entry in entries:
        assert holds(entry, [foreign, ours]) is True
        assert [holds(entry, config) for config in ([], [foreign], [{}], [{"opaque": {}}])] == [False] * 4


async def test_a_certificate_of_cert_manager_is_for_the_service_and_trusted_by_its_own_hand(webhook_objects):
    documents = await webhook_objects(certificate={"from": "cert-manager"})
    issued = documents["Certificate", NAME]["spec"]
    assert issued["dnsNames"] == ["drawbar-webhook.drawbar.svc"]
    assert issued["issuerRef"] == {"name": NAME, "kind": "Issuer"}
    assert ("Issuer", NAME) in documents
    assert ("Secret", f"{NAME}-tls") not in documents
    configuration = documents["ValidatingWebhookConfiguration", "drawbar-parameters"]
    assert configuration["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": "drawbar/drawbar-webhook"
    }
    assert ["caBundle" in entry["clientConfig"] for entry in configuration["webhooks"]] == [False] * 3
    own = {"name": "ca", "kind": "ClusterIssuer"}
    documents = await webhook_objects(certificate={"from": "cert-manager", "issuerRef": own})
    assert documents["Certificate", NAME]["spec"]["issuerRef"] == own
    assert ("Issuer", NAME) not in documents


async def test_a_certificate_of_ones_own_is_mounted_and_trusted(webhook_objects):
    documents = await webhook_objects(certificate=OWN)
    volumes = documents["Deployment", NAME]["spec"]["template"]["spec"]["volumes"]
    assert [volume["secret"]["secretName"] for volume in volumes if "secret" in volume] == ["mine"]
    entries = documents["ValidatingWebhookConfiguration", "drawbar-parameters"]["webhooks"]
    assert {entry["clientConfig"]["caBundle"] for entry in entries} == {"QQ=="}
    for missing, words in (
        ("secretName", "secretName is empty: name"),
        ("caBundle", "caBundle is empty: the"),
    ):
        with pytest.raises(helm.HelmError, match=words):
            await webhook_objects(certificate=OWN | {missing: ""})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"failurePolicy": "Open"}, "/webhook/failurePolicy"),
        ({"certificate": {"from": "file"}}, "/webhook/certificate/from"),
        ({"config": {"listen": {"port": 1}}}, "'listen' not allowed"),
    ],
)
async def test_wrong_values_are_refused_with_their_path(webhook_objects, wrong, words):
    with pytest.raises(helm.HelmError, match=words):
        await webhook_objects(**wrong)


@pytest.mark.parametrize("version", ["1.34", "1.37"])
async def test_rendered_manifests_match_the_schemas(webhook_objects, validator, version):
    more = {
        "replicas": 1,
        "priorityClassName": "system-cluster-critical",
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podLabels": {"a": "b"},
        "podAnnotations": {"a": "b"},
    }
    for values in ({}, more | {"certificate": OWN}):
        documents = (await webhook_objects(**values)).values()
        for document in (each for each in documents if each["kind"] not in FOREIGN):
            validator.validate(document, version, strict=True)


def test_the_schema_has_the_settings_of_the_webhook_and_no_others(pytestconfig):
    text = (pytestconfig.rootpath / "deploy" / "drawbar" / "values.schema.json").read_text()
    config = json.loads(text)["properties"]["webhook"]["properties"]["config"]["properties"]
    keys = {f"{topic}.{key}" for topic, below in config.items() for key in below["properties"]}
    assert keys == {option.key for option in schema.options(settings.Settings)} - DECIDED


@contextlib.asynccontextmanager
async def installing(cluster, address):
    """Run the webhook as the chart has it, but on the loopback interface; yield the file with its authority."""
    secret = (await cluster.list_by_name(kinds.SECRET, "drawbar"))["mine"]["data"]
    files = {name: cluster.path / name for name in secret}
    for name, file in files.items():
        file.write_bytes(base64.b64decode(secret[name]))
    options = await cluster.settings("webhook", settings.Settings, settings.problems)
    host, port = address
    here = dataclasses.replace(
        options,
        listen=settings.Listen(address=host, port=port),
        tls=settings.Tls(certificate=files["tls.crt"], key=files["tls.key"]),
    )
    cluster.run("webhook", daemon.run(here))
    try:
        yield files["ca.crt"]
    finally:
        await cluster.stop("webhook")


async def ask_webhook(cluster, address, authority, wanted):
    """Return the webhook's response for the parameters of a class, to a request as its configuration has it made."""
    (configuration,) = (await cluster.list_by_name(WEBHOOKS)).values()
    (entry,) = [entry for entry in configuration["webhooks"] if entry["name"].startswith("classes.")]
    asked = entry["clientConfig"]
    assert base64.b64decode(asked["caBundle"]) == authority.read_bytes()
    opaque = {"driver": "drawbar.dev", "parameters": wanted}
    request = {
        "uid": "u1",
        "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "DeviceClass"},
        "operation": "CREATE",
        "object": {"spec": {"config": [{"opaque": opaque}]}},
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    trust = ssl.create_default_context(cafile=authority)
    host = f"{asked['service']['name']}.{asked['service']['namespace']}.svc"
    async with aiohttp.ClientSession() as client:

        async def read():
            url = f"https://{address[0]}:{address[1]}{asked['service']['path']}"
            with contextlib.suppress(aiohttp.ClientConnectorError):
                async with client.post(url, json=body, ssl=trust, server_hostname=host) as response:
                    return (await response.json())["response"]

        return await cluster.until(read, bool)


async def test_a_client_that_trusts_the_authority_of_the_configuration_gets_an_answer(
    chart_cluster, own_address
):
    good = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters"}
    async with chart_cluster("1.36", "v4") as cluster:
        authority = trustme.CA()
        issued = authority.issue_cert("drawbar-webhook.drawbar.svc")
        files = {
            "ca.crt": authority.cert_pem.bytes(),
            "tls.crt": issued.cert_chain_pems[0].bytes(),
            "tls.key": issued.private_key_pem.bytes(),
        }
        secret = {name: base64.b64encode(content).decode() for name, content in files.items()}
        await cluster.install(**webhook(certificate=OWN | {"caBundle": secret["ca.crt"]}))
        await cluster.create(kinds.SECRET, "mine", "drawbar", type="kubernetes.io/tls", data=secret)
        async with installing(cluster, own_address) as authority:
            assert (await ask_webhook(cluster, own_address, authority, good))["allowed"]
            refused = await ask_webhook(cluster, own_address, authority, good | {"x": 1})
            assert "spec.config[0].opaque.parameters.x is not a field" in refused["status"]["message"]
