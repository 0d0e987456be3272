"""A Fabric that changes while the controller runs, and an adapter that does not keep its word."""

import asyncio
import json
import logging
import shlex
from pathlib import Path

import pytest
import yaml
from tests.scenes import maintenances

from drawbar.driver.api import fabrics, meta
from drawbar.driver.controller.fabrics import session
from drawbar.driver.kube import client, kinds
from drawbar.fabric import contract
from drawbar.fabric.grpc import server

LABEL = "fabric.drawbar.dev/fab"
TOKEN = "s3cret-t0ken"
# Never strikes, and counts how often it might have.
COUNTS_CONNECTIONS = {"effect": "refuse", "method": "capabilities", "skip": 1000}


async def change(cluster, **spec):
    await cluster.patch(kinds.FABRIC, "fab", {"spec": spec})


async def test_a_change_of_other_fields_keeps_the_connection_to_the_manager(
    controller_world, until, tmp_path
):
    async with controller_world(faults=[COUNTS_CONNECTIONS]) as cluster:
        cluster.start(leader_election=False)
        await cluster.make_fabric(hosts=[{"host": "host-node-1", "node": "no-such-node"}])
        await cluster.wait_for_slices()

        async def list_tainted():
            return [
                device["name"]
                for spec in await cluster.slices()
                for device in spec["devices"]
                if "taints" in device
            ]

        assert LABEL not in await cluster.labels("node-1")
        await change(cluster, hosts=[])
        await maintenances.begin(cluster.api, devices=["disk-0"])
        await until(lambda: cluster.labels("node-1"), lambda labels: labels.get(LABEL) == "true")
        await until(list_tainted, lambda value: value == ["disk-0"])
        assert cluster.fabric._deck.seen == {"0": 1}

        async with server.serving(cluster.fabric, f"unix:{tmp_path}/moved.sock", name="sim", version="1"):
            await change(cluster, endpoint=f"unix:{tmp_path}/moved.sock")
            await until(
                lambda: cluster.fabric_condition("Connected"),
                lambda value: value.get("message", "").endswith("moved.sock"),
            )
            assert cluster.fabric._deck.seen == {"0": 2}
            await cluster.allocate("gpu-0")
            await cluster.wait_until_attached("gpu-0")
            await cluster.stop()


async def test_the_fabric_of_the_documentation_is_taken_whole_and_connects(controller_world):
    example = Path(__file__).parents[4] / "docs" / "examples" / "fabric.yaml"
    secret, fabric = yaml.safe_load_all(example.read_text())
    async with controller_world(token=secret["stringData"]["token"]) as cluster:
        cluster.start(leader_election=False)
        await cluster.api.create(kinds.SECRET, secret, namespace=secret["metadata"]["namespace"], into=dict)
        stored = await cluster.api.create(kinds.FABRIC, fabric, into=dict)
        assert _is_within(fabric["spec"], stored["spec"]), "the schema knows every field of it"
        # It is connected once both the Fabric and its Secret name the socket of this machine.
        endpoint = f"unix:{cluster.path / 'f.sock'}"
        await cluster.patch(kinds.FABRIC, "rack-7", {"spec": {"endpoint": endpoint}})
        refused = await cluster.condition("Connected", "rack-7", reason="CredentialsNotForFabric")
        command = shlex.split(refused["message"].partition("run: ")[2].partition("; this replaces")[0])
        patch = json.loads(command[-1])
        await cluster.api.patch(
            kinds.SECRET,
            "fabric-credentials",
            patch,
            content=client.Patch.MERGE,
            into=dict,
            namespace="drawbar",
        )
        await cluster.condition("Connected", "rack-7", reason="Connected")
        assert cluster.fabric.door.tls.server_name == fabric["spec"]["tls"]["serverName"]


def _is_within(small, large):
    if isinstance(small, dict):
        return all(key in large and _is_within(value, large[key]) for key, value in small.items())
    if isinstance(small, list):
        return len(small) == len(large) and all(map(_is_within, small, large))
    return small == large


# --- an adapter's own defects ---


class Vault:
    """Has the credentials at once, and they never change."""

    async def follow(self, name, recipient):
        assert recipient.fabric
        yield contract.Credentials(token=TOKEN)
        await asyncio.Event().wait()


class Broken:
    """An adapter whose defects quote what it was given."""

    def validate(self, config):
        assert config.credentials.token == TOKEN
        assert config.tls == contract.Tls(verify=False, server_name="rack-7")

    async def connect(self, config):
        raise ValueError(f"cannot use {config.credentials.token}")


class Listener:
    """Ignores what it gets, but records when the connection changed."""

    def __init__(self):
        self.is_called = asyncio.Event()

    def connection_changed(self, fabric):
        self.is_called.set()


@pytest.mark.parametrize("names_a_secret", [True, False])
async def test_an_adapters_defect_is_logged_without_the_credentials_it_quotes(caplog, names_a_secret):
    caplog.set_level(logging.DEBUG)
    reference = fabrics.SecretReference(name="s") if names_a_secret else None
    fabric = fabrics.Fabric(
        metadata=meta.ObjectMeta(name="fab"),
        spec=fabrics.FabricSpec(
            adapter="broken",
            endpoint="here",
            credentials_secret_ref=reference,
            tls=fabrics.Tls(verify=False, server_name="rack-7"),
        ),
    )
    listener = Listener()
    broken = Broken()
    if not names_a_secret:
        broken.validate = lambda config: None
    opened = session.Session(fabric, listener, lambda name: broken, vault=Vault())
    task = asyncio.Task(opened.run())
    async with asyncio.timeout(120):
        await listener.is_called.wait()
    task.cancel()
    await asyncio.wait({task})
    assert opened.connection.reason == "AdapterDefect"
    (traceback,) = [record.traceback for record in caplog.records if hasattr(record, "traceback")]
    assert "ValueError: cannot use" in traceback
    assert all(TOKEN not in str(vars(record)) for record in caplog.records)
