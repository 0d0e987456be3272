"""What others report of a device: tainted without an effect, evicted by the policy's effect, and freed again."""

import asyncio
import contextlib
import json
import socket
import ssl

import aiohttp
import pytest
import yaml

from drawbar.driver.api import taintrules
from drawbar.driver.healthmonitor import daemon, settings
from drawbar.driver.kube import client, config, errors, kinds
from drawbar.mocks.apiserver import listeners
from drawbar.mocks.cluster import deployment
from drawbar.mocks.scheduler import discovery

TOKEN = "0123456789abcdef0123456789abcdef"
POLICY = {
    "apiVersion": "drawbar.dev/v1alpha1",
    "kind": "HealthPolicy",
    "metadata": {"name": "flash-worn"},
    "spec": {
        "source": "alert",
        "fabric": "fab",
        "matchLabels": {"alertname": "FlashWorn"},
        "device": {"label": "serial", "attribute": "serial"},
        "hold": {"seconds": 0, "times": 2},
        "clearSeconds": 0,
        "minimumHealthyPercent": 50,
    },
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Sender:
    """Who sends alerts."""

    def __init__(self, url, trust):
        self._url, self._trust = url, trust

    async def post(self, *alerts, token=TOKEN, path="/v1/alerts"):
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                self._url + path, json={"version": "4", "alerts": alerts}, headers=headers, ssl=self._trust
            ) as answer,
        ):
            return answer.status

    async def report(self, serial, status="firing"):
        labels = {"alertname": "FlashWorn", "serial": serial}
        return await self.post({"status": status, "labels": labels, "fingerprint": f"f-{serial}"})


async def permit(api):
    """Create the account of the health monitor, which the chart leaves out by default, and its roles."""
    text = (
        deployment.folder() / "manifests" / "components" / "health-monitor" / "health-monitor-rbac.yaml"
    ).read_text()
    for document in yaml.safe_load_all(text):
        kind, namespace = deployment.KINDS[document["kind"]], document["metadata"].get("namespace")
        with contextlib.suppress(errors.AlreadyExists):
            await api.create(kind, document, namespace=namespace, into=dict)


@contextlib.asynccontextmanager
async def monitor(cluster, folder, **changes):
    """Run the health monitor with the permissions of its role; yield a sender to it."""
    certificate, key = listeners.issue_certificate()
    for name, content in (("crt", certificate), ("key", key), ("token", TOKEN.encode() + b"\n")):
        (folder / name).write_bytes(content)
    await permit(cluster.api)
    kubeconfig = folder / "kubeconfig"
    cluster.site.kubeconfig(kubeconfig, "drawbar:drawbar-health-monitor")
    port = free_port()
    options = settings.Settings(
        kubeconfig=str(kubeconfig),
        token_file=folder / "token",
        listen=settings.Listen(port=port),
        tls=settings.Tls(certificate=folder / "crt", key=folder / "key"),
        http=settings.Http(address="off"),
        **changes,
    )
    task = asyncio.Task(daemon.run(options), name="health monitor")
    sender = Sender(f"https://localhost:{port}", ssl.create_default_context(cadata=certificate.decode()))

    async def ready():
        if task.done():
            await task
        try:
            return await sender.post()
        except aiohttp.ClientConnectionError:
            return None

    try:
        await cluster.until(ready, lambda status: status == 200)
        yield sender
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def rules(cluster):
    kind = await discovery.taint_rules(cluster.api)
    listing = await cluster.api.list_all(kind, into=taintrules.DeviceTaintRule)
    return {rule.spec.device_selector.device: rule for rule in listing.items}


async def effects(cluster):
    return {device: rule.spec.taint.effect for device, rule in (await rules(cluster)).items()}


# The oldest release with the effect None, which real components are of as well.
OLDEST = {"profile": "1.36", "gates": {"DRADeviceTaintRules": True}}


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(OLDEST, id="v1beta2"),
        pytest.param({"profile": "1.37"}, id="v1"),
    ],
)
async def test_an_alert_taints_without_effect_then_the_policy_evicts_and_the_resolved_alert_frees(
    flow_lab, tmp_path, server
):
    async with flow_lab(**server, devices=2) as cluster:
        await cluster.pod("a")
        await cluster.wait_until_running("a")
        (used,) = await cluster.devices_of("a")
        (serial,) = [
            device["attributes"]["serial"]["string"]
            for spec in await cluster.slices()
            for device in spec.get("devices", ())
            if device["name"] == used
        ]
        await cluster.api.create(kinds.HEALTH_POLICY, POLICY, into=dict)
        async with monitor(cluster, tmp_path) as sender:
            await cluster.until(lambda: sender.report(serial), lambda status: status == 200)
            await sender.report(serial)
            await cluster.until(lambda: effects(cluster), lambda seen: seen == {used: "None"})
            rule = (await rules(cluster))[used]
            assert rule.metadata.annotations[taintrules.CREATED_BY_ANNOTATION] == "drawbar-health-monitor"
            assert "flash-worn" in rule.metadata.annotations[taintrules.REASON_ANNOTATION]
            assert rule.expires_at is not None
            await cluster.wait_for_event("DeviceTainted", "its signal has held")
            assert set(await cluster.pods()) == {"a"}, "effect None evicts no pod"

            await cluster.change(kinds.HEALTH_POLICY, "flash-worn", spec={"taint": {"effect": "NoExecute"}})
            await cluster.until(cluster.pods, lambda pods: not pods)
            assert await effects(cluster) == {used: "NoExecute"}
            await cluster.wait_for_event("DeviceChanged")

            await sender.report("unknown")
            await sender.report(serial, "resolved")
            await cluster.until(lambda: rules(cluster), lambda seen: not seen)
            await cluster.wait_for_event("DeviceLifted")


