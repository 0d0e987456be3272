"""One fabric manager: connected, listed and watched for as long as its Fabric object asks for it.

The session holds the latest state that the fabric manager reported, and reports changes to a listener. Whatever goes wrong with
one manager, its adapter's own defects included, ends in `connection` and a new try after a pause that grows and is
jittered; it never reaches another fabric. A defect of Drawbar itself does the same: the session begins again after a pause, and a
callback of the listener that fails for one device is made again, while the others go on.

A listing takes a while, and the watch and the answers of operations go on reporting meanwhile. What they reported of a device
or host after the listing began is kept: the listing may be older, and where the fabric is watched nothing would report
it again.
"""

import asyncio
import datetime
import functools
import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from drawbar.driver import backoff, containment
from drawbar.driver.api import fabrics
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import faults, hosts, marks, names, pairs, rates
from drawbar.driver.controller.fabrics import (
    credentials,
    losses,
    numbers,
    places_adapter,
    readings,
    redacting_adapter,
    shares_adapter,
    status,
    turns,
)
from drawbar.driver.controller.offers import any_of_model, memory_chunk
from drawbar.fabric import budget, contract, errors, limiting

log = logging.getLogger(__name__)

PAUSE_FIRST_SECONDS = 0.5
# A manager that comes back is found within 5 s.
PAUSE_MAX_SECONDS = 4.0
# One that refuses the credentials does so until an administrator acts, and too many attempts may lock the account.
REFUSED_PAUSE_MAX_SECONDS = 30.0
# A connection that held this long was a good one: the next pause is the first again.
GOOD_SECONDS = 60.0
# A manager that does not let go in this time holds up neither the next connection nor the end of the process.
CLOSE_SECONDS = 5.0
ATTACHES_WINDOW = datetime.timedelta(minutes=1)
ERASURES_WINDOW = datetime.timedelta(days=1)
LIST_EVERY_SECONDS = 10.0
# What its node still shows and the manager does not list may stay so.
MISSING_EVERY_SECONDS = 60.0
# After a listing, or a watch, beyond a limit.
LIMIT_PAUSE_FIRST_SECONDS = 10.0
LIMIT_PAUSE_MAX_SECONDS = 300.0
MISSING = "inventory"
MISSING_HOSTS = "hosts"
# What can be beyond a limit, as subjects of troubles.
LISTING, NEWCOMERS, WATCH, STREAM, SLICES = "listing", "new devices", "watch", "stream", "slices"
LIMITED = (LISTING, NEWCOMERS, WATCH, STREAM, SLICES)
NAMESAKES = "device names"
UNREAD = "parts that cannot be read"
UNREAD_SHOWN_MAX = 5
NAMESAKES_SHOWN_MAX = 5
NO_HOSTS = (
    "the fabric manager lists no host at all, although devices were offered or attached before: nothing of its first listing "
    "is taken over until it lists one, or two further listings agree"
)


def _monotonic() -> float:
    """Return the seconds on the event loop's clock."""
    return asyncio.get_running_loop().time()


