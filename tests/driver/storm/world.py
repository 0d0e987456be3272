"""The cluster of the storm: doubles of everything, nodes and people that the test plays, and controllers that may die.

All of it runs in one loop whose clock jumps.
"""

import asyncio
import collections
import contextlib
import datetime
import json

import msgspec
from tests.driver.storm import agreement
from tests.scenes import attachments as scenes
from tests.scenes import clusters

from drawbar.driver.api import attachments, bindings, claims, meta
from drawbar.driver.cli.status import live
from drawbar.driver.cli.ui import device_rows
from drawbar.driver.controller import daemon, settings
from drawbar.driver.kube import claimstatus, client, config, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.fabric import errors as fabric_errors
from drawbar.fabric import wrapping
from drawbar.mocks import apiserver
from drawbar.mocks.apiserver import selectors
from drawbar.mocks.cluster import deployment
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric
from drawbar.mocks.testing import worlds

DRIVER = "drawbar.dev"
CALL_SECONDS = 30


class Fused(wrapping.WrappingAdapter):
    """An adapter over the one fabric of `storm`; `lives` is cleared when its controller is killed, and it then never answers.

    The devices of the attaches and detaches that it waits for are in `storm.asked`.
    """

    storm, lives = None, None

    @classmethod
    def validate(cls, config):
        """Accept any configuration."""

    @classmethod
    async def connect(cls, config):
        return cls(cls.storm.fabric)

    @contextlib.asynccontextmanager
    async def _guard(self, call):
        if call == "watch":
            yield
            return
        if not self.lives.is_set():
            await asyncio.Event().wait()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                yield
        except TimeoutError as error:
            raise fabric_errors.DeadlineExceeded(f"{call} took too long") from error

    @contextlib.contextmanager
    def _asking(self, request):
        devices = [request.device_id] if self.lives.is_set() else []
        self.storm.asked.update(devices)
        try:
            yield
        finally:
            self.storm.asked.subtract(devices)

    async def devices(self):
        return self.storm.as_listed(await super().devices())

    async def attach(self, request):
        with self._asking(request):
            return await super().attach(request)

    async def detach(self, request):
        with self._asking(request):
            return await super().detach(request)

    async def close(self):
        """Leave the fabric open: it outlives its callers."""


def adapter_of(storm, lives):
    """Return the class of an adapter to a storm's fabric, for one controller."""
    return type("Fused", (Fused,), {"storm": storm, "lives": lives})