async def rates(cluster):
    return [
        (rule.spec.taint.effect, rule.spec.taint.evictions_per_second)
        for rule in (await rules(cluster)).values()
    ]


@pytest.mark.parametrize(
    ("server", "kept"),
    [
        pytest.param(OLDEST, None, id="the API server drops it"),
        pytest.param({"profile": "kep-5055"}, 2, id="the API server keeps it"),
    ],
)
async def test_a_rate_of_evictions_stands_in_the_rules_or_is_reported_before_any_pod_is_evicted(
    flow_lab, tmp_path, server, kept
):
    async with flow_lab(**server, devices=2) as cluster:
        await cluster.until(cluster.slices, lambda slices: slices)
        own = {"device": {"label": "serial"}, "hold": {"seconds": 0}, "taint": {"evictionsPerSecond": 2}}
        await cluster.api.create(kinds.HEALTH_POLICY, POLICY | {"spec": POLICY["spec"] | own}, into=dict)
        async with monitor(cluster, tmp_path) as sender:
            await sender.report("disk-0")
            await cluster.until(lambda: rates(cluster), lambda seen: seen == [("None", kept)])
            if kept is None:
                await cluster.wait_for_event("EvictionRateDropped", "so 2 has no effect")
            taint = {"effect": "NoExecute", "evictionsPerSecond": 3}
            await cluster.change(kinds.HEALTH_POLICY, "flash-worn", spec={"taint": taint})
            await cluster.until(lambda: rates(cluster), lambda seen: seen == [("NoExecute", kept and 3)])
            taint = {"effect": "NoSchedule", "evictionsPerSecond": None}
            await cluster.change(kinds.HEALTH_POLICY, "flash-worn", spec={"taint": taint})
            await cluster.until(lambda: rates(cluster), lambda seen: seen == [("NoSchedule", None)])


async def test_a_dry_run_reports_and_changes_nothing_and_a_wrong_token_is_refused(flow_lab, tmp_path):
    async with flow_lab(**OLDEST, devices=2) as cluster:
        await cluster.api.create(
            kinds.HEALTH_POLICY,
            POLICY | {"spec": POLICY["spec"] | {"device": {"label": "serial"}, "hold": {"seconds": 0}}},
            into=dict,
        )
        async with monitor(cluster, tmp_path, dry_run=True) as sender:
            assert await sender.post(token="wrong") == 401
            assert await sender.post(path="/") == 404
            await cluster.until(cluster.slices, lambda slices: slices)
            await cluster.until(lambda: sender.report("disk-0"), lambda status: status == 200)
            await cluster.wait_for_event("DeviceWithheld", "dry run")
            assert await rules(cluster) == {}


async def test_devices_listed_by_a_command_are_tainted_until_it_drops_them(flow_lab, tmp_path):
    program, listed = tmp_path / "command", tmp_path / "listed"
    program.write_text(f"#!/bin/sh\ncat {listed}\n")
    program.chmod(0o755)
    listed.write_text(json.dumps({"signals": [{"labels": {"check": "worn", "device": "disk-1"}}]}))
    command = settings.Command(path=program, interval_seconds=1)
    spec = POLICY["spec"] | {"source": "command", "device": {}, "matchLabels": {"check": "worn"}}
    async with flow_lab(**OLDEST, devices=2) as cluster:
        await cluster.until(cluster.slices, lambda slices: slices)
        await cluster.api.create(kinds.HEALTH_POLICY, POLICY | {"spec": spec}, into=dict)
        async with monitor(cluster, tmp_path, command=command):
            await cluster.until(lambda: effects(cluster), lambda seen: seen == {"disk-1": "None"})
        listed.unlink()
        async with monitor(cluster, tmp_path, command=command) as sender:
            assert await sender.post(path="/v1/redfish") == 400
            assert await effects(cluster) == {"disk-1": "None"}, "a command that fails frees nothing"
            listed.write_text(json.dumps({"signals": []}))
            await cluster.until(lambda: rules(cluster), lambda seen: not seen)


async def test_a_policy_that_an_operator_deletes_takes_its_rules_with_it(flow_lab, tmp_path):
    async with (
        flow_lab(**OLDEST, devices=2) as cluster,
        client.connecting(config.from_kubeconfig(await cluster.operator())) as operator,
    ):
        await cluster.until(cluster.slices, lambda slices: slices)
        spec = POLICY["spec"] | {"device": {"label": "serial"}, "hold": {"seconds": 0}}
        await operator.create(kinds.HEALTH_POLICY, POLICY | {"spec": spec}, into=dict)
        async with monitor(cluster, tmp_path) as sender:
            await sender.report("disk-0")
            await sender.report("disk-1")
            await cluster.wait_for_event("DeviceWithheld", "fewer devices than minimumHealthyPercent")
            assert await effects(cluster) == {"disk-0": "None"}, "half of them stay free of taints"
            await operator.delete(kinds.HEALTH_POLICY, "flash-worn")
            await cluster.until(lambda: rules(cluster), lambda seen: not seen)
            await cluster.wait_for_event("DeviceLifted", "the policy is gone")
