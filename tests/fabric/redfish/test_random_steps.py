"""Random steps of a controller, another client and a service with quirks and accidents; reproduced by seed and number of steps.

The service refuses nothing here: that a device is connected once only is due to the adapter alone. The other client
leaves devices alone that are connected or that a task of the service names.

`DRAWBAR_REDFISH_STEPS` and `DRAWBAR_REDFISH_SEED` choose another walk.
"""

import asyncio
import os
import random
from contextlib import AsyncExitStack

import msgspec
import pytest
from tests.fabric.redfish.conftest import CONFIGURATION, WITH_POOL, RedfishLab, connection_body
from tests.scenes import waiting

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish.adapter import RedfishAdapter
from drawbar.mocks.redfish import Fault, FaultKind, paths, quirks
from drawbar.mocks.testing import virtualtime

STEPS = int(os.environ.get("DRAWBAR_REDFISH_STEPS", "120"))
SEED = int(os.environ.get("DRAWBAR_REDFISH_SEED", "4"))
FORMS = {
    "a zone for each pair": {},
    "a zone for each host port": {"zones": "port", "product": "H3 Falcon"},
    "a zone for each host port, by actions": {"zones": "port", "product": "H3 Falcon", "actions": True},
    "a connection for each pair": {"method": "connections"},
    "a connection for each pair, and slices": {"method": "connections", "enclosures": WITH_POOL},
    "a connection without an initiator": {"method": "connections", "initiators": False},
    "composition by arrays": {"method": "composition"},
    "composition by actions": {"method": "composition", "actions": True},
    "composition by counts": {"method": "composition", "constrained": True},
}
# With these quirks each listing contradicts itself: see `test_random_quirks`.
UNREADABLE = {"no-members", "links-members", "count-above-members", "object-member"}
QUIRKS_MOST = 8
# What an operator has to set for a service with the quirk.
PARAMETERS = {
    "weak-etags": {"etags": "no"},
    "refused-etags": {"etags": "no"},
    "top-endpoints": {"zoneBody": "endpoints"},
}
# An attach may fail so although its device is connected.
CONNECTED_ALL_THE_SAME = {errors.Reason.IN_USE, errors.Reason.OTHERS_LOST}
PATHS = {"composition": "/Systems", "connections": "/Connections"}
MARK = "walk"
AGAIN_SECONDS = 0.1
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
SLICE_WEIGHTS = {"create": 5, "delete": 5, "attach_slice": 5}
POOL_ID, CHUNKS = "e1.pool-1", "/redfish/v1/Chassis/e1/MemoryDomains/pool-1/MemoryChunks"
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
        if service.configuration.is_appliance:
            self._prefix = f"e1.{paths.DOMAIN}."
        self._is_constrained = bool(form.get("constrained"))
        self._loses_members = "last-member" in service.configuration.quirks
        self._weights = WEIGHTS | (SLICE_WEIGHTS if "enclosures" in form else {})
        # The operation that was begun last for each device; by its own id while the service chooses the device.
        self._begun = {}
        # By the id of each operation, in order, its device; None until the service has chosen it.
        self._devices = {}
        self._models = {"gpu-1": "A100", "gpu-2": "A100", "disk-1": "P5"}
        self.steps, self.succeeded = [], 0
        self._adapter = None

    async def connect(self):
        parameters = {"taskSeconds": "60", "pollSeconds": "9999"}
        parameters |= {"profile": "constrained"} if self._is_constrained else {}
        for name in self._service.configuration.quirks:
            parameters |= PARAMETERS.get(name, {})
        config = self._lab.config(self._service, timeout_seconds=20, parameters=parameters)
        async with asyncio.timeout(120):
            while self._adapter is None:
                try:
                    self._adapter = await RedfishAdapter.connect(config)
                except errors.FabricError as error:
                    self.steps.append(f"connecting: {error}")

    async def close(self):
        if self._adapter is not None:
            await self._adapter.close()
        self._adapter = None
        self._begun.clear()

    async def step(self):
        name = self._chance.choices(tuple(self._weights), tuple(self._weights.values()))[0]
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
        name = self._chance.choice((*DEVICES, *self._slices()))
        hosts = self._service.connections().get(name) or HOSTS
        host_id = self._chance.choice(hosts)
        self._remember(
            await self._adapter.detach(self._lab.detach(self._device_id(name), host_id=host_id)), host_id
        )

    async def create(self):
        self._remember(await self._adapter.create_slice(self._creation(self._chance.randrange(1, 5))), None)

    async def delete(self):
        # One that was deleted is asked for as well.
        name = self._chance.choice((*self._slices(), "pool-1-1"))
        request = contract.DeleteSliceRequest(
            request_id=self._lab.attach("").request_id, device_id=self._device_id(name)
        )
        self._remember(await self._adapter.delete_slice(request), None, name=request.device_id)

    async def attach_slice(self):
        host_id = self._chance.choice(HOSTS)
        name = self._chance.choice((*self._slices(), "pool-1-1"))
        request = self._lab.attach(self._device_id(name), host_id=host_id, mark=MARK)
        self._remember(await self._adapter.attach(request), host_id)

    def _creation(self, steps):
        return contract.CreateSliceRequest(
            request_id=self._lab.attach("").request_id,
            device_id=POOL_ID,
            memory_bytes=steps << 30,
            mark=MARK,
        )

    def _slices(self):
        """Return the names of the slices' endpoints."""
        return tuple(f"pool-1-{uri.rpartition('/')[2]}" for uri in self._service.tree.list_members(CHUNKS))

    def _device_id(self, name):
        is_slice = name.startswith("pool-1-")
        return f"{POOL_ID}.{name.removeprefix('pool-1-')}" if is_slice else self._prefix + name

    def _name(self, device_id):
        return device_id.removeprefix(self._prefix).replace(f"{POOL_ID}.", "pool-1-")

    def _remember(self, operation, host_id, *, name=None):
        name = name or (operation.device.id if operation.device is not None else operation.id)
        self.steps.append(f"{operation.kind} {name} {host_id} {operation.id}")
        self._begun[name] = (operation.id, host_id)
        self._devices[operation.id] = None if name == operation.id else self._name(name)

    async def meet(self):
        kind = self._chance.choices(tuple(ACCIDENTS), tuple(ACCIDENTS.values()))[0]
        is_read = self._chance.random() < 0.15
        methods = ("GET",) if is_read else ("POST", "PATCH", "DELETE")
        self.steps.append(f"{kind} {methods}")
        after = self._chance.randrange(4) if is_read else 0
        path = (
            self._chance.choice((self._path, "/MemoryChunks")) if "enclosures" in self._form else self._path
        )
        self._service.faults.add(Fault(kind=kind, methods=methods, path=path, after=after))

    async def end_tasks(self):
        await self._service.wait_until_settled()

    async def restart_service(self):
        self._service.restart()

    async def restart_adapter(self):
        await self.close()
        await self.connect()

    async def interfere(self):
        """Change what another client may change."""
        service = self._service
        pending = str([service.tree[uri] for uri in service.tree.list_members(paths.TASKS)])
        name, host_id = self._chance.choice(DEVICES), self._chance.choice(HOSTS)
        if name in pending or self._prefix + name in self._begun or (self._is_constrained and self._begun):
            return
        hosts = service.connections().get(name, [])
        self.steps.append(f"another client: {name} {hosts or host_id}")
        self.change(name, (hosts or [host_id])[0], connects=not hosts)

    def change(self, name, host_id, *, connects):
        """Connect or disconnect as another client."""
        tree, is_composition = self._service.tree, self._path == "/Systems"
        target = paths.block(name) if is_composition else paths.endpoint(name)
        key = "ResourceBlocks" if is_composition else "Endpoints"
        if self._path == "/Connections":
            if connects:
                body = connection_body(self._service, name, host_id)
                self._service._rules.change("POST", paths.CONNECTIONS, body)
                return
            uri = next(
                uri
                for uri in tree.list_members(paths.CONNECTIONS)
                if f"/{name}" in str(tree[uri]["MemoryChunkInfo"])
            )
            self._service._rules.change("DELETE", uri, {})
            return
        if not is_composition and self._form.get("zones") != "port":
            if connects:
                ends = [{"@odata.id": paths.endpoint(host_id)}, {"@odata.id": target}]
                self._service._rules.change("POST", paths.ZONES, {"Links": {key: ends}})
                return
            uri = next(uri for uri in tree.list_members(paths.ZONES) if target in str(tree[uri]["Links"]))
            self._service._rules.change("DELETE", uri, {})
            return
        if self._is_constrained and connects:
            # By a count it would not be this device.
            blocks = self._service._rules._blocks(f"{paths.SYSTEMS}/{host_id}")
            self._service._rules._compose(f"{paths.SYSTEMS}/{host_id}", [*blocks, target])
            return
        uri = f"{paths.SYSTEMS if is_composition else paths.ZONES}/{host_id}"
        links = [link for link in tree[uri]["Links"][key] if link["@odata.id"] != target]
        self._service._rules.change(
            "PATCH", uri, {"Links": {key: links + [{"@odata.id": target}] * connects}}
        )

    # --- what always holds ---

    def is_last(self, operation_id, name):
        """Return whether no later operation may have changed the device."""
        ids = tuple(self._devices)
        later = ids[ids.index(operation_id) + 1 :]
        return not any(self._devices[later_id] in (name, None) for later_id in later)

    async def judge(self):
        """Compare all that is finished with the service."""
        connections = self._service.connections()
        assert {name: hosts for name, hosts in connections.items() if len(hosts) > 1} == {}
        notes = [self._service.tree[uri]["Description"] for uri in self._service.tree.list_members(CHUNKS)]
        assert len(set(notes)) == len(notes)
        for device_id, (operation_id, host_id) in tuple(self._begun.items()):
            operation = await self._adapter.operation(operation_id=operation_id)
            if not operation.done:
                continue
            del self._begun[device_id]
            name = self._name(operation.device.id if operation.device is not None else device_id)
            self._devices[operation_id] = name
            hosts = self._service.connections().get(name, [])
            self.steps.append(f"{operation_id} ended: {operation.error and operation.error.message}")
            self.succeeded += operation.succeeded
            if not self.is_last(operation_id, name):
                continue
            if operation.succeeded:
                match operation.kind:
                    case contract.OperationKind.ATTACH:
                        # A later change of another device may have dropped this one; its operation fails with OTHERS_LOST.
                        assert hosts == [host_id] or (self._loses_members and not hosts)
                    case contract.OperationKind.CREATE_SLICE:
                        assert name in self._slices()
                    case contract.OperationKind.DETACH:
                        assert host_id not in hosts
                    case contract.OperationKind.DELETE_SLICE:
                        assert name not in self._slices()
            elif operation.kind is contract.OperationKind.ATTACH and not operation.side_effects_unknown:
                assert host_id not in hosts or operation.error.reason in CONNECTED_ALL_THE_SAME

    async def clean_up(self):
        """End everything as the controller does: read, then detach what is connected, until nothing is."""
        self._service.faults.clear()
        await self._service.wait_until_settled()
        await waiting.until(
            self._adapter.operations, lambda listed: all(operation.done for operation in listed)
        )
        marks = (await self._adapter.capabilities()).marks
        async with asyncio.timeout(120):
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
                        # Something is under way there, and virtual time passes only while all wait.
                        await asyncio.sleep(AGAIN_SECONDS)
                        continue
                    await self._end_of(operation)
        for name in self._slices():
            operation = await self._adapter.delete_slice(
                contract.DeleteSliceRequest(
                    request_id=self._lab.attach("").request_id, device_id=self._device_id(name)
                )
            )
            assert (await self._end_of(operation)).succeeded
        for name, hosts in self._service.connections().items():
            for host_id in hosts:
                self.change(name, host_id, connects=False)

    async def _end_of(self, operation):
        return await waiting.until(
            lambda: self._adapter.operation(operation_id=operation.id), lambda current: current.done
        )


