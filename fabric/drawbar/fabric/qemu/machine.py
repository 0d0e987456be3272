"""One virtual machine behind its QMP socket: it reads the machine's state, and performs one action at a time.

A QEMU without a socket, or without a listener, is a stopped machine and has no devices. The state of a silent QEMU is
unknown, so every reading fails. Devices are read from `qom-list`, since `query-pci` omits devices behind a port
without a bus number from the guest.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import assert_never

from drawbar.fabric import budget, errors
from drawbar.fabric.notes import Note
from drawbar.fabric.qemu import configuration, hotplug, qmp, sights

PERIPHERAL = "/machine/peripheral"
NO_UUID = "00000000-0000-0000-0000-000000000000"
_CHILD = "child["


async def look(spec: configuration.HostSpec, client: qmp.Client) -> sights.Host:
    """Return the visible state of a running QEMU.

    Raises:
        qmp.Rejected, qmp.Lost: it cannot be read.
    """
    objects = await _names(client, "/objects", sights.PREFIX)
    nodes = await client.execute("query-named-block-nodes", {"flat": True})
    uuid = str((await client.execute("query-uuid"))["UUID"])
    return sights.Host(
        id=spec.id,
        uuid=None if uuid == NO_UUID else uuid,
        ports=tuple([await _port(client, name, model) for name, model in await _ports(spec, client)]),
        objects=objects,
        nodes=frozenset(
            node["node-name"] for node in nodes if node.get("node-name", "").startswith(sights.NODE_PREFIX)
        ),
    )


async def _ports(spec: configuration.HostSpec, client: qmp.Client) -> Sequence[tuple[str, str]]:
    """Return the ids and models of the hot-plug ports."""
    models = {
        entry["name"]: entry["type"].removeprefix("child<").removesuffix(">")
        for entry in await client.execute("qom-list", {"path": PERIPHERAL})
    }
    wanted = sorted(models, key=_sort_key) if spec.ports is None else spec.ports
    return [(name, models[name]) for name in wanted if models.get(name) in sights.PORTS]


async def _port(client: qmp.Client, name: str, model: str) -> sights.Port:
    slot = await _get(client, f"{PERIPHERAL}/{name}", "slot")
    bus = f"{PERIPHERAL}/{name}/{name}"
    port_devices = []
    for entry in await client.execute("qom-list", {"path": bus}):
        if entry["name"].startswith(_CHILD):
            path = await _get(client, bus, entry["name"])
            if path is not None:
                port_devices.append(await _read_device(client, str(path)))
    return sights.Port(
        id=name,
        cxl=model in sights.CXL_PORTS,
        slot=slot if isinstance(slot, int) else None,
        port_devices=tuple(port_devices),
    )


async def _read_device(client: qmp.Client, path: str) -> sights.PortDevice:
    device_id = sights.device_id(path)
    if device_id is None:
        return sights.PortDevice(path=path)
    note = await _get(client, f"/objects/{sights.note_id(device_id)}", "identity")
    return sights.PortDevice(path=path, device_id=device_id, note=Note.from_text(note))


async def _get(client: qmp.Client, path: str, name: str) -> qmp.Answer:
    """Return a property, or None if the object or the property no longer exists."""
    try:
        return await client.execute("qom-get", {"path": path, "property": name})
    except qmp.Rejected as error:
        # QEMU reports a missing property and an unsupported one in the same words.
        if qmp.find_meaning(error) in {qmp.Meaning.GONE, qmp.Meaning.UNSUPPORTED}:
            return None
        raise


async def _names(client: qmp.Client, path: str, prefix: str) -> frozenset[str]:
    entries = await client.execute("qom-list", {"path": path})
    return frozenset(entry["name"] for entry in entries if entry["name"].startswith(prefix))


def _sort_key(name: str) -> tuple[str, int, str]:
    """Return a key that sorts port-2 before port-10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0), name


ANSWER_SECONDS = 10.0
"""QEMU answers in milliseconds; under software emulation on a busy machine it may take seconds."""

