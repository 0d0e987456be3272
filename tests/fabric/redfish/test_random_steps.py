"""Random steps of a controller, another client and a service with accidents; reproduced by seed and number of steps.

The service refuses nothing here: that a device is connected once only is due to the adapter alone. The other client
leaves devices alone that are connected or that a task of the service names.

`DRAWBAR_REDFISH_STEPS` and `DRAWBAR_REDFISH_SEED` choose another walk.
"""

import asyncio
import os
import random

import pytest
from tests.scenes import waiting

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish.adapter import RedfishAdapter
from drawbar.mocks.redfish import Fault, FaultKind, world

STEPS = int(os.environ.get("DRAWBAR_REDFISH_STEPS", "120"))
SEED = int(os.environ.get("DRAWBAR_REDFISH_SEED", "4"))
FORMS = {
    "a zone for each pair": {},
    "a zone for each host port": {"zones": "port", "product": "H3 Falcon"},
    "a zone for each host port, by actions": {"zones": "port", "product": "H3 Falcon", "actions": True},
    "a connection for each pair": {"method": "connections"},
    "composition by arrays": {"method": "composition"},
    "composition by actions": {"method": "composition", "actions": True},
    "composition by counts": {"method": "composition", "constrained": True},
}
PATHS = {"composition": "/Systems", "connections": "/Connections"}
MARK = "walk"
DEVICES, HOSTS = ("gpu-1", "gpu-2", "disk-1"), ("h1", "h2")
WEIGHTS = {
    "attach": 8,
    "detach": 8,
    "meet": 7,
    "end_tasks": 3,
    "interfere": 3,
    "restart_service": 1,
    "restart_adapter": 3,
}
ACCIDENTS = {
    FaultKind.LOST_REPLY: 4,
    FaultKind.HALF_BODY: 1,
    FaultKind.STALE_ETAG: 3,
    FaultKind.BUSY: 1,
    FaultKind.SLOW_TASK: 4,
    FaultKind.LOST_TASK: 5,
    FaultKind.FAILED_TASK: 2,
    FaultKind.HTML: 1,
    FaultKind.EXPIRED_SESSION: 1,
}


