"""`drawbar mock scheduler` and `drawbar mock kubelet` as commands: options, the ready line, what users get wrong."""

import argparse
import asyncio
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from drawbar.driver.kube import client, config, kinds
from drawbar.mocks import apiserver, errors
from drawbar.mocks.claims import documents
from drawbar.mocks.kubelet import command as kubelet
from drawbar.mocks.scheduler import command as scheduler


def parse_arguments(module: ModuleType, *arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(arguments)


async def test_both_commands_say_that_they_are_ready_and_a_pod_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with apiserver.serving() as server:
        file = str(server.kubeconfig(tmp_path / "kubeconfig"))
        node = f"--node=node-a={tmp_path / 'node-a'}"
        async with client.connecting(config.load(file)) as api, asyncio.TaskGroup() as group:
            arguments = parse_arguments(scheduler, "--kubeconfig", file, "--poll-seconds", "0.1")
            tasks = [group.create_task(scheduler.serve(arguments))]
            arguments = parse_arguments(kubelet, "--kubeconfig", file, node)
            tasks.append(group.create_task(kubelet.serve(arguments)))
            spec = {"containers": [{"name": "main", "image": "none"}]}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p1"}, "spec": spec}
            made = await api.create(kinds.POD, body, into=documents.Document, namespace="default")
            version = made.metadata.resource_version
            async with asyncio.timeout(120):
                changes = api.watch(kinds.POD, into=documents.Document, resource_version=version)
                async for event in changes:
                    if event.item is not None and event.item.status.get("phase") == "Running":
                        break
            for task in tasks:
                task.cancel()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(line["ready"] for line in lines) == [True, True]
    assert {"ready": True, "nodes": ["node-a"]} in lines


RULE = kinds.Kind(
    group="resource.k8s.io", version="v1", kind="DeviceTaintRule", plural="devicetaintrules", namespaced=False
)
TAINT = {"deviceSelector": {}, "taint": {"key": "drawbar.dev/broken", "effect": "NoExecute"}}


async def has_status(api: client.Client, kind: kinds.Kind) -> None:
    """Wait until the kind's only object has a condition."""
    listing = await api.list_all(kind, into=dict[str, Any])
    version = listing.resource_version
    if any((item.get("status") or {}).get("conditions") for item in listing.items):
        return
    async with asyncio.timeout(120):
        async for event in api.watch(kind, into=dict[str, Any], resource_version=version):
            if event.item is not None and (event.item.get("status") or {}).get("conditions"):
                return


async def test_pods_are_evicted_from_tainted_devices(tmp_path: Path) -> None:
    async with apiserver.serving(profile="1.37") as server:
        file = str(server.kubeconfig(tmp_path / "kubeconfig"))
        async with client.connecting(config.load(file)) as api, asyncio.TaskGroup() as group:
            await api.create(RULE, {"metadata": {"name": "all"}, "spec": TAINT}, into=dict[str, Any])
            task = group.create_task(scheduler.serve(parse_arguments(scheduler, "--kubeconfig", file)))
            await has_status(api, RULE)
            task.cancel()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--node", "node-a"), "--node 'node-a' is not NAME=VALUE"),
        (("--node", "a=x", "--node", "a=y"), "given twice"),
    ],
)
async def test_a_wrong_node_is_one_sentence(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(errors.UsageError, match=words):
        await kubelet.serve(parse_arguments(kubelet, *arguments))
