"""The whole controller, in virtual time, against a cluster in which anything may happen at any moment.

Claims come, move and go; controllers die between two steps of the event loop; replies are lost, watches lag and break;
nodes die; the fabric refuses, fails, is silent, loses devices, and others use it too. Three things are checked after
every step, and that everything comes to rest once the trouble is over.
"""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from drawbar.driver.api import attachments, meta
from drawbar.driver.controller import daemon, settings
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.fabric import contract
from drawbar.fabric import errors as fabric_errors
from drawbar.mocks import apiserver
from drawbar.mocks.apiserver import faults
from drawbar.mocks.cluster import deployment
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric import faults as fabric_faults
from drawbar.mocks.fabric.simulation import SimulatedFabric
from drawbar.mocks.testing import virtualtime

DRIVER = "drawbar.dev"
NODES = ("n1", "n2", "n3")
DEVICES = tuple(f"d{number}" for number in range(4))
OTHERS_MARK = "drawbar/another-cluster/f"
CONTROLLER = "system:serviceaccount:drawbar:drawbar-controller"
REST_SECONDS = 7200
CALL_SECONDS = 30
# Some 75 steps each. The short run is the same every time; `make storm` sets the variable for a long one that is not.
EXAMPLES, STEPS = int(os.environ.get("DRAWBAR_STORM_EXAMPLES", "25")), 100
ATTACH, DETACH = contract.OperationKind.ATTACH, contract.OperationKind.DETACH

nodes, devices = st.sampled_from(NODES), st.sampled_from(DEVICES)


fabric_troubles = st.sampled_from(
    [
        fabric_faults.Refuse(method="attach"),
        fabric_faults.Refuse(method="detach"),
        fabric_faults.Refuse(method="operation", times=3),
        fabric_faults.Refuse(method="devices", times=2),
        fabric_faults.Refuse(method="attach", code=fabric_errors.Code.FAILED_PRECONDITION, reason="POWER"),
        fabric_faults.Hang(method="attach"),
        fabric_faults.Hang(method="operation"),
        fabric_faults.Fail(method=ATTACH),
        fabric_faults.Fail(method=ATTACH, happens=True),
        fabric_faults.Fail(method=ATTACH, code=fabric_errors.Code.FAILED_PRECONDITION, times=2),
        fabric_faults.Fail(method=DETACH),
        fabric_faults.Fail(method=DETACH, happens=True),
        fabric_faults.Stick(method=ATTACH),
        fabric_faults.Stick(method=DETACH),
        fabric_faults.LoseEvents(resync_seconds=7.0),
        fabric_faults.LoseReply(method=ATTACH),
        fabric_faults.LoseReply(method=DETACH),
        fabric_faults.LoseReply(method=ATTACH, hang=True),
    ]
)
api_troubles = st.sampled_from(
    [
        faults.Refusal(code=500),
        faults.Refusal(code=500, after=True),
        faults.Refusal(code=429, retry_after=1),
        faults.Refusal(code=409, after=True),
        faults.Disconnect(),
        faults.Disconnect(after=True),
        faults.Latency(seconds=3),
        faults.Latency(seconds=3, after=True),
        faults.DroppedWatch(),
        faults.DroppedWatch(ending="expired"),
        faults.DuplicatedEvents(copies=2),
        faults.DelayedEvents(seconds=4),
    ]
)


def adapter_of(fabric, lives):
    """An adapter over the one fabric; `lives` is cleared when its controller is killed, and it then never answers."""

    class Fused(contract.FabricAdapter):
        @classmethod
        def validate(cls, config):
            """Anything does."""

        @classmethod
        async def connect(cls, config):
            return cls()

        def watch(self, from_version):
            return fabric.watch(from_version)

        async def close(self):
            """The fabric outlives its callers."""

    async def ask(method, *args, **kwargs):
        if not lives.is_set():
            await asyncio.Event().wait()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await getattr(fabric, method)(*args, **kwargs)
        except TimeoutError as error:
            raise fabric_errors.DeadlineExceeded(f"{method} took too long") from error

    def forwarded(method):
        async def call(self, *args, **kwargs):
            return await ask(method, *args, **kwargs)

        return call

    for method in (
        "capabilities",
        "hosts",
        "devices",
        "attach",
        "detach",
        "operation",
        "operations",
        "cancel",
    ):
        setattr(Fused, method, forwarded(method))
    Fused.__abstractmethods__ = frozenset()
    return Fused


