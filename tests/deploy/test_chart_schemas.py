"""What the chart renders is what Kubernetes takes, whatever the values; and the promises of its pods."""

import itertools
import re
from pathlib import Path

import pytest
import yaml

from drawbar.driver.controller import daemons
from drawbar.driver.operation import address, probe
from drawbar.mocks.testing import helm

OPTIONAL = {
    "driverName": ("drawbar.dev", "gpu.example.com"),
    "policies": ({"enabled": True}, {"enabled": False}),
    "networkPolicy": (
        {},
        {"enabled": False},
        {
            "apiServerCIDRs": ["10.0.0.1/32"],
            "fabricManagers": [{"ports": [{"port": 443}]}],
            "metricsFrom": [{"podSelector": {}}],
        },
    ),
    "metrics": (
        {},
        {
            "enabled": True,
            "serviceMonitor": {"enabled": True, "labels": {"a": "b"}},
            "prometheusRule": {"enabled": True},
            "dashboard": {"enabled": True},
        },
    ),
    "controller": (
        {},
        {"replicas": 1, "priorityClassName": ""},
        {
            "sidecars": [{"name": "adapter", "image": "registry.example.com/adapter:1"}],
            "extraVolumes": [{"name": "more", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
            "extraEnv": [{"name": "KUBERNETES_SERVICE_HOST", "value": "10.0.0.1"}],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
            ],
            "serviceAccount": {"annotations": {"a": "b"}},
            "hostNetwork": True,
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "podLabels": {"a": "b"},
            "podAnnotations": {"a": "b"},
        },
    ),
    "node": (
        {},
        {
            "nodeSelector": {},
            "affinity": {"nodeAffinity": {}},
            "podLabels": {"a": "b"},
            "podAnnotations": {"a": "b"},
            "priorityClassName": "",
            "privileged": False,
            "bitstreams": {"image": {"reference": "registry.example.com/designs:1", "pullPolicy": "Never"}},
            "extraVolumes": [{"name": "more", "hostPath": {"path": "/srv/bitstreams"}}],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/srv/bitstreams"}],
            "extraEnv": [{"name": "A", "value": "b"}],
            "serviceAccount": {"annotations": {"a": "b"}},
            "updateStrategy": {"type": "OnDelete"},
        },
    ),
    "image": (
        {"repository": "registry.example.com/drawbar"},
        {"repository": "r/d", "digest": "sha256:" + "0" * 64, "pullSecrets": [{"name": "registry"}]},
    ),
    "credentialsSecrets": (["one", "two"], []),
    "uninstallGuard": ({}, {"enabled": False}),
    "resourceQuota": ({}, {"enabled": False}),
    "deviceClasses": ({}, {"extendedResources": {"fpga": "drawbar.dev/fpga"}}, {"create": False}),
}
VERSIONS = ("1.34", "1.36", "1.37")
# Of the Prometheus operator, whose schemas are not Kubernetes' own.
FOREIGN = {"ServiceMonitor", "PrometheusRule"}


# These meet in the same templates, so all of their combinations are tried.
TOGETHER = ("driverName", "metrics", "networkPolicy")


def combinations():
    """Yield each value of each key with the plainest and the fullest of all other keys, then all of `TOGETHER`."""
    firsts = {key: values[0] for key, values in OPTIONAL.items()}
    lasts = {key: values[-1] for key, values in OPTIONAL.items()}
    yield firsts
    yield lasts
    for base in (firsts, lasts):
        for key, values in OPTIONAL.items():
            for value in values:
                yield base | {key: value}
        for chosen in itertools.product(*(OPTIONAL[key] for key in TOGETHER)):
            yield base | dict(zip(TOGETHER, chosen, strict=True))


def index_documents(documents):
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def validate(validator, documents, version):
    for document in documents:
        if document["kind"] not in FOREIGN:
            validator.validate(document, version, strict=True)


@pytest.mark.tool("chart")
def test_the_examples_of_workloads_fit_the_schemas(validator, pytestconfig):
    text = (pytestconfig.rootpath / "docs" / "examples" / "workloads.yaml").read_text()
    validate(validator, yaml.safe_load_all(text), "1.34")


@pytest.mark.tool("chart")
async def test_default_and_full_manifests_match_the_schemas(render, validator):
    for values in itertools.islice(combinations(), 2):
        validate(validator, await render(**values, include_crds=True), "1.36")


@pytest.mark.tool("chart")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", VERSIONS)
async def test_manifests_of_every_combination_match_the_schemas(render_text, validator, version):
    seen = set()
    for values in combinations():
        # Most objects are the same in most combinations, and a schema is slow to judge.
        texts = set((await render_text(**values, kube_version=f"{version}.0")).split("\n---\n")) - seen
        seen |= texts
        validate(validator, [document for text in texts if (document := yaml.safe_load(text))], version)
    assert len(seen) > 100


async def test_the_controllers_pod_is_restricted_and_there_are_two_that_can_lead(render):
    documents = index_documents(await render())
    spec = documents["Deployment", "drawbar-controller"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["replicas"] == 2
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "hostPath" not in str(pod["volumes"])
    assert documents["PodDisruptionBudget", "drawbar-controller"]["spec"]["maxUnavailable"] == 1
    assert documents["NetworkPolicy", "drawbar-controller"]["spec"]["ingress"] == []


@pytest.mark.parametrize(
    ("component", "kind"), [("controller", "Deployment"), ("node", "DaemonSet")], ids=["controller", "node"]
)
async def test_a_pod_has_the_volumes_variables_and_network_that_the_values_give_it(render, component, kind):
    name = f"drawbar-{component}"
    usual = index_documents(await render())[kind, name]["spec"]["template"]["spec"]
    assert not {"hostNetwork", "dnsPolicy"} & usual.keys()
    values = {
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "extraEnv": [{"name": "A", "value": "b"}],
        "hostNetwork": True,
    }
    spec = index_documents(await render(**{component: values}))[kind, name]["spec"]
    pod = spec["template"]["spec"]
    container, before = pod["containers"][0], usual["containers"][0]
    assert pod["volumes"] == [*usual["volumes"], *values["extraVolumes"]]
    assert container["volumeMounts"] == [*before["volumeMounts"], *values["extraVolumeMounts"]]
    assert container["env"] == [*before["env"], *values["extraEnv"]]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")


DESIGNS = "registry.example.com/designs@sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("image", "config", "path"),
    [
        ({"reference": DESIGNS}, {}, "/srv/drawbar/bitstreams"),
        ({"reference": DESIGNS, "pullPolicy": "Always"}, {"initialise": {"hooks": "/srv/h"}}, None),
        ({"reference": DESIGNS}, {"initialise": {"bitstreams": "/srv/designs"}}, "/srv/designs"),
    ],
    ids=["the chart's directory", "with hooks", "a directory of the settings"],
)
async def test_the_node_daemon_reads_bitstreams_out_of_an_image(render, image, config, path):
    path = path or "/srv/drawbar/bitstreams"
    documents = index_documents(await render(node={"bitstreams": {"image": image}, "config": config}))
    pod = documents["DaemonSet", "drawbar-node"]["spec"]["template"]["spec"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "bitstreams"]
    assert volume == {"name": "bitstreams", "image": image}
    (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "bitstreams"]
    assert mount == {"name": "bitstreams", "mountPath": path, "readOnly": True}
    settings = yaml.safe_load(documents["ConfigMap", "drawbar-node"]["data"]["node.yaml"])
    assert settings["initialise"] == config.get("initialise", {}) | {"bitstreams": path}


async def test_without_an_image_the_bitstreams_are_where_the_settings_say(render):
    documents = index_documents(
        await render(node={"config": {"initialise": {"bitstreams": "/etc/drawbar/bitstreams"}}})
    )
    pod = documents["DaemonSet", "drawbar-node"]["spec"]["template"]["spec"]
    assert "bitstreams" not in [volume["name"] for volume in pod["volumes"]]
    assert not any("image" in volume for volume in pod["volumes"])


async def test_an_image_of_bitstreams_that_cannot_be_mounted_or_is_of_no_use_is_refused(render):
    image = {"bitstreams": {"image": {"reference": DESIGNS}}}
    inside = {"config": {"initialise": {"bitstreams": "/etc/drawbar/bitstreams"}}}
    with pytest.raises(helm.HelmError, match="where no image can be mounted: name a directory elsewhere"):
        await render(node=image | inside)
    with pytest.raises(helm.HelmError, match="with classic allocation no bitstreams are loaded"):
        await render(node=image, classic={"enabled": True}, kube_version="1.31.0")


async def test_a_controller_in_the_nodes_network_makes_room_for_the_next_on_its_node(render):
    spec = index_documents(await render(controller={"hostNetwork": True}))[
        "Deployment", "drawbar-controller"
    ]["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    (port,) = spec["template"]["spec"]["containers"][0]["ports"]
    assert (port["hostPort"], port["containerPort"]) == (9179, 9179)


async def test_two_proxies_on_one_port_of_the_node_are_refused(render):
    both = {"controller": {"hostNetwork": True}, "node": {"hostNetwork": True}}
    metrics = {"enabled": True}
    with pytest.raises(helm.HelmError, match="port 8443 of the node"):
        await render(metrics=metrics, **both)
    await render(**both)


async def test_the_node_daemon_is_replaced_without_a_gap_and_has_each_path_where_the_host_has_it(render):
    spec = index_documents(await render())["DaemonSet", "drawbar-node"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    variables = {variable["name"]: variable.get("valueFrom") for variable in container["env"]}
    assert variables["POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert {"name": "SSL_CERT_FILE", "value": "/dev/null"} in container["env"]
    hosts = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert {name: mounts[name] for name in hosts} == hosts
    assert mounts.keys() - hosts.keys() == {"config", "run", "api-access"}


PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
PROXY = {"enabled": True}


@pytest.mark.parametrize("metrics", [{}, PROXY], ids=["without-proxy", "with-proxy"])
@pytest.mark.parametrize(
    ("component", "kind"), [("controller", "Deployment"), ("node", "DaemonSet")], ids=["controller", "node"]
)
async def test_probes_are_the_small_program_and_ask_where_the_daemon_serves(render, component, kind, metrics):
    documents = index_documents(await render(metrics=metrics))
    pod = documents[kind, f"drawbar-{component}"]["spec"]["template"]["spec"]
    container, *proxies = pod["containers"]
    commands = [container[name]["exec"]["command"] for name in PROBES]
    assert commands == [["drawbar-probe", "alive"], ["drawbar-probe", "alive"], ["drawbar-probe", "ready"]]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    endpoint = address.parse(variables[probe.VARIABLE])
    # The same for the daemon: nothing else that it reads names another.
    (text,) = documents["ConfigMap", f"drawbar-{component}"]["data"].values()
    assert "http" not in yaml.safe_load(text)
    if endpoint.family is address.Family.UNIX:
        (volume,) = [
            mount["name"]
            for mount in container["volumeMounts"]
            if mount["mountPath"] == str(Path(endpoint.host).parent)
        ]
        assert {"name": volume, "emptyDir": {}} in pod["volumes"]
    for proxy in proxies:
        assert f"--upstream=http://{endpoint}/metrics" in proxy["args"]


@pytest.mark.parametrize(
    ("component", "kind"), [("controller", "Deployment"), ("node", "DaemonSet")], ids=["controller", "node"]
)
async def test_probes_survive_a_busy_node_and_a_daemon_that_hangs_costs_the_label_within_a_minute(
    render, component, kind
):
    pod = index_documents(await render())[kind, f"drawbar-{component}"]["spec"]["template"]["spec"]
    _, alive, ready = (pod["containers"][0][name] for name in PROBES)
    assert alive["timeoutSeconds"] * alive["failureThreshold"] >= 120
    assert ready["timeoutSeconds"] * ready["failureThreshold"] >= 30
    # The next probe begins a period after the last one at most, and each one hangs until its deadline.
    longest = ready["periodSeconds"] + ready["timeoutSeconds"] * ready["failureThreshold"]
    assert longest + daemons.GRACE_SECONDS <= 60


SAFE, OLD = "drawbar.node-restriction.kubernetes.io/host", "drawbar.dev/host"
ZONE = {"key": "zone", "operator": "Exists"}
PREFERRED = {"weight": 1, "preference": {"matchExpressions": [ZONE]}}


def has(label):
    return {"key": label, "operator": "In", "values": ["true"]}


@pytest.mark.parametrize(
    ("node", "selector", "terms"),
    [
        # A node that was labelled for a release before keeps its daemon.
        ({}, None, [[has(SAFE)], [has(OLD)]]),
        ({"hostLabels": ["a/b"]}, None, [[has("a/b")]]),
        ({"hostLabels": []}, None, None),
        ({"nodeSelector": {"own": "yes"}}, {"own": "yes"}, None),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [ZONE]}]
                        },
                        "preferredDuringSchedulingIgnoredDuringExecution": [PREFERRED],
                    }
                }
            },
            None,
            [[ZONE, has(SAFE)], [ZONE, has(OLD)]],
        ),
    ],
    ids=["default", "own labels", "every node", "a selector", "an affinity"],
)
async def test_the_node_daemon_runs_on_nodes_with_a_label_that_no_kubelet_can_give_itself(
    render, node, selector, terms
):
    pod = index_documents(await render(node=node))["DaemonSet", "drawbar-node"]["spec"]["template"]["spec"]
    assert pod.get("nodeSelector") == selector
    affinity = pod.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    expressions = [term["matchExpressions"] for term in required.get("nodeSelectorTerms", ())]
    assert expressions == (terms or [])
    assert ("preferredDuringSchedulingIgnoredDuringExecution" in affinity) == ("affinity" in node)