@pytest.mark.timeout(max(300, STEPS))
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_no_walk_connects_a_device_twice_or_leaves_one_connected(form, impatient):
    """Walks run in virtual time, so that a busy machine takes the same steps and as many of them succeed.

    The adapter is right to refuse most steps: they meet accidents, devices in use, and with quirks such as `html-member` devices
    in doubt.
    """
    virtualtime.in_virtual_time(_walk)(form)


def choose_quirks(form, chance):
    """Return the names of some quirks that a service of this form can have."""
    configured = msgspec.structs.replace(CONFIGURATION, **form)
    own = quirks.form(configured)
    names = [name for name, quirk in quirks.QUIRKS.items() if own in quirk.forms and name not in UNREADABLE]
    return without_contradiction(chance.sample(names, chance.randint(0, QUIRKS_MOST)))


def without_contradiction(names):
    """Return the names; without the last of two that exclude each other."""
    for pair in quirks.CONTRADICTORY:
        if set(names) >= pair:
            *_, last = (name for name in names if name in pair)
            names = [name for name in names if name != last]
    return tuple(names)


async def _walk(form):
    chance = random.Random(SEED)
    names = choose_quirks(form, random.Random(f"{SEED} {form}"))
    print(f"seed {SEED}, {STEPS} steps, quirks {','.join(names) or 'none'}")  # noqa: T201 - to take them again
    async with AsyncExitStack() as stack:
        lab = RedfishLab(stack)
        service = await lab.serve(
            username="drawbar", password="secret", max_sessions=1000, exclusive=False, quirks=names, **form
        )
        walk = Walk(lab, service, form, chance)
        try:
            await walk.connect()
            for _ in range(STEPS):
                await walk.step()
            await walk.clean_up()
        except BaseException as error:
            error.add_note("\n".join(walk.steps[-40:]))
            raise
        finally:
            await walk.close()
        await waiting.eventually(lambda: service.clients == 0)
        assert service.tree.list_members(paths.SESSIONS) == ()
        assert all(hosts == [] for hosts in service.connections().values())
        assert [uri for uri in service.tree.list_members(paths.ZONES) if form.get("zones") != "port"] == []
        assert service.tree.list_members(paths.CONNECTIONS) == ()
        assert service.tree.list_members(CHUNKS) == ()
        # Where next to nothing succeeds, a walk shows nothing.
        assert walk.succeeded > STEPS / 25
        assert not service._running