class Storm(clusters.Cluster):
    """The cluster: an API server double, a simulated fabric, nodes that this class plays, and controllers."""

    def __init__(self, loop, path, nodes, devices):
        super().__init__(api=None)
        self.loop, self.path, self.nodes, self.devices = loop, path, nodes, devices
        self._stack = contextlib.AsyncExitStack()
        self._serial = 0
        self._controller = None
        self.foreign = set()
        self.dead = set()
        # Foreign ones with a mark of another cluster.
        self.marked = set()
        # Whose record is gone, until it is written again, with the moment of that.
        self.orphans = {}
        # Where a device hung before its link broke: until that is observed, what is stated of it was true.
        self.broken = {}
        # How many attaches and detaches of a device were asked for and not answered: a silent fabric has not recorded them.
        self.asked = collections.Counter()

    def describe_fabric(self):
        """Return the configuration of the simulated fabric."""
        devices = [{"id": name, "class": "gpu", "serial": name} for name in self.devices]
        return {
            "hosts": [{"id": f"h-{name}", "name": name, "ports": 2} for name in self.nodes],
            "enclosures": [{"id": "e", "devices": devices}],
            "attachSeconds": 2.0,
            "detachSeconds": 1.0,
        }

    def extra_spec(self):
        """Return what the Fabric has in its spec besides the usual."""
        return {}

    def as_listed(self, inventory):
        """Return the fabric's listing as the controller gets it."""
        return inventory

    async def begin(self, keep_seconds):
        file = self.path / "fabric.json"
        file.write_text(json.dumps(self.describe_fabric()))
        enter = self._stack.enter_async_context
        self.server = await enter(apiserver.serving())
        self.fabric = await enter(
            SimulatedFabric.running(configuration.load(file), journal=self.path / "journal")
        )
        self.server.kubeconfig(self.path / "admin", "admin")
        self.server.kubeconfig(self.path / "controller", "drawbar:drawbar-controller")
        self.api = await enter(client.connecting(config.from_kubeconfig(self.path / "admin")))
        await deployment.apply(self.api)
        for name in self.nodes:
            await self._add_node(name)
        policy = {"probationSeconds": 30, "attachTimeoutSeconds": 60, "keepAttachedSeconds": keep_seconds}
        spec = {"adapter": "fused", "endpoint": "here", "policy": policy}
        await self.create(kinds.FABRIC, "f", spec=spec | self.extra_spec())
        self.wake = asyncio.Event()
        self.shown, self.browser = device_rows.Rows(DRIVER), agreement.Browser()
        self.followed = live.Live(self.api, driver=DRIVER, changed=self._note_change)
        self._following = asyncio.Task(self.followed.run(), loop=self.loop)
        self.start_controller()

    def _note_change(self, old, new):
        self.shown.change(old, new)
        self.wake.set()

    async def end(self):
        await self.kill_controller()
        self._following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._following
        await self._stack.aclose()

    # Controllers.

    def start_controller(self, *, skew_seconds=0.0):
        """Start a controller whose clock is ahead of all others by `skew_seconds`."""

        def time_of_day():
            return self.loop.now() + datetime.timedelta(seconds=skew_seconds)

        lives = asyncio.Event()
        lives.set()
        options = settings.Settings(
            kubeconfig=str(self.path / "controller"), leader_election=False, http=settings.Http(address="off")
        )
        adapter = adapter_of(self, lives)
        around = daemon.Surroundings(clock=self.loop.now, time_of_day=time_of_day, adapters=lambda _: adapter)
        self._controller = (asyncio.Task(daemon.run(options, around), loop=self.loop), lives)

    @property
    def controlled(self):
        """Whether a controller runs."""
        return self._controller is not None

    async def kill_controller(self):
        if self._controller is not None:
            task, lives = self._controller
            self._controller = None
            lives.clear()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    # Claims, as a scheduler makes and ends them.

    async def allocate(self, device, node, *, pool=None):
        pools = {
            device["name"]: spec["pool"]["name"]
            for spec in await self.specs()
            for device in spec.get("devices", ())
        }
        if device not in pools:
            return
        await self._create_claim(node, worlds.result(pool or pools[device], device))

    async def _create_claim(self, node, *results):
        """Make a claim that was given these devices on that node."""
        self._serial += 1
        name = f"c{self._serial}"
        request = {"name": "r", "exactly": {"deviceClassName": "any"}}
        claim = await self.create(kinds.CLAIM, name, spec={"devices": {"requests": [request]}})
        claim["status"] = {
            "allocation": worlds.allocation(node, *results, at=meta.timestamp(self.loop.now())),
            "reservedFor": [{"resource": "pods", "name": name, "uid": name}],
        }
        await self._write_status(claim)

    async def use(self, *devices, node="n1"):
        """Allocate the devices on a node, which reports them visible."""
        for device in devices:
            await self.allocate(device, node)
        await asyncio.sleep(5)
        await self.nodes_do_their_duty()
        await asyncio.sleep(1)

    async def release(self, number, *, deletes):
        claims = await self.claims()
        if not claims:
            return
        claim = claims[number % len(claims)]
        claim["status"] = {}
        await self._write_status(claim)
        if deletes:
            await self.api.delete(kinds.CLAIM, claim["metadata"]["name"], namespace="default")

    async def reallocate(self, number):
        """Give a claim the same devices again, under a new allocation."""
        claims = [claim for claim in await self.claims() if "allocation" in claim.get("status", {})]
        if not claims:
            return
        claim = claims[number % len(claims)]
        allocation = claim["status"]["allocation"]
        claim["status"] = {}
        claim = await self._write_status(claim)
        results = [self._renew_result(result) for result in allocation["devices"]["results"]]
        fresh = allocation | {
            "devices": allocation["devices"] | {"results": results},
            "allocationTimestamp": meta.timestamp(self.loop.now()),
        }
        claim["status"] = {"allocation": fresh}
        await self._write_status(claim)

    def _renew_result(self, result):
        """Return a result of an allocation as the next allocation has it."""
        return result

    async def _write_status(self, claim):
        name = claim["metadata"]["name"]
        while True:
            try:
                return await self.api.replace(
                    kinds.CLAIM, name, claim, namespace="default", subresource="status", into=dict
                )
            except kube_errors.Conflict:
                current = await self.api.read(kinds.CLAIM, name, namespace="default", into=dict)
                claim["metadata"] = current["metadata"]

    async def claims(self):
        return list(await self.list(kinds.CLAIM))

    async def list_allocated(self):
        """Return the devices that claims were given, with the hosts of their nodes."""
        wanted = set()
        for claim in await self.claims():
            allocation = claim.get("status", {}).get("allocation")
            if allocation is not None:
                host = f"h-{node_of(allocation)}"
                wanted |= {
                    (device, host)
                    for result in allocation["devices"]["results"]
                    for device in self.devices_of(result)
                }
        return wanted

    def name_of(self, device_id):
        """Return the name that `connections` has for a device of the fabric."""
        return device_id

    def offered_as(self, device):
        """Return the name under which a device is published, or an empty one."""
        return device

    def devices_of(self, result):
        """Return the devices attached for an allocation result, by the names that `connections` has."""
        return (result["device"],)

    # Nodes.

    async def nodes_do_their_duty(self):
        for attachment in await self._reachable():
            await self._node_acts(attachment)
        await self._nodes_report_claims()

    async def _nodes_report_claims(self):
        """Report on each claim what is ready on its node; a composite is ready once all members are."""
        recorded = msgspec.convert(await self.attachments(), list[attachments.DeviceAttachment])
        by_name = {attachment.metadata.name: attachment for attachment in recorded}
        ready = {
            (attachment.spec.claim.uid, attachment.spec.allocation_timestamp, allocation_key(attachment.spec))
            for attachment in recorded
            if attachment.spec.claim is not None
            and attachment.spec.node_name not in self.dead
            and all(
                attachment.is_used_with(member, attachments.VISIBLE)
                for member in (attachment, *map(by_name.get, attachment.spec.companions))
            )
        }
        reported = bindings.Statement(
            condition=bindings.VISIBLE, status=True, reason="DeviceReady", message=""
        )
        for claim in msgspec.convert(await self.claims(), list[claims.ResourceClaim]):
            allocation = claim.status.allocation
            moment = allocation.allocation_timestamp if allocation is not None else None
            keys = {
                bindings.Key.from_result(result)
                for result in claim.results(DRIVER)
                if (claim.metadata.uid, moment, bindings.Key.from_result(result)) in ready
            }
            body = bindings.build_apply(
                claim,
                DRIVER,
                own=bindings.NODE_CONDITIONS,
                statements=dict.fromkeys(keys, reported),
                now=meta.timestamp(self.loop.now()),
            )
            if body is not None:
                # The claim may have changed since it was read; the next duty reports it.
                with contextlib.suppress(kube_errors.Conflict):
                    await claimstatus.apply(self.api, claim, body, manager="drawbar-node")

    async def a_node_acts_once(self, number):
        """Let a node release one device, or make it ready; the others of the node have to wait."""
        reachable = await self._reachable()
        if reachable:
            await self._node_acts(reachable[number % len(reachable)])

    async def a_node_cannot_release(self, number):
        leaving = [
            attachment
            for attachment in await self._reachable()
            if "deletionTimestamp" in attachment["metadata"]
            and conditions_of(attachment).get(attachments.RELEASED) != "True"
        ]
        if leaving:
            await self._node_says(
                leaving[number % len(leaving)], attachments.RELEASED, "False", reason="InUse"
            )

    async def _reachable(self):
        """Return the attachments of living nodes."""
        return [
            attachment
            for attachment in await self.attachments()
            if attachment["spec"]["nodeName"] not in self.dead
        ]

    async def _node_acts(self, attachment, *, well=True):
        conditions = conditions_of(attachment)
        claim = attachment["spec"].get("claim") or {}
        node, moment = (
            attachment.get("status", {}).get("node", {}),
            attachment["spec"].get("allocationTimestamp"),
        )
        ready = (node.get("claimUID"), node.get("allocationTimestamp")) == (claim.get("uid", ""), moment)
        if "deletionTimestamp" in attachment["metadata"]:
            if conditions.get(attachments.RELEASED) != "True":
                await self._node_says(attachment, attachments.RELEASED, "True")
        elif conditions.get(attachments.ATTACHED) == "True" and not (
            ready and conditions.get(attachments.VISIBLE) == "True"
        ):
            await self._node_says(attachment, attachments.VISIBLE, "True" if well else "False")

    async def a_node_fails_a_device(self, number):
        reachable = await self._reachable()
        if reachable:
            await self._node_acts(reachable[number % len(reachable)], well=False)

    async def _node_says(self, attachment, condition, status, *, reason="DriverNotBound"):
        reported = {
            "type": condition,
            "status": status,
            "reason": "DeviceReady" if status == "True" else reason,
            "message": "",
            "lastTransitionTime": meta.timestamp(self.loop.now()),
        }
        spec = attachment["spec"]
        report = {"claimUID": (spec.get("claim") or {}).get("uid", "")}
        if spec.get("allocationTimestamp"):
            report["allocationTimestamp"] = spec["allocationTimestamp"]
        body = {
            "apiVersion": "drawbar.dev/v1alpha1",
            "kind": "DeviceAttachment",
            "metadata": {"name": attachment["metadata"]["name"], "uid": attachment["metadata"]["uid"]},
            "status": {"conditions": [reported], "node": report},
        }
        with contextlib.suppress(kube_errors.NotFound, kube_errors.Conflict, kube_errors.Invalid):
            await self.api.patch(
                kinds.ATTACHMENT,
                attachment["metadata"]["name"],
                body,
                content=client.Patch.APPLY,
                into=dict,
                subresource="status",
                manager="drawbar-node",
            )

    async def a_node_dies(self, name):
        if name not in self.dead:
            self.dead.add(name)
            await self.api.delete(kinds.NODE, name)

    async def a_node_comes_back(self, name):
        if name in self.dead:
            self.dead.discard(name)
            await self._add_node(name)

    async def _add_node(self, name):
        await self.create(kinds.NODE, name)

    # Operators and others.

    async def somebody_else_attaches(self, device, node, mark):
        with contextlib.suppress(fabric_errors.FabricError):
            await self.fabric.console.foreign_attach(device, f"h-{node}", mark=mark)
            self.foreign.add(device)
            (self.marked.add if mark else self.marked.discard)(device)

    async def somebody_else_detaches(self, device):
        if device in self.foreign:
            self.foreign.discard(device)
            self.marked.discard(device)
            await self.fabric.console.surprise_detach(device)

    async def surprise(self, device):
        name = self.name_of(device)
        if device not in self.foreign:
            self.broken[name] = self.connections().get(name, self.broken.get(name))
            with contextlib.suppress(fabric_errors.Aborted):
                await self.fabric.console.surprise_detach(device)

    async def attach_by_hand(self, device, node):
        fields = {"fabric": "f", "deviceID": device, "pool": "f/e", "device": device, "hostID": f"h-{node}"}
        body = scenes.document(f"f.{device}", node, **fields)
        with contextlib.suppress(kube_errors.AlreadyExists):
            await self.api.create(kinds.ATTACHMENT, body, into=dict)

    async def delete_an_attachment(self, device):
        with contextlib.suppress(kube_errors.NotFound):
            left = await self.api.begin_delete(kinds.ATTACHMENT, f"f.{device}", into=dict)
            if left is None and device not in self.find_unmarked():
                # Made by hand and not adopted yet, it had no finalizer: the record is gone, and the device may be connected.
                self.orphans[self.name_of(device)] = self.loop.time()

    async def an_attachment_vanishes(self, device):
        """Remove an attachment as by force, or as if a restored backup lacked it."""
        if device in self.find_unmarked():
            # Taken as it was found, it would be foreign again, with our detach perhaps on its way.
            return
        with contextlib.suppress(kube_errors.NotFound):
            await worlds.vanish(self.api, f"f.{device}")
            self.orphans[self.name_of(device)] = self.loop.time()

    # What the API server and the fabric have.

    async def list(self, kind):
        """Return copies of the stored objects of a kind; by HTTP, these lists took most of a storm's time."""
        stored = self.server.store.collection((kind.group, kind.plural))
        return msgspec.json.decode(msgspec.json.encode(list(stored.select("", selectors.Selector()))))

    async def attachments(self):
        return list(await self.list(kinds.ATTACHMENT))

    async def specs(self):
        return [item["spec"] for item in await self.list(kinds.SLICE)]

    async def taints(self):
        """Return by published device the keys of its taints, without the driver's name."""
        return {
            device["name"]: [taint["key"].removeprefix(f"{DRIVER}/") for taint in device.get("taints", ())]
            for spec in await self.specs()
            for device in spec.get("devices", ())
        }

    async def condition(self, kind):
        """Return that condition of the Fabric."""
        status = (await self.api.read(kinds.FABRIC, "f", into=dict))["status"]
        return next(condition for condition in status["conditions"] if condition["type"] == kind)

    def connections(self):
        return {
            self.name_of(device.id): device.connection.host_id
            for device in self.fabric._world.stock.devices()
            if device.connection is not None
        }

    def find_unmarked(self):
        """Return the devices that are connected without a mark, neither of this cluster nor of another."""
        stock = self.fabric._world.stock.devices()
        return {
            device.id for device in stock if device.connection is not None and device.connection.mark is None
        }


def conditions_of(document):
    """Return by type the status of each condition of an object."""
    return {
        condition["type"]: condition["status"]
        for condition in document.get("status", {}).get("conditions", ())
    }


def node_of(allocation):
    """Return the node of an allocation."""
    return allocation["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]


def allocation_key(spec):
    """Return the key of the allocation result that an attachment serves."""
    return bindings.Key(pool=spec.pool, device=spec.allocated, share_id=spec.share_id)
