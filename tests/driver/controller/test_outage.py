"""Pods wait while the fabric manager is down for three minutes, in virtual time.

The real controller, the doubles of API server, scheduler and claim controller, and the simulated fabric behind a
manager that can be down. With patience all pods wait it out; with the default patience every attach is given up at the
very moment at which the manager comes back, and begun again.

KEP-5007's stress test has a thousand pods: `DRAWBAR_OUTAGE_PODS=1000`. A tenth of them takes a tenth of the time; the
controller may write less, so that they, too, meet the limit.
"""

import asyncio
import contextlib
import json
import logging
import os
from dataclasses import dataclass, field

import pytest

from drawbar.driver.api import attachments, meta
from drawbar.driver.controller import daemon, settings
from drawbar.driver.kube import client, config, kinds, mirror
from drawbar.fabric import errors as fabric_errors
from drawbar.fabric import wrapping
from drawbar.mocks import apiserver, claims, scheduler
from drawbar.mocks.cluster import deployment
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric
from drawbar.mocks.testing import virtualtime

log = logging.getLogger(__name__)

DRIVER = "drawbar.dev"
PODS = int(os.environ.get("DRAWBAR_OUTAGE_PODS", "100"))
# Who gives up and begins again costs twice as much. More than the writes that are allowed while nothing can be done.
PODS_GIVEN_UP = PODS * 3 // 5
WRITES_PER_SECOND = PODS * 7 // 10
WRITES_BURST = PODS // 10
NODES, ENCLOSURES = 25, 16
OUTAGE_SECONDS, REST_SECONDS = 180, 1800
# A list of a thousand pods costs as much as the work of a second.
LOOK_SECONDS = 10
CONTROLLER = "system:serviceaccount:drawbar:drawbar-controller"


def fabric_file(path, devices):
    described = {
        "hosts": [
            {"id": f"h-n{number}", "name": f"n{number}", "ports": -(-devices // NODES) + 8}
            for number in range(NODES)
        ],
        "enclosures": [
            {
                "id": f"e{enclosure}",
                "devices": [
                    {"id": f"d{number}", "class": "gpu", "serial": f"s{number}"}
                    for number in range(enclosure, devices, ENCLOSURES)
                ],
            }
            for enclosure in range(ENCLOSURES)
        ],
        "attachSeconds": 2.0,
        "detachSeconds": 1.0,
    }
    path.write_text(json.dumps(described))
    return configuration.load(path)


class Manager:
    """The fabric's manager, which can be down: then no call arrives, and its watches end."""

    def __init__(self, fabric):
        self.fabric = fabric
        self.up = asyncio.Event()
        self.up.set()
        self.lists = 0

    def check(self):
        if not self.up.is_set():
            raise fabric_errors.Unavailable("the fabric manager is down")

    def adapter(self):
        """Return a class of adapters that all lead to this manager."""
        manager = self

        class Adapter(wrapping.WrappingAdapter):
            @classmethod
            def validate(cls, config):
                """Accept any configuration."""

            @classmethod
            async def connect(cls, config):
                manager.check()
                return cls(manager.fabric)

            @contextlib.asynccontextmanager
            async def _guard(self, call):
                manager.check()
                manager.lists += call == "devices"
                yield

            def _events(self, events):
                return manager.until_down(events)

            async def close(self):
                """Leave the fabric open: it outlives its callers."""

        return Adapter

    async def until_down(self, events):
        async for event in events:
            self.check()
            yield event


class Nodes:
    """The node daemons, as far as the controller sees them."""

    def __init__(self, api, loop):
        self._api, self._loop = api, loop
        self._changed = asyncio.Queue()
        self._known = mirror.Mirror(
            api,
            kinds.ATTACHMENT,
            into=attachments.DeviceAttachment,
            changed=lambda old, new: self._changed.put_nowait((new or old).metadata.name),
        )

    async def run(self):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._known.run())
            for _ in range(4):
                tasks.create_task(self._work())

    async def _work(self):
        while True:
            attachment = self._known.get(await self._changed.get())
            if attachment is None:
                continue
            if attachment.deleting:
                if not attachment.holds(attachments.RELEASED):
                    await self._say(attachment, attachments.RELEASED)
            elif attachment.holds(attachments.ATTACHED) and not attachment.holds(attachments.VISIBLE):
                device = {"driver": DRIVER, "pool": attachment.spec.pool, "device": attachment.spec.device}
                status = {"devices": [device | {"conditions": [self._condition(f"{DRIVER}/visible")]}]}
                await self._apply(
                    kinds.CLAIM, attachment.spec.claim.name, status, attachment.spec.claim.namespace
                )
                await self._say(attachment, attachments.VISIBLE)

    async def _say(self, attachment, condition):
        status = {"conditions": [self._condition(condition)]}
        await self._apply(kinds.ATTACHMENT, attachment.metadata.name, status)

    def _condition(self, kind):
        now = meta.timestamp(self._loop.now())
        return {"type": kind, "status": "True", "reason": "Said", "message": "", "lastTransitionTime": now}

    async def _apply(self, kind, name, status, namespace=None):
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "status": status}
        apply = {"content": client.Patch.APPLY, "subresource": "status", "manager": "drawbar-node"}
        await self._api.patch(kind, name, body, into=dict, namespace=namespace, **apply)


@dataclass
class Outcome:
    bound: int = 0
    seconds: float = 0.0
    # Of the controller, per second from the beginning of the outage on.
    writes: list[int] = field(default_factory=list)
    attachments: list = field(default_factory=list)
    connected: set = field(default_factory=set)
    # How often the controller read the whole fabric.
    lists: int = 0