class Walk:
    """One service, one adapter at a time, and what is begun there."""

    def __init__(self, lab, service, form, chance):
        self._lab, self._service, self._form, self._chance = lab, service, form, chance
        self._path = PATHS.get(form.get("method"), "/Zones")
        self._prefix = "" if form.get("method") == "composition" else "PCIe."
        self._is_constrained = bool(form.get("constrained"))
        # The operation that was begun last for each device; by its own id while the service chooses the device.
        self._begun = {}
        self._models = {"gpu-1": "A100", "gpu-2": "A100", "disk-1": "P5"}
        self.steps, self.succeeded = [], 0
        self._adapter = None

    async def connect(self):
        parameters = {"taskSeconds": "60", "pollSeconds": "9999"}
        parameters |= {"profile": "constrained"} if self._is_constrained else {}
        config = self._lab.config(self._service, timeout_seconds=20, parameters=parameters)
        async with asyncio.timeout(60):
            while self._adapter is None:
                try:
                    self._adapter = await RedfishAdapter.connect(config)
                except errors.FabricError as error:
                    self.steps.append(f"connecting: {error}")

    async def close(self):
        await self._adapter.close()
        self._adapter = None
        self._begun.clear()

    async def step(self):
        name = self._chance.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
        self.steps.append(name)
        try:
            await getattr(self, name)()
        except errors.FabricError as error:
            self.steps.append(f"{error.code} {error.reason}: {error}")
        await self.judge()

    # --- what may happen ---

    async def attach(self):
        host_id, is_by_model = self._chance.choice(HOSTS), self._chance.random() < 0.2
        name = self._chance.choice(DEVICES)
        wanted = {"model": "A100", "device_id": None} if is_by_model else {"device_id": self._prefix + name}
        if self._is_constrained:
            wanted = {"model": self._models[name], "device_id": None}
        self._remember(
            await self._adapter.attach(self._lab.attach(host_id=host_id, mark=MARK, **wanted)), host_id
        )

    async def detach(self):
        name = self._chance.choice(DEVICES)
        hosts = self._service.connections().get(name) or HOSTS
        host_id = self._chance.choice(hosts)
        self._remember(
            await self._adapter.detach(self._lab.detach(self._prefix + name, host_id=host_id)), host_id
        )

    def _remember(self, operation, host_id):
        name = operation.device.id if operation.device is not None else operation.id
        self.steps.append(f"{operation.kind} {name} {host_id} {operation.id}")
        self._begun[name] = (operation.id, host_id)

    async def meet(self):
        kind = self._chance.choices(tuple(ACCIDENTS), tuple(ACCIDENTS.values()))[0]
        is_read = self._chance.random() < 0.15
        methods = ("GET",) if is_read else ("POST", "PATCH", "DELETE")
        self.steps.append(f"{kind} {methods}")
        after = self._chance.randrange(4) if is_read else 0
        self._service.faults.add(Fault(kind=kind, methods=methods, path=self._path, after=after))

    async def end_tasks(self):
        await self._service.settled()

    async def restart_service(self):
        self._service.restart()

    async def restart_adapter(self):
        await self.close()
        await self.connect()

    async def interfere(self):
        """Change what another client may change."""
        service = self._service
        pending = str([service.tree[uri] for uri in service.tree.below(world.TASKS)])
        name, host_id = self._chance.choice(DEVICES), self._chance.choice(HOSTS)
        if name in pending or self._prefix + name in self._begun or (self._is_constrained and self._begun):
            return
        hosts = service.connections().get(name, [])
        self.steps.append(f"another client: {name} {hosts or host_id}")
        self.change(name, (hosts or [host_id])[0], connects=not hosts)

    def change(self, name, host_id, *, connects):
        """Connect or disconnect as another client."""
        tree, is_composition = self._service.tree, self._path == "/Systems"
        target = world.block(name) if is_composition else world.endpoint(name)
        key = "ResourceBlocks" if is_composition else "Endpoints"
        if self._path == "/Connections":
            chunk = f"/redfish/v1/Chassis/e1/MemoryDomains/1/MemoryChunks/{name}"
            if connects:
                body = world.connection("", [world.endpoint(host_id)], [target], [chunk], {})
                self._service._rules.change("POST", world.CONNECTIONS, body)
                return
            uri = next(uri for uri in tree.below(world.CONNECTIONS) if target in world.ends(tree[uri]))
            self._service._rules.change("DELETE", uri, {})
            return
        if not is_composition and self._form.get("zones") != "port":
            if connects:
                ends = [{"@odata.id": world.endpoint(host_id)}, {"@odata.id": target}]
                self._service._rules.change("POST", world.ZONES, {"Links": {key: ends}})
                return
            uri = next(uri for uri in tree.below(world.ZONES) if target in str(tree[uri]["Links"]))
            self._service._rules.change("DELETE", uri, {})
            return
        if self._is_constrained and connects:
            # By a count it would not be this device.
            given = self._service._rules._blocks(f"{world.SYSTEMS}/{host_id}")
            self._service._rules._compose(f"{world.SYSTEMS}/{host_id}", [*given, target])
            return
        uri = f"{world.SYSTEMS if is_composition else world.ZONES}/{host_id}"
        links = [link for link in tree[uri]["Links"][key] if link["@odata.id"] != target]
        self._service._rules.change(
            "PATCH", uri, {"Links": {key: links + [{"@odata.id": target}] * connects}}
        )

    # --- what always holds ---

    async def judge(self):
        """Compare all that is finished with the service."""
        connections = self._service.connections()
        assert {name: hosts for name, hosts in connections.items() if len(hosts) > 1} == {}
        for device_id, (operation_id, host_id) in tuple(self._begun.items()):
            operation = await self._adapter.operation(operation_id=operation_id)
            if not operation.done:
                continue
            del self._begun[device_id]
            name = operation.device.id if operation.device is not None else device_id
            hosts = self._service.connections().get(name.removeprefix(self._prefix), [])
            self.steps.append(f"{operation_id} ended: {operation.error and operation.error.message}")
            if operation.succeeded:
                self.succeeded += 1
                is_attach = operation.kind is contract.OperationKind.ATTACH
                assert hosts == [host_id] if is_attach else host_id not in hosts
            elif operation.kind is contract.OperationKind.ATTACH and not operation.side_effects_unknown:
                assert host_id not in hosts or operation.error.reason == errors.Reason.IN_USE

    async def clean_up(self):
        """End everything as the controller does: read, then detach what is connected, until nothing is."""
        self._service.faults.clear()
        await self._service.settled()
        marks = (await self._adapter.capabilities()).marks
        async with asyncio.timeout(60):
            while connected := [
                device
                for device in (await self._adapter.devices()).devices
                if device.connection is not None and device.connection.mark == (MARK if marks else None)
            ]:
                for device in connected:
                    request = self._lab.detach(device.id, host_id=device.connection.host_id)
                    try:
                        operation = await self._adapter.detach(request)
                    except errors.Aborted:
                        continue
                    await waiting.until(
                        lambda operation=operation: self._adapter.operation(operation_id=operation.id),
                        lambda operation: operation.done,
                    )
        for name, hosts in self._service.connections().items():
            for host_id in hosts:
                self.change(name, host_id, connects=False)


@pytest.mark.timeout(max(300, STEPS))
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_no_walk_connects_a_device_twice_or_leaves_one_connected(redfish_lab, form, impatient):
    service = await redfish_lab.serve(
        username="drawbar", password="secret", max_sessions=1000, exclusive=False, **form
    )
    walk = Walk(redfish_lab, service, form, random.Random(SEED))
    await walk.connect()
    try:
        for _ in range(STEPS):
            await walk.step()
        await walk.clean_up()
    except BaseException as error:
        error.add_note("\n".join(walk.steps[-40:]))
        raise
    finally:
        await walk.close()
    assert all(hosts == [] for hosts in service.connections().values())
    assert [uri for uri in service.tree.below(world.ZONES) if form.get("zones") != "port"] == []
    assert service.tree.below(world.CONNECTIONS) == ()
    assert walk.succeeded > STEPS / 10
    assert not service._running
