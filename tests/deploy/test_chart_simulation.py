"""`simulation.enabled`: pretended hardware, on nodes that are chosen for it, with no right over a node's own."""

import json

import pytest

from drawbar.driver.kube import kinds
from drawbar.driver.node import settings as node_settings
from drawbar.mocks.testing import helm

SELECTOR = {"drawbar.dev/simulation": "true"}
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


async def render_objects(render, **values):
    """Return the chart's objects by kind and name."""
    simulation = {"enabled": True, **values.pop("simulation", {})}
    documents = await render(simulation=simulation, **values)
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def pod_of(objects, kind, name):
    return objects[kind, name]["spec"]["template"]["spec"]


async def test_a_fabric_is_beside_the_controller_and_its_hosts_are_the_chosen_nodes(render):
    objects = await render_objects(
        render, simulation={"nodeSelector": {"lab": "yes"}, "devices": {"nvme": 3}}
    )
    deployment = objects["Deployment", "drawbar-controller"]
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert ("PodDisruptionBudget", "drawbar-controller") not in objects
    (fabric,) = pod_of(objects, "Deployment", "drawbar-controller")["initContainers"]
    assert fabric["restartPolicy"] == "Always"
    assert "--nodes=drawbar.dev/simulation=true,lab=yes" in fabric["args"]
    assert "--devices=accelerator=2,cxl-memory=2,fpga=2,gpu=4,nvme=3" in fabric["args"]
    adapter = {"name": "adapters", "mountPath": "/run/drawbar/fabric", "subPath": "fabric"}
    assert fabric["volumeMounts"] == [adapter, {"name": "api-access", "mountPath": TOKEN, "readOnly": True}]


async def test_its_fabric_is_made_after_the_definitions_and_kept_by_an_upgrade(chart_cluster):
    async with chart_cluster() as cluster:
        values = {"simulation": {"enabled": True}}
        await cluster.install(**values)
        made = (await cluster.list_by_name(kinds.FABRIC))["simulated"]
        assert made["spec"].items() >= {
            ("driver", "drawbar.dev"),
            ("adapter", "grpc"),
            ("endpoint", "unix:/run/drawbar/fabric/simulated.sock"),
        }
        image = {"image": {"repository": "registry.example.com/drawbar"}}
        await cluster.helm("upgrade", chart=str(cluster.chart), values=values | image)
        kept = (await cluster.list_by_name(kinds.FABRIC))["simulated"]
        assert kept["metadata"]["uid"] == made["metadata"]["uid"]


async def test_the_node_daemon_runs_on_the_chosen_nodes_alone_and_reaches_no_hardware(render):
    objects = await render_objects(render, node={"nodeSelector": {"kubernetes.io/os": "linux"}})
    pod = pod_of(objects, "DaemonSet", "drawbar-node")
    assert pod["nodeSelector"] == SELECTOR | {"kubernetes.io/os": "linux"}
    assert "affinity" not in pod
    assert not pod.get("hostPID")
    for container in (*pod["initContainers"], *pod["containers"]):
        context = container["securityContext"]
        assert not context.get("privileged")
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"]["drop"] == ["ALL"]
        assert not context["capabilities"].get("add")
    paths = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert paths == {
        "/var/lib/kubelet/plugins_registry",
        "/var/lib/kubelet/plugins/drawbar.dev",
        "/var/run/cdi",
    }
    (host,) = pod["initContainers"]
    assert {volume["mountPath"] for volume in host["volumeMounts"]} == {"/run/simulation", TOKEN}
    assert objects["DaemonSet", "drawbar-node"]["spec"]["updateStrategy"]["rollingUpdate"] == {
        "maxSurge": 0,
        "maxUnavailable": 1,
    }


@pytest.mark.tool("helm")
async def test_the_daemon_reads_the_tree_that_the_host_writes(chart_cluster):
    async with chart_cluster() as cluster:
        await cluster.install(simulation={"enabled": True})
        options = await cluster.settings("node", node_settings.Settings, node_settings.problems)
        (host,) = (await cluster.workloads())["DaemonSet"]["drawbar-node"]["spec"]["template"]["spec"][
            "initContainers"
        ]
        options_by_name = dict(word.removeprefix("--").split("=", 1) for word in host["args"])
        assert options_by_name["root"] == str(options.sysfs)
        assert f"unix:{options_by_name['uevents']}" == options.uevents
        assert options_by_name["ready"] in host["startupProbe"]["exec"]["command"]
        assert list(await cluster.list_by_name(kinds.FABRIC)) == ["simulated"]


async def test_without_it_nothing_is_pretended(render_text):
    text = await render_text()
    assert not [word for word in ("mock", "simulat", "\nkind: Fabric") if word in text]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"simulation": {"enabled": True, "devices": {"nic": 1}}}, "'nic' not allowed"),
        ({"simulation": {"enabled": True, "devices": {"gpu": 65}}}, "/simulation/devices/gpu"),
        ({"simulation": {"enabled": True, "slots": 0}}, "/simulation/slots"),
        ({"simulation": {"enabled": True, "nodeSelector": {"drawbar.dev/simulation": None}}}, "nodeSelector"),
    ],
)
async def test_impossible_simulations_are_refused(render, values, words):
    with pytest.raises(helm.HelmError) as caught:
        await render(**values)
    assert words in str(caught.value)


async def test_it_is_refused_with_classic_allocation(render):
    with pytest.raises(helm.HelmError, match=r"simulation\.enabled and classic\.enabled"):
        await render(simulation={"enabled": True}, classic={"enabled": True}, kube_version="1.31.0")


async def test_its_objects_are_valid(render, validator):
    for document in (await render_objects(render)).values():
        if document["kind"] in {"Deployment", "DaemonSet"}:
            validator.validate(json.loads(json.dumps(document)), "1.34", strict=True)
