import asyncio
import base64
import json

import pytest
import yaml

from drawbar.driver.kube import client, config, kinds
from drawbar.mocks.cluster import deployment
from drawbar.mocks.testing import processes

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def no_kubeconfig(monkeypatch, tmp_path):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def drawbar_command(run_verb):
    """Return a function that runs `drawbar fabric` and returns its status, output and errors."""

    def run(*words):
        status, out, err = run_verb("fabric", *words)
        assert PASSWORD not in out + err
        return status, out, err

    return run


@pytest.fixture
def config_file(tmp_path):
    """Return a function that writes a configuration file, as YAML unless the content is text."""

    def write(content):
        path = tmp_path / "fabric.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    return write


@pytest.fixture
def grpc_file(drawbar_fabric, config_file):
    return config_file({"adapter": "grpc", "endpoint": drawbar_fabric.endpoint})


@pytest.fixture
def redfish_file(request, tmp_path, config_file):
    """Run a Redfish emulator with a password and the parameter's quirks; yield its configuration file."""
    content = {
        "hosts": [{"id": "h1"}, {"id": "h2"}],
        "enclosures": [
            {"id": "e1", "devices": [{"id": "gpu-1", "kind": "gpu", "model": "A100", "serial": "S1"}]}
        ],
        "username": "drawbar",
        "password": PASSWORD,
        "quirks": getattr(request, "param", []),
    }
    (tmp_path / "redfish.json").write_text(json.dumps(content))
    (tmp_path / "username").write_text("drawbar\n")
    (tmp_path / "password").write_text(PASSWORD + "\n")
    arguments = ("--config", str(tmp_path / "redfish.json"))
    with processes.running("redfish", tmp_path / "redfish.log", *arguments) as ready:
        yield config_file(
            {
                "adapter": "redfish",
                "endpoint": ready["endpoint"],
                "credentialFiles": {"username": "username", "password": "password"},
            }
        )


@pytest.fixture
def cluster(drawbar_apiserver, drawbar_fabric):
    """Return a function that runs coroutine functions with a client of a filled API server.

    The server has the Fabric rack-1, its Secret, and the node node-1.
    """

    def call(function):
        async def work():
            async with client.connecting(config.from_kubeconfig(drawbar_apiserver.kubeconfig)) as api:
                return await function(api)

        return asyncio.run(work())

    async def deploy(api):
        await deployment.apply(api)
        values = {"token": PASSWORD, "origins": drawbar_fabric.endpoint}
        secret = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        spec = {
            "adapter": "grpc",
            "endpoint": drawbar_fabric.endpoint,
            "credentialsSecretRef": {"name": "rack-1"},
        }
        for kind, namespace, name, content in (
            (kinds.NODE, None, "node-1", {"spec": {}}),
            (kinds.SECRET, "drawbar", "rack-1", {"data": secret}),
            (kinds.FABRIC, None, "rack-1", {"spec": spec}),
        ):
            body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}} | content
            await api.create(kind, body, into=dict, namespace=namespace)

    call(deploy)
    call.kubeconfig = drawbar_apiserver.kubeconfig
    return call