class Listener(Protocol):
    """What a session reports changes to."""

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

    def witnesses(self, fabric: str) -> Mapping[str, losses.Witness]:
        """Return what nodes report, by the name of each device of the fabric that has an attachment."""
        ...

    def published(self, fabric: str) -> Collection[str]:
        """Return the names of the devices in the fabric's slices, of a composite those of its members."""
        ...

    def taken(self, fabric: str) -> any_of_model.Taken:
        """Return what DeviceAttachments and claims have taken of the fabric's places."""
        ...

    def shares(self, fabric: str) -> tuple[memory_chunk.Hold, ...]:
        """Return the DeviceAttachments of shares of the fabric."""
        ...

    def troubles_changed(self, fabric: str) -> None:
        """What was reported of it is different."""
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
        adapters: redacting_adapter.AdapterOf,
        *,
        vault: credentials.Vault | None = None,
        networks: contract.Networks | None = None,
        cluster: str = "",
        contained: containment.Containment | None = None,
        report: containment.Report | None = None,
    ) -> None:
        # `report` shows an unexpected error on the Fabric.
        self._contained = contained or containment.Uncontained()
        self._report_unexpected = report
        self._callbacks: containment.Callbacks[Hashable] = containment.Callbacks(
            self._contained, "fabric-changes"
        )
        self.name = fabric.metadata.name
        self.spec = fabric.spec
        self._given_up = fabric.given_up
        self.connection = status.Connection(
            connected=False, reason=reasons.CONNECTING, message="not connected yet"
        )
        self.listed = False
        # On the monotonic clock; None while connected.
        self.silent_since: float | None = _monotonic()
        self.unpublished: str | None = None
        self.nodes = hosts.NodeMap()
        # Whether the hosts of a listing were mapped since the session began.
        self.is_mapped = False
        self.turns = turns.Turns()
        self.faults = faults.Ledger()
        # By namespace and by the name of the device.
        self.attaches: rates.Rate[str] = rates.Rate(ATTACHES_WINDOW)
        self.erasures: rates.Rate[str] = rates.Rate(ERASURES_WINDOW)
        self.pairs = pairs.Pairs()
        # A sentence by what it is about: a device's name, `node labels`, `its name`, `composites` or empty for the whole.
        self.troubles: dict[str, str] = {}
        # How often a limit was passed.
        self.exceeded = 0
        limits = fabric.spec.policy.limits.budget
        self._limits = limits
        # What it streams counts over all connections to it.
        self._flow = budget.Flow(limits, self.name, clock=_monotonic)
        self._limit_pauses = {
            subject: backoff.Backoff(LIMIT_PAUSE_FIRST_SECONDS, LIMIT_PAUSE_MAX_SECONDS)
            for subject in (LISTING, WATCH)
        }
        # On the monotonic clock.
        self._watch_from = 0.0
        self._hosts: dict[str, contract.Host] = {}
        self._devices: dict[str, contract.Device] = {}
        self.numbers = numbers.Numbers()
        """The identifiers of all devices."""
        self._listener = listener
        self._adapters = adapters
        self._vault = vault
        self._networks = networks
        self._mark = marks.mark(cluster, self.name, fabric.spec.driver)
        self._adapter: contract.FabricAdapter | None = None
        # Of a fabric that chooses the device itself.
        self._places: places_adapter.PlacesAdapter | None = None
        # Of a fabric whose devices can be carved, as last connected.
        self._shares: shares_adapter.SharesAdapter | None = None
        self._readings = readings.Readings(lambda: self._list(self.adapter()))
        # The fabric's version as it was last listed.
        self._version = ""
        self.listings = losses.Listings()
        self._devices_lost = losses.Tracker()
        # The same of hosts, by id; of the empty id while a first listing without any host is in doubt.
        self._hosts_lost = losses.Tracker("hosts")
        # What was reported since the listing under way began: names of devices, ids of hosts.
        self._reported_devices: set[str] = set()
        self._reported_hosts: dict[str, None] = {}

    @property
    def hosts(self) -> tuple[contract.Host, ...]:
        """All hosts, as last reported."""
        return tuple(self._hosts.values())

    def host(self, host_id: str) -> contract.Host | None:
        """Return the host of that id, as last reported."""
        return self._hosts.get(host_id)

    @property
    def devices(self) -> tuple[contract.Device, ...]:
        """All devices, as last reported; without what they are carved into for claims."""
        return tuple(device for name, device in self._devices.items() if not names.is_share(name))

    @property
    def carves(self) -> bool:
        """Whether claims can be given shares of its devices."""
        return self._shares is not None

    @property
    def chooses(self) -> bool:
        """Whether the fabric chooses the device itself, so that its devices are places."""
        return self._places is not None

    def share(self, name: str, memory_bytes: int, origin: str) -> contract.Device | None:
        """Return a share that has no attachment, as the device that it becomes with one; None where that cannot be."""
        if self._shares is None:
            return None
        made, device = self._shares.made(name), self.device(origin)
        if made is not None:
            return memory_chunk.as_share(made, name)
        return memory_chunk.unmade(name, memory_bytes, device) if device is not None else None

    def made_bytes(self, device: contract.Device) -> int:
        """Return the memory of a device that is in slices of ours."""
        return self._shares.made_bytes(device.id, self.mark) if self._shares is not None else 0

    @property
    def count(self) -> int:
        """How many devices there are, as last reported."""
        return len(self._devices)

    @property
    def view(self) -> status.View:
        """What the Fabric's status is made from; looks at every device."""
        wanted = self.spec.policy.immediate
        return status.View(
            connection=self.connection,
            nodes=self.nodes if self.listed else None,
            devices=len(self._devices),
            hosts=len(self._hosts),
            unpublished=self.unpublished,
            reserved=sum(wanted.holds(device.id, device.model) for device in self._devices.values()),
            missing=bool(self._devices_lost.missing or self._hosts_lost.missing),
            exceeded=any(subject in self.troubles for subject in LIMITED),
        )

    @property
    def silent_seconds(self) -> float:
        """How long the manager has not been reached; 0.0 while it is."""
        return 0.0 if self.silent_since is None else _monotonic() - self.silent_since

    @property
    def mark(self) -> str | None:
        """What distinguishes our connections from those of other owners; None where the fabric keeps no marks, or we have none."""
        return self._mark if self.turns.can.marks else None

    @property
    def missing(self) -> frozenset[str]:
        """Names of the devices that are not listed and not lost yet; without a `device` where they never were listed."""
        return frozenset(self._devices_lost.missing)

    def device(self, name: str) -> contract.Device | None:
        """Return the device of that DRA name, as last reported."""
        return self._devices.get(name)

    def occupant(self, name: str) -> contract.Device | None:
        """Return the device that is in a place, or the slice of a share; None where none is."""
        standing = self._places or self._shares
        return standing.occupant(name) if standing is not None else None

    def reconsider(self, name: str) -> None:
        """Judge a device anew whose attachment is different: one that is missing may be lost now, a place be free."""
        if self._places is not None and self.listed:
            self._places.arrange()
        if self._shares is not None and self.listed and names.is_share(name):
            self._shares.arrange()
        if name in self._devices_lost.missing:
            self._judge_missing(name, self._devices_lost.missing[name].counted_at)

    def adapter(self) -> contract.FabricAdapter:
        """Return the adapter that is connected to the fabric manager.

        Raises:
            errors.Unavailable: there is none now.
        """
        if self._adapter is None:
            raise errors.Unavailable(f"fabric {self.name} is not connected: {self.connection.message}")
        return self._adapter

    async def run(self) -> None:
        """Connect, list and watches until cancelled, anew whenever the credentials change, and after an unexpected error.

        Ends by itself only if the Fabric names no Secret and its configuration is wrong.
        """
        try:
            await self._contained.keep(
                "fabric",
                self._run,
                subject=self.name,
                failed=lambda failure: self._set_connection(
                    connected=False, reason=reasons.UNEXPECTED_ERROR, message=failure
                ),
                report=self._report_unexpected,
            )
        finally:
            self._callbacks.close()

    async def _run(self) -> None:
        reference = self.spec.credentials_secret_ref
        if self._vault is None or reference is None:
            await self._serve(contract.Credentials())
            return
        recipient = credentials.Recipient.from_spec(self.name, self.spec)
        following = self._vault.follow(reference.name, recipient)
        async with asyncio.TaskGroup() as tasks, aclosing(following) as followed:
            serving: asyncio.Task[None] | None = None
            async for given in followed:
                if serving is not None:
                    serving.cancel()
                    await asyncio.wait({serving})
                    serving = None
                if isinstance(given, credentials.Unusable):
                    self._set_connection(connected=False, reason=given.reason, message=given.message)
                else:
                    log.info("credentials read", extra={"fabric": self.name, "parts": given.given})
                    serving = tasks.create_task(self._serve(given), name=f"fabric-{self.name}-serving")

    async def _serve(self, given: contract.Credentials) -> None:
        """Connect, list and watches with these credentials until cancelled; end if the configuration is wrong."""
        config = contract.AdapterConfig(
            name=self.name,
            endpoint=self.spec.endpoint,
            parameters=self.spec.parameters,
            timeout_seconds=self.spec.timeout_seconds,
            credentials=given,
            tls=contract.Tls(verify=self.spec.tls.verify, server_name=self.spec.tls.server_name),
            limits=self._limits,
            networks=self._networks,
        )
        try:
            adapter_class = self._adapters(self.spec.adapter)
            adapter_class.validate(config)
        except errors.InvalidConfiguration as error:
            # Only a change of the object, or of the Secret, can help, and that begins another session or connection.
            self._set_connection(
                connected=False, reason=_reason(error), message=given.redacted(error.message)
            )
            return
        except Exception as error:  # noqa: BLE001 -- foreign code; only another version of it can help
            failure = redacting_adapter.defect(error, given, fabric=self.name, name=self.spec.adapter)
            self._set_connection(connected=False, reason=_reason(failure), message=failure.message)
            return
        down = backoff.Backoff(PAUSE_FIRST_SECONDS, PAUSE_MAX_SECONDS)
        refused = backoff.Backoff(PAUSE_FIRST_SECONDS, REFUSED_PAUSE_MAX_SECONDS)
        while True:
            try:
                await self._stay_connected(adapter_class, config)
            except errors.FabricError as error:
                if budget.is_exceeded(error):
                    await asyncio.sleep(self._exceed(LISTING, error))
                else:
                    await asyncio.sleep((refused if _lasts(error) else down).failed())
            else:
                down.reset()
                refused.reset()

    @property
    def given_up(self) -> bool:
        """Whether an administrator gave the fabric up, and its manager is not reached."""
        return self._given_up and not self.connection.connected

    def change(self, spec: fabrics.FabricSpec, *, given_up: bool = False) -> None:
        """Take over a change of the Fabric other than how its manager is reached; the listener looks at all devices anew."""
        if (spec, given_up) != (self.spec, self._given_up):
            self.spec, self._given_up = spec, given_up
            self._tell("connection", self._listener.connection_changed, self.name)

    def _tell(self, key: Hashable, callback: Callable[..., None], *arguments: object) -> None:
        """Call the listener, and again after a pause if that fails."""
        self._callbacks.call(
            (self.name, key),
            functools.partial(callback, *arguments),
            extra=lambda: {"fabric": self.name, "about": str(key)},
            report=self._report_unexpected,
        )

    def _tell_of_device(self, name: str, old: contract.Device | None, new: contract.Device | None) -> None:
        self._callbacks.tell(
            (self.name, "device", name),
            functools.partial(self._listener.device_changed, self.name),
            old,
            new,
            extra=lambda: {"fabric": self.name, "device": name},
            report=self._report_unexpected,
        )

    def report(self, subject: str, trouble: str = "") -> bool:
        """Show in the Fabric's status what is wrong with a device, or that nothing is; return whether that is news."""
        if self.troubles.get(subject, "") == trouble:
            return False
        if trouble:
            self.troubles[subject] = trouble
        else:
            del self.troubles[subject]
        self._tell("troubles", self._listener.troubles_changed, self.name)
        return True

    async def read(self) -> None:
        """List the fabric anew; concurrent callers share a listing.

        Raises:
            errors.FabricError: it cannot be read.
        """
        await self._readings.fresh()

    def give_place(self, key: names.DeviceKey) -> None:
        """Note that the fabric is not, or no longer, busy with this device."""
        self._wake(self.turns.give(key))

    def _wake(self, keys: tuple[names.DeviceKey, ...]) -> None:
        for key in keys:
            self._tell(("turn", key), self._listener.turn_came, key)

    def learn(self, device: contract.Device) -> None:
        """Take over a device as an operation's answer shows it, or the watch."""
        name = names.label(device.id)
        if self._has_namesake(name, device.id) or (self._shares is None and names.is_share(name)):
            return
        if self._readings.reading:
            self._reported_devices.add(name)
        self._put(name, device)

    def _has_namesake(self, name: str, device_id: str) -> bool:
        """Return whether another device has that name; it keeps it, and the next listing reports the other one."""
        namesake = self._devices.get(name)
        return namesake is not None and namesake.id != device_id

    def _put(self, name: str, device: contract.Device) -> None:
        if self._devices_lost.missing.pop(name, None) is not None:
            self._lose()
        old = self._devices.get(name)
        if old != device:
            self._devices[name] = device
            self.numbers.put(device)
            self._tell_of_device(name, old, device)

    async def _stay_connected(
        self, adapter_class: redacting_adapter.AdapterClass, config: contract.AdapterConfig
    ) -> None:
        """Hold one connection from its beginning to its end.

        Raises:
            errors.FabricError: it ended, and it was no good one.
        """
        began = _monotonic()
        try:
            connected = await self._connect(adapter_class, config)
            redacting = redacting_adapter.RedactingAdapter(
                connected, config.credentials, fabric=self.name, name=self.spec.adapter
            )
            adapter = limiting.LimitedAdapter(redacting, self._limits, self._flow, fabric=self.name)
            self._adapter = adapter
            try:
                await self._follow(adapter)
            finally:
                self._places = None
                await self._let_go(adapter)
        except errors.FabricError as error:
            redacting_adapter.clean(error, config.credentials)
            self._set_connection(connected=False, reason=_reason(error), message=error.message)
            if _monotonic() - began < GOOD_SECONDS:
                raise
        finally:
            self._adapter = None

    async def _connect(
        self, adapter_class: redacting_adapter.AdapterClass, config: contract.AdapterConfig
    ) -> contract.FabricAdapter:
        """Return a new connection; its calls raise errors of the contract alone once it is behind a RedactingAdapter."""
        try:
            return await adapter_class.connect(config)
        except errors.FabricError:
            raise
        except Exception as error:
            name = self.spec.adapter
            raise redacting_adapter.defect(error, config.credentials, fabric=self.name, name=name) from error

    async def _let_go(self, adapter: contract.FabricAdapter) -> None:
        """Close a connection at its end.

        An error of the adapter is logged and not raised: it would take the place of why the connection ended, and
        a session whose cancellation was lost would connect anew.
        """
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await adapter.close()
        except (errors.FabricError, TimeoutError) as error:
            why = str(error) or f"no answer within {CLOSE_SECONDS:.0f} s"
            log.warning("the fabric adapter could not be closed: %s", why, extra={"fabric": self.name})

    async def _follow(self, adapter: contract.FabricAdapter) -> None:
        can = await adapter.capabilities()
        self._wake(self.turns.allow(can))
        if any_of_model.is_needed(can):
            self._places = places_adapter.PlacesAdapter(
                adapter, mark=self.mark, taken=lambda: self._listener.taken(self.name), report=self._take
            )
            self._adapter = adapter = self._places
        self._shares = None
        if self._places is None and can.slices and can.exact_device and self.mark is not None:
            self._shares = shares_adapter.SharesAdapter(
                adapter,
                holds=lambda: self._listener.shares(self.name),
                report=self._take,
                withdraw=self._withdraw,
            )
            self._adapter = adapter = self._shares
        pauses = backoff.Backoff()
        while True:
            try:
                # Shared with the readings of other callers, or the older of two could be taken over last.
                await self._readings.fresh()
            except errors.Transient as error:
                if not budget.is_exceeded(error):
                    raise
                self._set_connected()
                await asyncio.sleep(self._exceed(LISTING, error))
                continue
            self._limit_pauses[LISTING].reset()
            self.report(LISTING)
            version = self._version
            self._set_connected()
            began = _monotonic()
            if not can.watch or began < self._watch_from:
                await asyncio.sleep(LIST_EVERY_SECONDS)
                continue
            try:
                await self._watch(adapter, version)
            except errors.Transient as error:
                if not budget.is_exceeded(error):
                    raise
                self._watch_from = _monotonic() + self._exceed(WATCH, error)
                continue
            # A manager that ends its watches at once is not listed without a pause: that only adds to its trouble.
            await asyncio.sleep(pauses.ended(_monotonic() - began))

    def _set_connected(self) -> None:
        doubt = "" if self.spec.tls.verify else "; its certificate is not verified (spec.tls.verify)"
        self._set_connection(
            connected=True, reason=reasons.CONNECTED, message=f"connected to {self.spec.endpoint}{doubt}"
        )

    def _exceed(self, subject: str, error: errors.FabricError) -> float:
        """Report that a limit was passed; return the seconds until the next try. What was known before stays."""
        log.warning("fabric: %s", error.message, extra={"fabric": self.name, "reason": error.reason})
        self.exceeded += 1
        self.report(subject, error.message)
        return self._limit_pauses[subject].failed()

    def _check_watch(self, event: contract.WatchEvent, began: float) -> None:
        """Report limits that the manager passes beside its watch; a watch that does its work is within its own again."""
        if isinstance(event, contract.Bookmark):
            self.report(STREAM, event.exceeded)
        if WATCH in self.troubles and _monotonic() - began > GOOD_SECONDS:
            self._limit_pauses[WATCH].reset()
            self.report(WATCH)

    async def _watch(self, adapter: contract.FabricAdapter, version: str) -> None:
        """Take over what the manager reports, until it ends the watch or it is time to list what is missing."""
        began = _monotonic()
        try:
            async with asyncio.timeout(self._list_missing_seconds) as limit, adapter.watch(version) as events:
                async for event in events:
                    if isinstance(event, contract.Resync):
                        break
                    # Raised in this context, an error of ours would pass for one of the adapter.
                    attempt = self._contained.attempt(
                        "fabric-events",
                        self.name,
                        extra=lambda: {"fabric": self.name},
                        report=self._report_unexpected,
                    )
                    with attempt:
                        self._take(event)
                    if attempt.failure:
                        break
                    self._check_watch(event, began)
                    if self._list_missing_seconds is not None and limit.when() is None:
                        limit.reschedule(_monotonic() + losses.APART_SECONDS)
        except TimeoutError:
            if not limit.expired():
                raise

    @property
    def _list_missing_seconds(self) -> float | None:
        trackers = self._devices_lost, self._hosts_lost
        if not any(tracker.missing for tracker in trackers):
            return None
        return (
            losses.APART_SECONDS if any(tracker.undecided for tracker in trackers) else MISSING_EVERY_SECONDS
        )

    async def _list(self, adapter: contract.FabricAdapter) -> None:
        """List the fabric; called by `_readings` alone, so never concurrently."""
        began = _monotonic()
        try:
            inventory = await adapter.devices()
            listed_hosts = await adapter.hosts()
            if self._places is not None:
                # With everything that was reported meanwhile.
                inventory = replace(inventory, devices=self._places.shown)
                self._reported_devices.clear()
            is_complete = self._learn_all(inventory, listed_hosts) and not inventory.unread
            complete = began if is_complete else self.listings.complete
            self.listings = losses.Listings(last=began, complete=complete)
        finally:
            self._reported_devices.clear()
            self._reported_hosts.clear()

    def _learn_all(self, inventory: contract.Inventory, listed_hosts: tuple[contract.Host, ...]) -> bool:
        """Take over a listing, except for what was reported since it began; return whether it was taken over."""
        hosts_by_id = {host.id: host for host in listed_hosts}
        hosts_by_id |= {host_id: self._hosts[host_id] for host_id in self._reported_hosts}
        self._version = inventory.version
        self.report(UNREAD, _unread(inventory))
        if not self._judge_hosts(hosts_by_id, partial=bool(inventory.unread)):
            return False
        hosts_by_id |= {host_id: self._hosts[host_id] for host_id in self._hosts_lost.missing}
        held = {name: device.id for name, device in self._devices.items()}
        reserved = self._shares.reserved if self._shares is not None else _named_as_shares(inventory)
        ids = (
            device.id for device in inventory.devices if self._shares is not None or device.id not in reserved
        )
        shown, namesakes = names.unambiguous(ids, held)
        self.report(NAMESAKES, _namesakes((*namesakes, *((device_id, "a share") for device_id in reserved))))
        listed = {names.label(device.id): device for device in inventory.devices if device.id in shown}
        first, self.listed = not self.listed, True
        lost = self._judge(listed, first=first, partial=bool(inventory.unread))
        changed_hosts = hosts_by_id != self._hosts
        self._hosts = hosts_by_id
        if changed_hosts or first:
            self._tell("hosts", self._listener.hosts_changed, self.name)
        self._lose(lost)
        self._put_all({name: device for name, device in listed.items() if name not in self._reported_devices})
        return True

    def _put_all(self, listed: Mapping[str, contract.Device]) -> None:
        """Take over the devices of a listing; new ones while there is room beside those that count as they were."""
        room = max(self._limits.devices - len(self._devices), 0)
        newcomers = [name for name in listed if name not in self._devices]
        for name, device in listed.items():
            if name in self._devices:
                self._put(name, device)
        for name in newcomers[:room]:
            self._put(name, listed[name])
        left = len(newcomers) - room
        self.report(
            NEWCOMERS,
            f"{left} new devices have to wait: with those that are not listed any more the fabric has {self._limits.devices}, "
            f"as many as spec.policy.limits.devices allows; wait for two further listings, or raise it (kubectl edit fabric {self.name})"
            if left > 0
            else "",
        )

    def _judge_hosts(self, listed: Mapping[str, contract.Host], *, partial: bool) -> bool:
        """Judge what the absence of hosts from a listing means; return whether the listing can be taken over."""
        expected = dict.fromkeys((*self._hosts, *self._hosts_lost.missing))
        if not self.listed:
            used = listed or self._listener.witnesses(self.name) or self._listener.published(self.name)
            expected = {} if listed or not used else {"": None}
        absent = [host_id for host_id in expected if host_id not in listed]
        over = tuple(self._hosts_lost.missing)
        self._hosts_lost.judge(
            absent, over, witnesses={}, now=_monotonic(), count=len(expected), partial=partial
        )
        accepted = self.listed or not self._hosts_lost.missing
        self.report(MISSING_HOSTS, self._hosts_lost.trouble(len(expected)) if accepted else NO_HOSTS)
        return accepted

    def _judge(self, listed: Mapping[str, contract.Device], *, first: bool, partial: bool) -> tuple[str, ...]:
        """Judge what the absence of devices from a listing means; return the names of those that are lost."""
        expected = dict.fromkeys((*self._devices, *self._devices_lost.missing))
        witnesses = self._listener.witnesses(self.name) if first or expected.keys() - listed.keys() else {}
        # Before its first listing a session expects the devices that are attached and those that are published.
        expected |= dict.fromkeys((*witnesses, *self._listener.published(self.name)) if first else ())
        absent = [name for name in expected if name not in listed and name not in self._reported_devices]
        standing = self._places or self._shares
        withdrawn = standing.withdrawn(tuple(expected)) if standing is not None else frozenset()
        withdrawn = withdrawn.intersection(absent) - witnesses.keys()
        absent = [name for name in absent if name not in withdrawn]
        over = [name for name in self._devices_lost.missing if name not in self._reported_devices]
        lost = self._devices_lost.judge(
            absent, over, witnesses=witnesses, now=_monotonic(), count=len(expected), partial=partial
        )
        return (*lost, *sorted(withdrawn))

    def _judge_missing(self, name: str, now: float) -> None:
        witnesses = self._listener.witnesses(self.name)
        self._lose(self._devices_lost.judge([name], [name], witnesses=witnesses, now=now))

    def _lose(self, names_lost: tuple[str, ...] = ()) -> None:
        """Report which devices are lost, and which are missing now."""
        for name in names_lost:
            device = self._devices.pop(name, None)
            if device is not None:
                self.numbers.remove(device)
                self._tell_of_device(name, device, None)
            else:
                # It was attached or published before this session began, and never listed.
                self._tell("connection", self._listener.connection_changed, self.name)
        count = len(self._devices.keys() | self._devices_lost.missing.keys())
        self.report(MISSING, self._devices_lost.trouble(count))

    def _withdraw(self, name: str) -> None:
        """Take over that a device is shown as another one now, or that a share is no more."""
        self._devices_lost.missing.pop(name, None)
        if name in self._devices:
            self._lose((name,))

    def _find_host(self, host_id: str) -> None:
        """Note that a host that was missing is there."""
        if self._hosts_lost.missing.pop(host_id, None) is not None:
            self.report(MISSING_HOSTS, self._hosts_lost.trouble(len(self._hosts)))

    def _take(self, event: contract.WatchEvent) -> None:
        match event:
            case contract.DeviceChanged(device=device):
                self.learn(device)
            case contract.DeviceGone(device_id=device_id):
                name = names.label(device_id)
                if self._has_namesake(name, device_id):
                    return
                if self._readings.reading:
                    self._reported_devices.add(name)
                if name in self._devices and name not in self._devices_lost.missing:
                    self._judge_missing(name, _monotonic())
            case contract.HostChanged(host=host):
                if self._readings.reading:
                    self._reported_hosts[host.id] = None
                old = self._hosts.get(host.id)
                self._hosts[host.id] = host
                self._find_host(host.id)
                if old is None or hosts.differ(old, host):
                    self._tell("hosts", self._listener.hosts_changed, self.name)
            case contract.OperationChanged(operation=operation):
                self._tell(
                    ("operation", operation.id), self._listener.operation_changed, self.name, operation
                )
            case contract.Bookmark() | contract.Resync():
                return

    def _set_connection(self, *, connected: bool, reason: str, message: str) -> None:
        connection = status.Connection(connected=connected, reason=reason, message=message)
        if connection == self.connection:
            return
        level = logging.INFO if connected else logging.WARNING
        log.log(level, "fabric: %s", message, extra={"fabric": self.name, "reason": reason})
        self.connection = connection
        if connected:
            self.silent_since = None
        elif self.silent_since is None:
            self.silent_since = _monotonic()
        self._tell("connection", self._listener.connection_changed, self.name)


