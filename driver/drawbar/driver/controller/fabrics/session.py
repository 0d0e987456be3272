"""One fabric manager: connected, listed and watched for as long as its Fabric object asks for it.

The session holds the latest word of the fabric manager and tells a listener what changed. Whatever goes wrong with
one manager, its adapter's own defects included, ends in `connection` and a new try after a pause that grows and is
jittered; it never reaches another fabric.
"""

import asyncio
import logging
import traceback
from contextlib import aclosing
from typing import Protocol

import tenacity

from drawbar.driver.api import fabrics
from drawbar.driver.controller import faults, hosts, marks, names
from drawbar.driver.controller.fabrics import connecting, credentials, discretion, readings, status, turns
from drawbar.fabric import contract, errors

log = logging.getLogger(__name__)

PAUSE_FIRST_SECONDS = 0.5
PAUSE_MAX_SECONDS = 30.0
# A connection that held this long was a good one: the next pause is the first again.
GOOD_SECONDS = 60.0
LIST_EVERY_SECONDS = 10.0


def _monotonic() -> float:
    """Seconds on the event loop's clock."""
    return asyncio.get_running_loop().time()


class Listener(Protocol):
    """Who wants to know."""

    def device_changed(self, fabric: str, old: contract.Device | None, new: contract.Device | None) -> None:
        """A device is new, different or gone."""
        ...

    def hosts_changed(self, fabric: str) -> None:
        """Hosts, or their ports, are different."""
        ...

    def operation_changed(self, fabric: str, operation: contract.Operation) -> None:
        """An operation began or finished."""
        ...

    def turn_came(self, key: names.DeviceKey) -> None:
        """The fabric has a place for the operation that this device waited for."""
        ...

    def connection_changed(self, fabric: str) -> None:
        """The manager can be reached, or can no longer be."""
        ...