async def make_cluster(api, attach_timeout):
    await deployment.apply(api)
    for number in range(NODES):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}}
        await api.create(kinds.NODE, node, into=dict)
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        kubelet = {"content": client.Patch.MERGE, "subresource": "status", "manager": "kubelet"}
        await api.patch(kinds.NODE, f"n{number}", ready, into=dict, **kubelet)
    policy = {"attachTimeoutSeconds": attach_timeout} if attach_timeout else {}
    spec = {"adapter": "fused", "endpoint": "here", "policy": policy}
    body = {"apiVersion": kinds.FABRIC.api_version, "kind": "Fabric", "metadata": {"name": "f"}, "spec": spec}
    await api.create(kinds.FABRIC, body, into=dict)
    request = {"name": "gpu", "exactly": {"deviceClassName": f"gpu.{DRIVER}"}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one-gpu"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    await api.create(kinds.CLAIM_TEMPLATE, template, namespace="default", into=dict)


async def make_pods(api, count):
    for number in range(count):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}"},
            "spec": {
                "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
            },
        }
        await api.create(kinds.POD, pod, namespace="default", into=dict)


async def sit_out(loop, server, api, manager, pods):
    """Take the manager down, make pods, and wait until all are bound or time is up; return the outcome."""
    outcome = Outcome()
    manager.up.clear()
    began, before = loop.time(), writes_of_controller(server)
    await make_pods(api, pods)
    while outcome.bound < pods and loop.time() < began + OUTAGE_SECONDS + REST_SECONDS:
        await asyncio.sleep(1)
        after = writes_of_controller(server)
        outcome.writes.append(after - before)
        before = after
        if loop.time() >= began + OUTAGE_SECONDS:
            manager.up.set()
            if len(outcome.writes) % LOOK_SECONDS:
                continue
            current = (await api.list_all(kinds.POD, into=dict)).items
            outcome.bound = sum(bool(pod["spec"].get("nodeName")) for pod in current)
    outcome.seconds = loop.time() - began
    listed = await api.list_all(kinds.ATTACHMENT, into=attachments.DeviceAttachment)
    outcome.attachments = list(listed.items)
    outcome.lists = manager.lists
    inventory = await manager.fabric.devices()
    outcome.connected = {device.id for device in inventory.devices if device.connection}
    return outcome


def writes_of_controller(server):
    return sum(count for (_, _, user), count in server.writes.totals.items() if user == CONTROLLER)


async def outage(loop, path, pods, attach_timeout):
    async with (
        apiserver.serving() as server,
        SimulatedFabric.running(fabric_file(path / "fabric.json", pods)) as fabric,
        asyncio.TaskGroup() as tasks,
    ):
        server.kubeconfig(path / "admin", "admin")
        server.kubeconfig(path / "controller", "drawbar:drawbar-controller")
        admin, manager = config.from_kubeconfig(path / "admin"), Manager(fabric)
        async with client.connecting(admin) as api, claims.serving(admin):
            await make_cluster(api, attach_timeout)
            options = settings.Settings(
                kubeconfig=str(path / "controller"),
                http=settings.Http(address="off"),
                leader_election=False,
                writes_per_second=WRITES_PER_SECOND,
                writes_burst=WRITES_BURST,
            )
            around = daemon.Surroundings(
                clock=loop.now, time_of_day=loop.now, adapters=lambda _: manager.adapter()
            )
            running = [
                tasks.create_task(daemon.run(options, around)),
                tasks.create_task(Nodes(api, loop).run()),
            ]
            # The pools are published and the nodes labelled.
            await asyncio.sleep(10)
            async with scheduler.serving(admin, clock=loop.now):
                outcome = await sit_out(loop, server, api, manager, pods)
            for task in running:
                task.cancel()
            return outcome


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("pods", "attach_timeout"),
    [pytest.param(PODS, 540, id="patient"), pytest.param(PODS_GIVEN_UP, None, id="abandoned")],
)
def test_all_pods_get_their_devices_after_an_outage_and_the_api_server_is_never_hammered(
    tmp_path, pods, attach_timeout
):
    with contextlib.closing(virtualtime.VirtualTimeLoop()) as loop:
        outcome = loop.run_until_complete(outage(loop, tmp_path, pods, attach_timeout))
    writes = outcome.writes
    text = (
        "%d pods: all bound after %.0f s; %d writes, %d while nothing could be done, at most %d in a second"
    )
    log.info(text, pods, outcome.seconds, sum(writes), sum(writes[70:170]), max(writes))
    assert outcome.bound == pods
    # None leaked: what the fabric has connected is what the pods have.
    assert len(outcome.attachments) == pods
    assert {attachment.spec.device_id for attachment in outcome.attachments} == outcome.connected
    assert all(attachment.holds(attachments.VISIBLE) for attachment in outcome.attachments)
    # Once at the start and once when the manager came back, however many devices waited.
    assert outcome.lists == 2
    # The intents at first, then an Event and a status of each attachment, and Events of its claim and pod; then silence.
    assert sum(writes[15:70]) <= 4 * pods + 3 * ENCLOSURES
    assert sum(writes[70:170]) <= 3 * ENCLOSURES
    assert max(writes) <= WRITES_BURST + WRITES_PER_SECOND
    for start in range(len(writes)):
        window = writes[start : start + 10]
        assert sum(window) <= WRITES_BURST + WRITES_PER_SECOND * 10
