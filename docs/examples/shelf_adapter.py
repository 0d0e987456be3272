"""An adapter for a fabric manager that is three HTTP requests, as docs/adapters.md explains it.

GET    /devices                  [{"id": "d1", "model": "M", "serial": "S1", "host": "h1" or null, "note": "..."}]
PUT    /devices/d1/host          {"host": "h1", "note": "..."}; 409 where another host has it
DELETE /devices/d1/host
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Self

import aiohttp

from drawbar.fabric import contract, errors, judgement, notes, witnesses
from drawbar.fabric.history import History
from drawbar.fabric.works import Report, Works

PORTS = 8


class Shelf:
    """The manager behind the adapter: `works.Backend`."""

    def __init__(self, session: aiohttp.ClientSession, hosts: tuple[str, ...]) -> None:
        self.history = History()
        self.pending: dict[str, tuple[str, str] | None] = {}
        self._session, self._host_ids = session, hosts
        self._lock = asyncio.Lock()
        self._rows: list[dict[str, Any]] = []

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        async with self._lock:
            self._rows = await self._ask("GET", "/devices")
            self.publish()
            yield

    def publish(self) -> None:
        self.history.publish(
            tuple(_device(row) for row in self._rows), tuple(map(self._host, self._host_ids))
        )

    def judge(self, request: judgement.Request) -> judgement.Stay | judgement.Begin:
        devices, hosts = self.history.devices, {host.id: host for host in self.history.hosts}
        busy = self.pending.keys()
        match request:
            case contract.AttachRequest():
                return judgement.attach(request, devices, hosts, busy=busy, choose_port=judgement.free_port)
            case contract.DetachRequest():
                return judgement.detach(request, devices, hosts, busy=busy)
        raise errors.Unimplemented("the shelf makes no slices of devices")

    async def carry_out(self, request: judgement.Request, begun: judgement.Begin, report: Report) -> None:
        if isinstance(request, contract.AttachRequest):
            body = {"host": request.host_id, "note": notes.Note.from_request(request).text()}
            await self._ask("PUT", f"/devices/{begun.device_id}/host", body)
        else:
            await self._ask("DELETE", f"/devices/{begun.device_id}/host")

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request; what fails is an error of the contract, marked where its effect is unknown."""
        changes = method != "GET"
        try:
            async with self._session.request(method, path, json=body) as response:
                if response.status == 409:
                    raise errors.Aborted(f"the shelf refused {method} {path}: another host has the device")
                response.raise_for_status()
                return await response.json() if not changes else None
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise errors.Unavailable(
                f"the shelf did not answer {method} {path}; look at its log", side_effects_unknown=changes
            ) from error

    def _host(self, host_id: str) -> contract.Host:
        """Return a host with the ports in use, those of attaches in flight among them, and the free ones."""
        used = {row["id"] for row in self._rows if row["host"] == host_id}
        used |= {device_id for device_id, place in self.pending.items() if place and place[0] == host_id}
        ports = [
            contract.Port(id=device_id, state=contract.PortState.USED, device_id=device_id)
            for device_id in sorted(used)
        ]
        free = range(PORTS - len(ports))
        ports += [contract.Port(id=f"free-{number}", state=contract.PortState.FREE) for number in free]
        return contract.Host(id=host_id, name=host_id, identifiers={"hostname": host_id}, ports=tuple(ports))


class ShelfAdapter(contract.FabricAdapter):
    """One shelf; the endpoint is `http://127.0.0.1:PORT`, the parameter `hosts` names its hosts."""

    def __init__(self, config: contract.AdapterConfig) -> None:
        self._config = config
        self._lifetime = AsyncExitStack()

    @classmethod
    def validate(cls, config: contract.AdapterConfig) -> None:
        if not config.parameters.get("hosts"):
            raise errors.InvalidConfiguration(['the parameter "hosts" is missing: give "h1,h2"'])

    @classmethod
    async def connect(cls, config: contract.AdapterConfig) -> Self:
        cls.validate(config)
        adapter = cls(config)
        enter = adapter._lifetime.enter_async_context
        timeout = aiohttp.ClientTimeout(total=config.timeout_seconds / 2)
        session = await enter(aiohttp.ClientSession(config.endpoint, timeout=timeout))
        adapter._shelf = Shelf(session, tuple(config.parameters["hosts"].split(",")))
        try:
            await adapter.devices()
        except BaseException:
            await adapter.close()
            raise
        tasks = await enter(asyncio.TaskGroup())
        adapter._works = Works(adapter._shelf, tasks, prefix="shelf", shows_requests=True)
        adapter._lifetime.callback(adapter._works.stop)
        return adapter

    async def capabilities(self) -> contract.Capabilities:
        return contract.Capabilities(select_by_model=True, watch=True, marks=True)

    async def hosts(self) -> tuple[contract.Host, ...]:
        async with self._shelf.looking():
            return self._shelf.history.hosts

    async def devices(self) -> contract.Inventory:
        async with self._shelf.looking():
            history = self._shelf.history
            return contract.Inventory(version=history.version, devices=tuple(history.devices.values()))

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        return await self._works.begin(request, patience_seconds=self._config.timeout_seconds / 4)

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        return await self._works.begin(request, patience_seconds=self._config.timeout_seconds / 4)

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        return await self._works.find(operation_id=operation_id, request_id=request_id)

    async def operations(self) -> tuple[contract.Operation, ...]:
        return self._works.all()

    async def cancel(self, operation_id: str) -> contract.Operation:
        raise errors.Unimplemented("the shelf cannot cancel; wait for the end")

    @asynccontextmanager
    async def watch(self, from_version: str) -> AsyncIterator[AsyncIterator[contract.WatchEvent]]:
        async with aclosing(self._shelf.history.follow(from_version)) as events:
            yield events

    async def close(self) -> None:
        self._shelf.history.interrupt(errors.Unavailable("the connection to the shelf is closed"))
        await self._lifetime.aclose()


def _device(row: dict[str, Any]) -> contract.Device:
    note = notes.Note.from_text(row.get("note"))
    connection = None
    if row["host"] is not None:
        connection = contract.Connection(
            host_id=row["host"], port_id=row["id"], request_id=note.request_id, mark=note.mark
        )
    # The shelf shows the serial number of the drive's NVMe controller, which the host's kernel shows as well.
    number = witnesses.identifier(witnesses.Kind.NVME_SERIAL, row.get("serial", ""), "devices.serial")
    return contract.Device(
        id=row["id"],
        device_class=contract.DeviceClass.NVME,
        model=row["model"],
        serial=row.get("serial"),
        identifiers=(number,) if number is not None else (),
        connection=connection,
    )
