"""Which container of a pod has a token of the API server, and whose sockets a sidecar reaches."""

import pytest

from drawbar.mocks.testing import helm

TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"
EVERYTHING = {
    "metrics": {"enabled": True},
    "healthMonitor": {"enabled": True, "tlsSecretName": "tls", "tokenSecretName": "token"},
    "webhook": {"enabled": True},
    "ui": {"enabled": True},
    "networkPolicy": {"apiServerCIDRs": ["10.0.0.1/32"], "healthMonitorFrom": [{"podSelector": {}}]},
}
SIDECARS = [
    {"name": "one", "image": "registry.example.com/one:1"},
    {
        "name": "two",
        "image": "registry.example.com/two:1",
        "volumeMounts": [{"name": "more", "mountPath": "/more"}],
    },
]
OF_DAEMONS = {"controller", "node", "health-monitor"}


def pods(documents):
    return [
        document["spec"]["template"]["spec"]
        for document in documents
        if document["kind"] in ("Deployment", "DaemonSet", "StatefulSet", "Job")
    ]


def containers(pod):
    return [*pod.get("initContainers", ()), *pod["containers"]]


def volumes_with_tokens(pod):
    """Return the account of each volume with a token, by the volume's name."""
    tokens = {}
    for volume in pod.get("volumes", ()):
        for source in volume.get("projected", {}).get("sources", ()):
            if "serviceAccountToken" in source:
                tokens[volume["name"]] = pod["serviceAccountName"]
        if volume.get("secret", {}).get("secretName") == "drawbar-metrics-proxy":
            tokens[volume["name"]] = "drawbar-metrics-proxy"
    return tokens


@pytest.mark.parametrize("simulated", [False, True])
async def test_a_token_of_a_daemon_is_in_its_container_and_in_pretended_hardware_alone(render, simulated):
    values = EVERYTHING | {"simulation": {"enabled": simulated}, "controller": {"sidecars": SIDECARS}}
    documents = await render(**values)
    assert len(pods(documents)) == 5
    holders = {}
    for pod in pods(documents):
        assert pod["automountServiceAccountToken"] is False
        owners = volumes_with_tokens(pod)
        for container in containers(pod):
            mounted = [mount for mount in container.get("volumeMounts", ()) if mount["name"] in owners]
            for mount in mounted:
                assert mount["mountPath"] == TOKENS
                assert mount["readOnly"]
                holders.setdefault(owners[mount["name"]], []).append(container["name"])
    assert holders.pop("drawbar-metrics-proxy") == ["metrics"] * 3
    hardware = {"controller": ["fabric"], "node": ["host"]} if simulated else {}
    assert holders == {f"drawbar-{name}": [*hardware.get(name, ()), name] for name in OF_DAEMONS}


async def test_a_token_runs_out_and_comes_with_the_authority_and_the_namespace(render):
    for pod in pods(await render()):
        (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "api-access"]
        token, authority, namespace = volume["projected"]["sources"]
        assert token == {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
        assert authority["configMap"] == {
            "name": "kube-root-ca.crt",
            "items": [{"key": "ca.crt", "path": "ca.crt"}],
        }
        assert namespace["downwardAPI"]["items"][0]["path"] == "namespace"


@pytest.mark.parametrize("simulated", [False, True])
async def test_a_sidecar_reaches_its_own_sockets_and_no_other_sidecars(render, simulated):
    documents = await render(simulation={"enabled": simulated}, controller={"sidecars": SIDECARS})
    (pod,) = [pod for pod in pods(documents) if pod["serviceAccountName"] == "drawbar-controller"]
    mounts = {
        container["name"]: [mount for mount in container["volumeMounts"] if mount["name"] == "adapters"]
        for container in containers(pod)
    }
    assert mounts.pop("controller") == [{"name": "adapters", "mountPath": "/run/drawbar"}]
    assert set(mounts) == {"one", "two"} | ({"fabric"} if simulated else set())
    for name, own in mounts.items():
        assert own == [{"name": "adapters", "mountPath": f"/run/drawbar/{name}", "subPath": name}]
    (two,) = [container for container in pod["containers"] if container["name"] == "two"]
    assert {"name": "more", "mountPath": "/more"} in two["volumeMounts"]


@pytest.mark.parametrize("volume", ["adapters", "api-access", "config"])
async def test_a_sidecar_that_asks_for_the_sockets_of_all_or_the_token_is_refused(render, volume):
    mount = {"name": volume, "mountPath": "/everything"}
    with pytest.raises(helm.HelmError, match=f"two mounts the volume {volume}"):
        await render(controller={"sidecars": [SIDECARS[0], SIDECARS[1] | {"volumeMounts": [mount]}]})
