"""Who may do what, and clients of other projects: the Python client and kubectl."""

import asyncio
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from drawbar.mocks import apiserver

PODS = "/api/v1/namespaces/default/pods"


async def test_a_refusal_names_user_verb_and_resource(api: Any) -> None:
    reply = await api.acting_as("drawbar:node").merge(
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/x", {}
    )
    assert (reply.code, reply.body["reason"]) == (403, "Forbidden")
    assert reply.body["message"] == (
        'resourceclaims.resource.k8s.io "x" is forbidden: User "system:serviceaccount:drawbar:node" cannot patch '
        'resource "resourceclaims" in API group "resource.k8s.io" in the namespace "default"'
    )


async def test_a_kubeconfig_is_private_and_holds_the_token(api: Any, tmp_path: Path) -> None:
    path = api.server.kubeconfig(tmp_path / "node.kubeconfig", "drawbar:node", node="node-a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["users"][0]["user"]["token"] == api.server.token_for(
        "drawbar:node", node="node-a"
    )


async def test_the_python_client_works_unmodified(tmp_path: Path) -> None:
    from kubernetes import client, config

    def use(path: Path) -> list[str]:
        load: Any = config.new_client_from_config  # the package does not annotate it
        with load(str(path)) as connection:
            core = client.CoreV1Api(connection)
            made = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="x"), data={"a": "b"})
            core.create_namespaced_config_map("default", made)
            core.patch_namespaced_config_map("x", "default", {"data": {"c": "d"}})
            with pytest.raises(client.ApiException) as caught:
                core.read_namespaced_config_map("y", "default")
            assert caught.value.status == 404
            slices = client.ResourceV1Api(connection).list_resource_slice()
            assert slices.items == []
            return sorted(core.read_namespaced_config_map("x", "default").data or {})

    async with apiserver.serving(tls=True) as server, asyncio.timeout(120):
        path = server.kubeconfig(tmp_path / "admin.kubeconfig")
        assert await asyncio.to_thread(use, path) == ["a", "c"]


async def test_the_command_says_when_it_is_ready_and_writes_kubeconfigs(tmp_path: Path) -> None:
    code = (
        "import argparse, asyncio\n"
        "from drawbar.mocks.apiserver import command\n"
        "parser = argparse.ArgumentParser()\n"
        "command.add_arguments(parser)\n"
        "asyncio.run(command.serve(parser.parse_args()))\n"
    )
    words = [
        "--kubeconfig-dir",
        str(tmp_path),
        "--service-account",
        "drawbar:node:node-a",
        "--profile",
        "1.37",
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *words, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            ready = json.loads(await process.stdout.readline())
    finally:
        process.terminate()
        await process.communicate()
    assert ready["ready"] is True
    assert ready["url"].startswith("https://127.0.0.1:")
    assert {path.name for path in await asyncio.to_thread(lambda: list(tmp_path.iterdir()))} == {
        "admin.kubeconfig",
        "node-node-a.kubeconfig",
    }