async def test_the_node_daemon_is_privileged_or_has_the_listed_capabilities_and_no_others(
    render, pytestconfig
):
    async def context(**node):
        pod = index_documents(await render(node=node))["DaemonSet", "drawbar-node"]["spec"]["template"][
            "spec"
        ]
        return pod["containers"][0]["securityContext"]

    always = {"runAsUser": 0, "readOnlyRootFilesystem": True}
    assert await context() == always | {"privileged": True}
    page = (pytestconfig.rootpath / "docs" / "security.md").read_text()
    explained = re.findall(r"^\| `CAP_(\w+)` \|", page, re.MULTILINE)
    limited = await context(privileged=False)
    assert limited == always | {
        "capabilities": {"drop": ["ALL"], "add": sorted(explained)},
        "appArmorProfile": {"type": "Unconfined"},
    }
    more = await context(
        privileged=False, capabilities=["SYS_ADMIN"], securityContext={"seLinuxOptions": {"type": "spc_t"}}
    )
    assert more["capabilities"]["add"] == ["SYS_ADMIN"]
    assert more["seLinuxOptions"] == {"type": "spc_t"}


async def test_no_role_has_a_wildcard_and_no_secret_is_readable_without_its_name(render):
    for document in await render():
        for rule in document.get("rules") or () if document["kind"].endswith("Role") else ():
            assert "*" not in [*rule["verbs"], *rule["apiGroups"], *rule["resources"]]
            assert "pods/exec" not in rule["resources"]
            if "secrets" in rule["resources"]:
                assert rule["resourceNames"] == ["fabric-credentials"]
    without = await render(credentialsSecrets=[])
    assert not [document for document in without if "secrets" in str(document.get("rules"))]


async def test_the_alerts_and_the_dashboard_are_the_files_of_the_chart(render, pytestconfig):
    chart = pytestconfig.rootpath / "deploy" / "drawbar"
    documents = index_documents(await render(metrics=OPTIONAL["metrics"][1]))
    alerts = documents["PrometheusRule", "drawbar"]["spec"]["groups"]
    assert "{{ $labels.fabric }}" in str(alerts)
    dashboard = documents["ConfigMap", "drawbar-dashboard"]["data"]["drawbar.json"]
    assert dashboard.strip() == (chart / "dashboards" / "drawbar.json").read_text().strip()