class Session:
    """Run `run()` as a task; read the properties at any time."""

    def __init__(
        self,
        fabric: fabrics.Fabric,
        listener: Listener,
        adapters: connecting.AdapterOf,
        *,
        vault: credentials.Vault | None = None,
        cluster: str = "",
    ) -> None:
        self.name = fabric.metadata.name
        self.spec = fabric.spec
        self.connection = status.Connection(connected=False, reason="Connecting", message="not connected yet")
        self.listed = False
        # On the monotonic clock; None while connected.
        self.silent_since: float | None = _monotonic()
        self.unpublished: str | None = None
        self.nodes = hosts.NodeMap()
        self.turns = turns.Turns()
        self.faults = faults.Ledger()
        self._hosts: dict[str, contract.Host] = {}
        self._devices: dict[str, contract.Device] = {}
        self._listener = listener
        self._adapters = adapters
        self._vault = vault
        self._mark = marks.mark(cluster, self.name, fabric.spec.driver)
        self._adapter: contract.FabricAdapter | None = None
        self._readings = readings.Readings(lambda: self._list(self.adapter()))

    @property
    def hosts(self) -> tuple[contract.Host, ...]:
        """All hosts, as last told."""
        return tuple(self._hosts.values())

    @property
    def devices(self) -> tuple[contract.Device, ...]:
        """All devices, as last told."""
        return tuple(self._devices.values())

    @property
    def count(self) -> int:
        """How many devices there are, as last told."""
        return len(self._devices)

    @property
    def view(self) -> status.View:
        """What the Fabric's status tells of it; looks at every device."""
        wanted = self.spec.policy.immediate
        return status.View(
            connection=self.connection,
            nodes=self.nodes if self.listed else None,
            devices=len(self._devices),
            hosts=len(self._hosts),
            unpublished=self.unpublished,
            reserved=sum(wanted.holds(one.id, one.model) for one in self._devices.values()),
        )

    @property
    def silent_seconds(self) -> float:
        """How long the manager has not been reached; 0.0 while it is."""
        return 0.0 if self.silent_since is None else _monotonic() - self.silent_since

    @property
    def mark(self) -> str | None:
        """What tells our connections from those of others; None where the fabric keeps no marks, or we have none."""
        return self._mark if self.turns.can.marks else None

    def device(self, name: str) -> contract.Device | None:
        """The device of that DRA name, as last told."""
        return self._devices.get(name)

    def adapter(self) -> contract.FabricAdapter:
        """The way to the fabric manager.

        Raises:
            errors.Unavailable: there is none now.
        """
        if self._adapter is None:
            raise errors.Unavailable(f"fabric {self.name} is not connected: {self.connection.message}")
        return self._adapter

    async def run(self) -> None:
        """Connects, lists and watches until cancelled, anew whenever the credentials change.

        Ends by itself only if the Fabric names no Secret and its configuration is wrong.
        """
        reference = self.spec.credentials_secret_ref
        if self._vault is None or reference is None:
            await self._serve(contract.Credentials())
            return
        async with asyncio.TaskGroup() as tasks, aclosing(self._vault.follow(reference.name)) as told:
            serving: asyncio.Task[None] | None = None
            async for given in told:
                if serving is not None:
                    serving.cancel()
                    await asyncio.wait({serving})
                    serving = None
                if isinstance(given, credentials.Unusable):
                    self._say(connected=False, reason=given.reason, message=given.message)
                else:
                    log.info("credentials read", extra={"fabric": self.name, "parts": given.given})
                    serving = tasks.create_task(self._serve(given), name=f"fabric-{self.name}-serving")

    async def _serve(self, given: contract.Credentials) -> None:
        """Connects, lists and watches with these credentials until cancelled; ends if the configuration is wrong."""
        config = contract.AdapterConfig(
            name=self.name,
            endpoint=self.spec.endpoint,
            parameters=self.spec.parameters,
            timeout_seconds=self.spec.timeout_seconds,
            credentials=given,
            tls=contract.Tls(verify=self.spec.tls.verify, server_name=self.spec.tls.server_name),
        )
        try:
            adapter_class = self._adapters(self.spec.adapter)
            adapter_class.validate(config)
        except errors.InvalidConfiguration as error:
            # Only a change of the object, or of the Secret, can help, and that begins anew.
            self._say(connected=False, reason=_reason(error), message=given.redacted(error.message))
            return
        while True:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type(errors.FabricError),
                wait=tenacity.wait_exponential_jitter(
                    multiplier=PAUSE_FIRST_SECONDS, max=PAUSE_MAX_SECONDS, jitter=PAUSE_FIRST_SECONDS
                ),
            ):
                with attempt:
                    await self._stay_connected(adapter_class, config)

    def change(self, spec: fabrics.FabricSpec) -> None:
        """Takes over what changed of the Fabric beside the way to its manager; who follows it looks at all anew."""
        if spec != self.spec:
            self.spec = spec
            self._listener.connection_changed(self.name)

    async def read(self) -> None:
        """Lists the fabric anew, together with those who want it at the same time.

        Raises:
            errors.FabricError: it cannot be read.
        """
        await self._readings.fresh()

    def give_place(self, key: names.DeviceKey) -> None:
        """The fabric is not, or no longer, busy with this device."""
        self._wake(self.turns.give(key))

    def _wake(self, keys: tuple[names.DeviceKey, ...]) -> None:
        for key in keys:
            self._listener.turn_came(key)

    def learn(self, device: contract.Device) -> None:
        """Takes over a device as an operation's answer shows it."""
        name = names.label(device.id)
        old = self._devices.get(name)
        if old != device:
            self._devices[name] = device
            self._listener.device_changed(self.name, old, device)

    async def _stay_connected(
        self, adapter_class: connecting.AdapterClass, config: contract.AdapterConfig
    ) -> None:
        """One connection from its beginning to its end.

        Raises:
            errors.FabricError: it ended, and it was no good one.
        """
        began = _monotonic()
        try:
            async with await adapter_class.connect(config) as connected:
                adapter = discretion.Discreet(connected, config.credentials)
                self._adapter = adapter
                await self._follow(adapter)
        except errors.FabricError as error:
            discretion.clean(error, config.credentials)
            self._say(connected=False, reason=_reason(error), message=error.message)
            if _monotonic() - began < GOOD_SECONDS:
                raise
        except Exception as error:
            # The supervisor of somebody else's code: a vendor adapter's defect must not end the other fabrics.
            told = config.credentials.redacted("".join(traceback.format_exception(error)))
            log.error("the fabric adapter failed", extra={"fabric": self.name, "traceback": told})  # noqa: TRY400 -- the exception's own text may quote a secret
            message = f"the adapter {self.spec.adapter} failed with {type(error).__name__}; tell its vendor"
            self._say(connected=False, reason="AdapterDefect", message=message)
            raise errors.Unavailable(message) from error
        finally:
            self._adapter = None

    async def _follow(self, adapter: contract.FabricAdapter) -> None:
        can = await adapter.capabilities()
        self._wake(self.turns.allow(can))
        while True:
            version = await self._list(adapter)
            doubt = "" if self.spec.tls.verify else "; its certificate is not verified (spec.tls.verify)"
            self._say(connected=True, reason="Connected", message=f"connected to {self.spec.endpoint}{doubt}")
            if not can.watch:
                await asyncio.sleep(LIST_EVERY_SECONDS)
                continue
            async with adapter.watch(version) as events:
                async for event in events:
                    if isinstance(event, contract.Resync):
                        break
                    self._take(event)

    async def _list(self, adapter: contract.FabricAdapter) -> str:
        inventory = await adapter.devices()
        told = {host.id: host for host in await adapter.hosts()}
        fresh = {names.label(device.id): device for device in inventory.devices}
        gone = [self._devices.pop(name) for name in self._devices.keys() - fresh.keys()]
        changed_hosts = told != self._hosts
        self._hosts = told
        first, self.listed = not self.listed, True
        if changed_hosts or first:
            self._listener.hosts_changed(self.name)
        for device in gone:
            self._listener.device_changed(self.name, device, None)
        for device in fresh.values():
            self.learn(device)
        return inventory.version

    def _take(self, event: contract.WatchEvent) -> None:
        match event:
            case contract.DeviceChanged(device=device):
                self.learn(device)
            case contract.DeviceGone(device_id=device_id):
                old = self._devices.pop(names.label(device_id), None)
                if old is not None:
                    self._listener.device_changed(self.name, old, None)
            case contract.HostChanged(host=host):
                known = self._hosts.get(host.id)
                self._hosts[host.id] = host
                if known is None or hosts.differ(known, host):
                    self._listener.hosts_changed(self.name)
            case contract.OperationChanged(operation=operation):
                self._listener.operation_changed(self.name, operation)
            case contract.Bookmark() | contract.Resync():
                return

    def _say(self, *, connected: bool, reason: str, message: str) -> None:
        said = status.Connection(connected=connected, reason=reason, message=message)
        if said == self.connection:
            return
        level = logging.INFO if connected else logging.WARNING
        log.log(level, "fabric: %s", message, extra={"fabric": self.name, "reason": reason})
        self.connection = said
        if connected:
            self.silent_since = None
        elif self.silent_since is None:
            self.silent_since = _monotonic()
        self._listener.connection_changed(self.name)


def _reason(error: errors.FabricError) -> str:
    """The error's meaning as a condition's reason: FAILED_PRECONDITION becomes FailedPrecondition."""
    if isinstance(error, errors.InvalidConfiguration):
        return "InvalidConfiguration"
    return "".join(word.capitalize() for word in error.code.value.split("_"))