_TOLERATED: Mapping[type[hotplug.Action], frozenset[qmp.Meaning]] = {
    hotplug.RemoveObject: frozenset({qmp.Meaning.GONE, qmp.Meaning.HELD}),
    hotplug.RemoveNode: frozenset({qmp.Meaning.GONE, qmp.Meaning.HELD}),
}
"""Errors that count as success."""


class Machine:
    """A virtual machine.

    Attributes:
        spec: of the configuration.
        lock: held between a reading and the actions that depend on it.
    """

    def __init__(
        self,
        spec: configuration.HostSpec,
        *,
        on_event: Callable[[], None],
        flow: budget.Flow,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.spec = spec
        self._flow = flow
        self.lock = asyncio.Lock()
        self._on_event = on_event
        self._answer_seconds = answer_seconds
        self._client: qmp.Client | None = None
        self._connecting = asyncio.Lock()
        self._closed = False
        self._refused: set[str] = set()

    async def look(self) -> sights.Host:
        """Return the visible state; the caller holds the lock.

        Raises:
            Unavailable: the machine cannot be read, so its state is unknown.
            PermissionDenied: the socket is forbidden to this process.
        """
        try:
            async with self._answering(changes=False):
                try:
                    return await self._look()
                except qmp.Lost:
                    # QEMU has ended since the last request, and perhaps restarted.
                    return await self._look()
        except qmp.Rejected as error:
            raise errors.Unavailable(
                f"QEMU of host {self.spec.id} does not list its devices: {error.description}; update QEMU",
                vendor=_vendor(error),
            ) from error

    async def do(self, action: hotplug.Action) -> qmp.Meaning | None:
        """Perform an action and return None or the obstacle; the caller holds the lock.

        Returns:
            None on success; else an obstacle that the caller tolerates: BUSY, PENDING, GONE, HELD.

        Raises:
            FabricError: QEMU refused, or the effect is unknown.
        """
        if isinstance(action, hotplug.RemoveDevice):
            self._refused.discard(action.id)
        try:
            async with self._answering(changes=True):
                client = await self._reconnect()
                if client is None:
                    raise errors.Unavailable(
                        f"the virtual machine of host {self.spec.id} does not run; start it"
                    )
                await client.execute(*_command(action))
        except qmp.Rejected as error:
            meaning = qmp.find_meaning(error)
            if meaning in _TOLERATED.get(type(action), ()) or isinstance(action, hotplug.RemoveDevice):
                return meaning
            raise self._refusal(action, meaning, error) from error
        return None

    async def act(self, action: hotplug.Action) -> qmp.Meaning | None:
        """Perform an action as `do` does, and take the lock; for actions that need no reading before."""
        async with self.lock:
            return await self.do(action)

    def has_refused(self, qemu_id: str) -> bool:
        """Return whether the guest has refused to release the device since the last request."""
        return qemu_id in self._refused

    def close(self) -> None:
        """Close the connection; the virtual machine runs on."""
        self._closed = True
        if self._client is not None:
            self._client.close()

    async def _look(self) -> sights.Host:
        client = await self._reconnect()
        if client is None:
            return sights.Host(id=self.spec.id, running=False)
        return await look(self.spec, client)

    # --- the connection ---

    async def _reconnect(self) -> qmp.Client | None:
        """Return the client, reconnected if necessary, or None if QEMU does not run."""
        if self._closed:
            raise errors.Unavailable("the connection to the QEMU fabric is closed")
        async with self._connecting:
            if self._client is None or self._client.closed:
                try:
                    self._client = await qmp.Client.connect(
                        self.spec.qmp, on_event=self._hear, on_lost=self._on_event, flow=self._flow
                    )
                except (FileNotFoundError, ConnectionRefusedError):
                    self._refused.clear()
                    return None
            return self._client

    @asynccontextmanager
    async def _answering(self, *, changes: bool) -> AsyncIterator[None]:
        """Limit the time of a request to QEMU, and raise errors that name the machine."""
        where = f"QEMU of host {self.spec.id} at {self.spec.qmp}"
        try:
            async with asyncio.timeout(self._answer_seconds):
                yield
        except TimeoutError as error:
            if changes:
                raise errors.DeadlineExceeded(
                    f"{where} has not answered in time; read the fabric again"
                ) from error
            raise errors.Unavailable(
                f"{where} has not answered for {self._answer_seconds:g} s; look whether it hangs, or whether another "
                "client has the socket"
            ) from error
        except qmp.Lost as error:
            raise errors.Unavailable(f"{where}: {error}", side_effects_unknown=changes) from error
        except PermissionError as error:
            raise errors.PermissionDenied(f"{where} may not be used: {error.strerror}") from error
        except OSError as error:
            raise errors.Unavailable(f"{where} cannot be reached: {error.strerror or error}") from error

    def _hear(self, name: str, data: Mapping[str, qmp.Answer]) -> None:
        if name == "DEVICE_UNPLUG_GUEST_ERROR":
            if len(self._refused) >= _REMEMBERED:
                self._refused.clear()
            self._refused.add(str(data.get("device") or data.get("path"))[:_ID_CHARS])
        if name in _TELLING:
            self._on_event()

    def _refusal(
        self, action: hotplug.Action, meaning: qmp.Meaning, error: qmp.Rejected
    ) -> errors.FabricError:
        text = f"QEMU of host {self.spec.id} refused {type(action).__name__}: {error.description}"
        vendor = _vendor(error)
        match meaning:
            case qmp.Meaning.BUSY:
                return errors.Unavailable(f"{text}; try again", reason="GUEST_BUSY", vendor=vendor)
            case qmp.Meaning.DUPLICATE:
                return errors.Aborted(f"{text}; read the fabric again", reason="DUPLICATE", vendor=vendor)
            case qmp.Meaning.NO_PORT:
                return errors.NotFound(f"{text}; read the fabric again", vendor=vendor)
            case qmp.Meaning.LOCKED:
                return errors.FailedPrecondition(
                    f"{text}; another program has its file open: close it there",
                    reason=errors.Reason.IN_USE,
                    vendor=vendor,
                )
            case qmp.Meaning.UNSUPPORTED:
                return errors.FailedPrecondition(
                    f"{text}; change the device's configuration, or update QEMU",
                    reason=errors.Reason.INCOMPATIBLE,
                    vendor=vendor,
                )
            case _:
                return errors.FailedPrecondition(
                    f"{text}; correct its configuration", reason="QEMU_REFUSED", vendor=vendor
                )


_TELLING = frozenset({"DEVICE_DELETED", "DEVICE_UNPLUG_GUEST_ERROR", "RESET", "SHUTDOWN", "STOP", "RESUME"})
"""The events that call for a reading."""
_REMEMBERED = 256
# Our ids are shorter.
_ID_CHARS = 256


def _vendor(error: qmp.Rejected) -> Mapping[str, str]:
    return {"class": error.kind, "desc": error.description}


def _command(action: hotplug.Action) -> tuple[str, Mapping[str, qmp.Answer]]:
    """Return the QMP command of an action."""
    match action:
        case hotplug.AddNote(id=name, text=text):
            return "object-add", {"qom-type": "authz-simple", "id": name, "identity": text}
        case hotplug.AddMemory(id=name, path=path, size_bytes=size_bytes):
            # Shared, so that the guest's data is in the file for the next virtual machine.
            memory = {"mem-path": path, "size": size_bytes, "share": True}
            return "object-add", {"qom-type": "memory-backend-file", "id": name, **memory}
        case hotplug.AddNode(name=name, path=path):
            return "blockdev-add", {
                "driver": "raw",
                "node-name": name,
                "file": {"driver": "file", "filename": path},
            }
        case hotplug.AddDevice(arguments=arguments):
            return "device_add", arguments
        case hotplug.RemoveDevice(id=name):
            return "device_del", {"id": name}
        case hotplug.RemoveObject(id=name):
            return "object-del", {"id": name}
        case hotplug.RemoveNode(name=name):
            return "blockdev-del", {"node-name": name}
        case _:
            assert_never(action)