def _named_as_shares(inventory: contract.Inventory) -> tuple[str, ...]:
    return tuple(device.id for device in inventory.devices if names.is_share(device.id))


def _unread(inventory: contract.Inventory) -> str:
    """Return a sentence on the parts of a listing that the manager failed to show; empty without any."""
    if not inventory.unread:
        return ""
    count = len(inventory.unread) - UNREAD_SHOWN_MAX
    more = f"; and {count} more" if count > 0 else ""
    return (
        f"the fabric manager cannot show a part of its listing, whose devices count as they were: "
        f"{'; '.join(inventory.unread[:UNREAD_SHOWN_MAX])}{more}; look at its log, then run `drawbar fabric check`"
    )


def _namesakes(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a sentence on the devices that are not offered since others have their names; empty without any."""
    if not pairs:
        return ""
    clauses = [f"{device} (as {other})" for device, other in pairs[:NAMESAKES_SHOWN_MAX]]
    more = f" and {len(pairs) - NAMESAKES_SHOWN_MAX} more" if len(pairs) > NAMESAKES_SHOWN_MAX else ""
    return (
        f"devices are not offered, for other ones have the same name in Kubernetes: {', '.join(clauses)}{more}; give them "
        "other ids at the fabric manager"
    )


def _lasts(error: errors.FabricError) -> bool:
    """Return whether only a change of the manager, or of another program, helps."""
    return isinstance(error, errors.Misconfigured) or error.reason == redacting_adapter.DEFECT


def _reason(error: errors.FabricError) -> str:
    """Return the error's meaning as a condition's reason: FAILED_PRECONDITION becomes FailedPrecondition."""
    if isinstance(error, errors.InvalidConfiguration):
        return reasons.INVALID_CONFIGURATION
    if error.reason == redacting_adapter.DEFECT:
        return reasons.ADAPTER_DEFECT
    if error.reason == errors.Reason.SOCKET_FORBIDDEN:
        return reasons.SOCKET_FORBIDDEN
    if budget.is_exceeded(error):
        return reasons.LIMIT_EXCEEDED
    return "".join(word.capitalize() for word in error.code.value.split("_"))