class Storm:
    """The cluster: an API server double, a simulated fabric, nodes that this class plays, and controllers."""

    def __init__(self, loop, path):
        self.loop, self.path = loop, path
        self._stack = contextlib.AsyncExitStack()
        self._serial = 0
        self._controller = None
        self.foreign = set()
        self.dead = set()
        self.believed = set()
        # Foreign ones with a mark that says so.
        self.marked = set()
        # Whose record is gone, until it is written anew.
        self.orphans = set()
        # Where a device hung before its link broke: who has not heard of that yet says what was true.
        self.broken = {}

    async def begin(self, keep_seconds):
        described = {
            "hosts": [{"id": f"h-{name}", "name": name, "ports": 2} for name in NODES],
            "enclosures": [
                {"id": "e", "devices": [{"id": name, "class": "gpu", "serial": name} for name in DEVICES]}
            ],
            "attachSeconds": 2.0,
            "detachSeconds": 1.0,
        }
        file = self.path / "fabric.json"
        file.write_text(json.dumps(described))
        enter = self._stack.enter_async_context
        self.server = await enter(apiserver.serving())
        self.fabric = await enter(SimulatedFabric.running(configuration.load(file)))
        self.server.kubeconfig(self.path / "admin", "admin")
        self.server.kubeconfig(self.path / "controller", "drawbar:drawbar-controller")
        self.api = await enter(client.connecting(config.from_kubeconfig(self.path / "admin")))
        await deployment.apply(self.api)
        for name in NODES:
            await self._add_node(name)
        policy = {"probationSeconds": 30, "attachTimeoutSeconds": 60, "keepAttachedSeconds": keep_seconds}
        body = {
            "apiVersion": "drawbar.dev/v1alpha1",
            "kind": "Fabric",
            "metadata": {"name": "f"},
            "spec": {"adapter": "fused", "endpoint": "here", "policy": policy},
        }
        await self.api.create(kinds.FABRIC, body, into=dict)
        self.start_controller()

    async def end(self):
        await self.kill_controller()
        await self._stack.aclose()

    # Controllers.

    def start_controller(self):
        lives = asyncio.Event()
        lives.set()
        options = settings.Settings(
            kubeconfig=str(self.path / "controller"),
            leader_election=False,
            http=settings.Http(address="off"),
        )
        adapter = adapter_of(self.fabric, lives)
        around = daemon.Surroundings(clock=self.loop.now, adapters=lambda _: adapter)
        self._controller = (asyncio.Task(daemon.run(options, around), loop=self.loop), lives)

    async def kill_controller(self):
        if self._controller is not None:
            task, lives = self._controller
            self._controller = None
            lives.clear()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    # Claims, as a scheduler makes and ends them.

    async def allocate(self, device, node):
        pools = {
            one["name"]: spec["pool"]["name"]
            for spec in await self._specs()
            for one in spec.get("devices", ())
        }
        if device not in pools:
            return
        self._serial += 1
        name = f"c{self._serial}"
        request = {"name": "r", "exactly": {"deviceClassName": "any"}}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        }
        claim = await self.api.create(kinds.CLAIM, body, namespace="default", into=dict)
        result = {
            "request": "r",
            "driver": DRIVER,
            "pool": pools[device],
            "device": device,
            "bindingConditions": [f"{DRIVER}/attached", f"{DRIVER}/visible"],
            "bindingFailureConditions": [f"{DRIVER}/attach-failed", f"{DRIVER}/node-failed"],
        }
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        claim["status"] = {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
                "allocationTimestamp": meta.timestamp(self.loop.now()),
            },
            "reservedFor": [{"resource": "pods", "name": name, "uid": name}],
        }
        await self._write_status(claim)

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
        """The same claim gets the same device again, under a new allocation."""
        claims = [one for one in await self.claims() if "allocation" in one.get("status", {})]
        if not claims:
            return
        claim = claims[number % len(claims)]
        allocation = claim["status"]["allocation"]
        claim["status"] = {}
        claim = await self._write_status(claim)
        fresh = allocation | {"allocationTimestamp": meta.timestamp(self.loop.now())}
        claim["status"] = {"allocation": fresh}
        await self._write_status(claim)

    async def _write_status(self, claim):
        name = claim["metadata"]["name"]
        while True:
            try:
                return await self.api.replace(
                    kinds.CLAIM, name, claim, namespace="default", subresource="status", into=dict
                )
            except kube_errors.Conflict:
                known = await self.api.read(kinds.CLAIM, name, namespace="default", into=dict)
                claim["metadata"] = known["metadata"]

    async def claims(self):
        return list((await self.api.list_all(kinds.CLAIM, into=dict)).items)

    # Nodes.

    async def nodes_do_their_duty(self):
        for one in await self.attachments():
            if one["spec"]["nodeName"] not in self.dead:
                await self._node_acts(one)

    async def _node_acts(self, one, *, well=True):
        conditions = {held["type"]: held["status"] for held in one.get("status", {}).get("conditions", ())}
        claim = one["spec"].get("claim") or {}
        ready = one.get("status", {}).get("node", {}).get("claimUID") == claim.get("uid", "")
        if "deletionTimestamp" in one["metadata"]:
            if conditions.get(attachments.RELEASED) != "True":
                await self._node_says(one, attachments.RELEASED, "True")
        elif conditions.get(attachments.ATTACHED) == "True" and not (
            ready and conditions.get(attachments.VISIBLE) == "True"
        ):
            await self._node_says(one, attachments.VISIBLE, "True" if well else "False")

    async def a_node_fails_a_device(self, number):
        known = [one for one in await self.attachments() if one["spec"]["nodeName"] not in self.dead]
        if known:
            await self._node_acts(known[number % len(known)], well=False)

    async def _node_says(self, one, condition, status):
        said = {
            "type": condition,
            "status": status,
            "reason": "DeviceReady" if status == "True" else "DriverNotBound",
            "message": "",
            "lastTransitionTime": meta.timestamp(self.loop.now()),
        }
        uid = (one["spec"].get("claim") or {}).get("uid", "")
        body = {
            "apiVersion": "drawbar.dev/v1alpha1",
            "kind": "DeviceAttachment",
            "metadata": {"name": one["metadata"]["name"], "uid": one["metadata"]["uid"]},
            "status": {"conditions": [said], "node": {"claimUID": uid}},
        }
        with contextlib.suppress(kube_errors.NotFound, kube_errors.Conflict, kube_errors.Invalid):
            await self.api.patch(
                kinds.ATTACHMENT,
                one["metadata"]["name"],
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
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        await self.api.create(kinds.NODE, body, into=dict)

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
        if device not in self.foreign:
            self.broken[device] = self.connections().get(device, self.broken.get(device))
            with contextlib.suppress(fabric_errors.Aborted):
                await self.fabric.console.surprise_detach(device)

    async def attach_by_hand(self, device, node):
        body = {
            "apiVersion": "drawbar.dev/v1alpha1",
            "kind": "DeviceAttachment",
            "metadata": {"name": f"f.{device}"},
            "spec": {
                "fabric": "f",
                "deviceID": device,
                "driver": DRIVER,
                "pool": "f/e",
                "device": device,
                "nodeName": node,
                "hostID": f"h-{node}",
                "identity": {"deviceClass": "gpu"},
            },
        }
        with contextlib.suppress(kube_errors.AlreadyExists):
            await self.api.create(kinds.ATTACHMENT, body, into=dict)

    async def delete_an_attachment(self, device):
        with contextlib.suppress(kube_errors.NotFound):
            await self.api.begin_delete(kinds.ATTACHMENT, f"f.{device}", into=dict)

    async def an_attachment_vanishes(self, device):
        """Removed by force, or not in the backup that was restored."""
        if device in self._unmarked():
            # Taken as it was found, it would be somebody else's again, with our detach perhaps on its way.
            return
        name = f"f.{device}"
        gone = {"metadata": {"finalizers": None}}
        with contextlib.suppress(kube_errors.NotFound):
            await self.api.patch(kinds.ATTACHMENT, name, gone, content=client.Patch.MERGE, into=dict)
            await self.api.delete(kinds.ATTACHMENT, name)
            self.orphans.add(device)

    # What is true.

    async def attachments(self):
        return list((await self.api.list_all(kinds.ATTACHMENT, into=dict)).items)

    async def _specs(self):
        return [one["spec"] for one in (await self.api.list_all(kinds.SLICE, into=dict)).items]

    def connections(self):
        return {
            device.id: device.connection.host_id
            for device in self.fabric._world.stock.devices()
            if device.connection is not None
        }

    def _unmarked(self):
        """What hangs somewhere and was not connected by this cluster, nor by one that says so."""
        stock = self.fabric._world.stock.devices()
        return {one.id for one in stock if one.connection is not None and one.connection.mark is None}

    async def check(self):
        """What must hold at every moment."""
        known = {one["spec"]["device"]: one["spec"] for one in await self.attachments()}
        connected = self.connections()
        on_the_way = {record.device_id for record in self.fabric._world.unfinished()}
        self.orphans -= {
            device
            for device in self.orphans - on_the_way
            if known.get(device, {}).get("hostID") == connected.get(device) or device not in connected
        }
        for device in self._unmarked():
            # On the very node that an attachment is for, it is taken as it is: nobody can tell.
            taken = known.get(device, {}).get("hostID") == connected[device]
            (self.foreign.discard if taken else self.foreign.add)(device)
        for device, host in connected.items():
            if device not in self.foreign | self.orphans:
                assert device in known, f"{device} hangs on {host} and nobody knows why"
                assert known[device]["hostID"] == host, (
                    f"{device} hangs on {host}, recorded is {known[device]}"
                )
        for device in self.foreign:
            assert device in connected, f"{device} was taken from somebody else"
        await self._check_claims(connected)

    async def _check_claims(self, connected):
        """A condition may stand longer than its cause, but must be true when it is first said."""
        believed = set()
        for claim in await self.claims():
            allocation = claim.get("status", {}).get("allocation")
            for said in claim.get("status", {}).get("devices", ()):
                if any(
                    one["type"] == f"{DRIVER}/attached" and one["status"] == "True"
                    for one in said["conditions"]
                ):
                    node = allocation["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
                    key = (claim["metadata"]["uid"], allocation["allocationTimestamp"], said["device"], node)
                    believed.add(key)
                    if key not in self.believed:
                        where = connected.get(said["device"])
                        assert said["device"] not in self.marked, f"{key} is said to have what is another's"
                        assert f"h-{node}" in (where, self.broken.get(said["device"])), (
                            f"{key} is said to be attached and is at {where}"
                        )
        self.believed = believed

    async def come_to_rest(self):
        """The trouble ends, all claims go: everything must become free, and nothing may be left."""
        self.server.faults.clear()
        self.fabric.console.clear_faults()
        self.fabric.console.resume()
        if self._controller is None:
            self.start_controller()
        for name in tuple(self.dead):
            await self.a_node_comes_back(name)
        for one in await self.attachments():
            if "claim" not in one["spec"] and "idleSince" not in one["spec"]:
                await self.delete_an_attachment(one["spec"]["device"])
        for _ in await self.claims():
            await self.release(0, deletes=True)
        deadline = self.loop.time() + REST_SECONDS
        while not await self._is_at_rest():
            assert self.loop.time() < deadline, await self._what_is_left()
            await self.nodes_do_their_duty()
            await asyncio.sleep(5)
            await self.check()

    async def _is_at_rest(self):
        free = set(self.connections()) == self.foreign
        marked = {
            one["name"]
            for spec in await self._specs()
            for one in spec.get("devices", ())
            if one.get("taints")
        }
        return not await self.attachments() and not await self.claims() and free and marked == self.foreign

    async def _what_is_left(self):
        return json.dumps(
            {
                "attachments": await self.attachments(),
                "connections": self.connections(),
                "slices": await self._specs(),
                "foreign": sorted(self.foreign),
            }
        )


class StormMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.loop = virtualtime.VirtualTimeLoop()
        self.path = Path(tempfile.mkdtemp(prefix="storm-"))
        self.storm = Storm(self.loop, self.path)
        self.began = False

    def does(self, *steps, turns=0):
        """Takes steps, lets the event loop turn so many times, and looks at the outcome."""

        async def all_of_it():
            for step in steps:
                await step
            for _ in range(turns):
                await asyncio.sleep(0)
            await self.storm.check()

        self.loop.run_until_complete(all_of_it())

    @initialize(keep_seconds=st.sampled_from([0, 0, 20]))
    def begin(self, keep_seconds):
        self.began = True
        self.does(self.storm.begin(keep_seconds), asyncio.sleep(1))

    @rule(device=devices, node=nodes, turns=st.integers(0, 60))
    def allocate(self, device, node, turns):
        self.does(self.storm.allocate(device, node), turns=turns)

    @rule(number=st.integers(0, 9), deletes=st.booleans(), turns=st.integers(0, 60))
    def release(self, number, deletes, turns):
        self.does(self.storm.release(number, deletes=deletes), turns=turns)

    @rule(number=st.integers(0, 9), turns=st.integers(0, 60))
    def reallocate(self, number, turns):
        self.does(self.storm.reallocate(number), turns=turns)

    @rule(turns=st.integers(0, 200))
    def the_controller_dies_and_another_begins(self, turns):
        self.does(self.storm.kill_controller())
        self.loop.call_soon(self.storm.start_controller)
        self.does(turns=turns)

    @rule(seconds=st.sampled_from([0.1, 1, 3, 10, 40, 90]))
    def time_passes(self, seconds):
        self.does(asyncio.sleep(seconds))

    @rule()
    def nodes_do_their_duty(self):
        self.does(self.storm.nodes_do_their_duty())

    @rule(number=st.integers(0, 9))
    def a_node_fails_a_device(self, number):
        self.does(self.storm.a_node_fails_a_device(number))

    @rule(node=nodes)
    def a_node_dies(self, node):
        self.does(self.storm.a_node_dies(node))

    @rule(node=nodes)
    def a_node_comes_back(self, node):
        self.does(self.storm.a_node_comes_back(node))

    @rule(device=devices, node=nodes, mark=st.sampled_from([None, OTHERS_MARK]))
    def somebody_else_attaches(self, device, node, mark):
        self.does(self.storm.somebody_else_attaches(device, node, mark))

    @rule(device=devices)
    @precondition(lambda self: self.storm.foreign)
    def somebody_else_detaches(self, device):
        self.does(self.storm.somebody_else_detaches(device))

    @rule(device=devices)
    def the_link_breaks(self, device):
        self.does(self.storm.surprise(device))

    @rule(device=devices, node=nodes)
    def an_operator_attaches(self, device, node):
        self.does(self.storm.attach_by_hand(device, node))

    @rule(device=devices)
    def somebody_deletes_an_attachment(self, device):
        self.does(self.storm.delete_an_attachment(device))

    @rule(device=devices, turns=st.integers(0, 60))
    def an_attachment_vanishes(self, device, turns):
        self.does(self.storm.an_attachment_vanishes(device), turns=turns)

    @rule(fault=fabric_troubles)
    def the_fabric_has_trouble(self, fault):
        self.storm.fabric.console.add_fault(fault)

    @rule()
    def the_fabric_forgets_its_operations(self):
        self.does(self.storm.fabric.console.forget_operations())

    @rule(silent=st.booleans())
    def the_fabric_is_silent(self, silent):
        (self.storm.fabric.console.pause if silent else self.storm.fabric.console.resume)()

    @rule(effect=api_troubles, times=st.integers(1, 3))
    def the_api_server_has_trouble(self, effect, times):
        select = faults.Selection(user=CONTROLLER)
        self.storm.server.faults.add(
            faults.Fault(effect=effect, select=select, when=faults.Occasions(times=times))
        )

    @rule()
    def it_is_quiet_for_a_while(self):
        self.does(asyncio.sleep(5), self.storm.nodes_do_their_duty(), asyncio.sleep(5))

    def teardown(self):
        try:
            if self.began:
                self.loop.run_until_complete(self.storm.come_to_rest())
        finally:
            self.loop.run_until_complete(self.storm.end())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
            shutil.rmtree(self.path)


TestStorm = pytest.mark.timeout(1500)(StormMachine.TestCase)
TestStorm.settings = hypothesis.settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    # What fails is long to shrink; the seed that is printed finds it again.
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.reuse, hypothesis.Phase.generate),
    print_blob=True,
    derandomize="DRAWBAR_STORM_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
