"""The devices and hosts of one fabric, as its manager last reported them.

A listing takes a while, and the watch and the answers of operations go on reporting meanwhile. Their reports of a
device or host after the begin of the listing are kept: the listing may be older, and a watched fabric would not report
them again.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from drawbar.driver import clocks, wording
from drawbar.driver.controller import hosts, names
from drawbar.driver.controller.fabrics import losses, numbers, realised
from drawbar.driver.controller.fabrics.news import News
from drawbar.driver.controller.offers import holdings
from drawbar.fabric import contract

# Devices that their node still shows, but the manager does not list, may stay so.
MISSING_EVERY_SECONDS = 60.0
MISSING = "inventory"
MISSING_HOSTS = "hosts"
NEWCOMERS = "new devices"
NAMESAKES = "device names"
UNREAD = "parts that cannot be read"
UNREAD_SHOWN_MAX = 5
NAMESAKES_SHOWN_MAX = 5
NO_HOSTS = (
    "the fabric manager lists no host at all, although devices were offered or attached before: nothing of its first listing "
    "is taken over until it lists one, or two further listings agree"
)


class _Hosts:
    """The hosts of a fabric.

    Attributes:
        by_id: the last reports by id.
        lost: the missing hosts that keep their earlier state, by id; the empty id means a doubtful first listing
            without hosts.
        reported: the ids of hosts with a report since the present listing began.
    """

    def __init__(self, news: News) -> None:
        self._news = news
        self.by_id: dict[str, contract.Host] = {}
        self.lost = losses.Tracker("hosts")
        self.reported: dict[str, None] = {}

    def judge(self, listed: Mapping[str, contract.Host], *, first: bool, in_use: bool, partial: bool) -> bool:
        """Decide on the hosts that a listing omits; return whether the listing can be taken in.

        Args:
            listed: the hosts of the listing, by id.
            first: whether it is the first listing.
            in_use: whether devices were offered or attached before.
            partial: whether the manager could not read a part of the listing.
        """
        expected = dict.fromkeys((*self.by_id, *self.lost.missing))
        if first:
            expected = {"": None} if not listed and in_use else {}
        absent = [host_id for host_id in expected if host_id not in listed]
        self.lost.judge(
            absent,
            tuple(self.lost.missing),
            reports={},
            now=clocks.loop_seconds(),
            count=len(expected),
            partial=partial,
        )
        accepted = not first or not self.lost.missing
        self._news.report(MISSING_HOSTS, self.lost.trouble(len(expected)) if accepted else NO_HOSTS)
        return accepted

    def take_listing(self, listed: Mapping[str, contract.Host]) -> bool:
        """Take in the hosts of a listing, with the missing ones in their earlier state; return whether anything changed."""
        before, kept = self.by_id, {host_id: self.by_id[host_id] for host_id in self.lost.missing}
        self.by_id = {**listed, **kept}
        return before != self.by_id

    def change(self, host: contract.Host, *, is_listing: bool) -> None:
        """Take in a report of a host."""
        if is_listing:
            self.reported[host.id] = None
        old = self.by_id.get(host.id)
        self.by_id[host.id] = host
        if self.lost.missing.pop(host.id, None) is not None:
            self._news.report(MISSING_HOSTS, self.lost.trouble(len(self.by_id)))
        if old is None or hosts.differ(old, host):
            self._news.tell_hosts()


class Inventory:
    """The state of one fabric.

    Attributes:
        held: the cluster's last holdings of the fabric.
        parts: the parts that are not the manager's devices.
        listed: whether a listing was taken in since the session began.
        listings: the times when listings began.
        numbers: the identifiers of all devices.
        version: the fabric's version at the last listing.
    """

    def __init__(
        self,
        fabric: str,
        news: News,
        *,
        devices_max: int,
        clock: clocks.Clock,
    ) -> None:
        """Begin with an empty state.

        Args:
            fabric: the fabric's name.
            news: the receiver of changes.
            devices_max: the most devices that are taken in.
            clock: the clock of the cluster's holdings.
        """
        self.held = holdings.Holdings()
        self.parts = realised.Parts()
        self.listed = False
        self.listings = losses.Listings()
        self.numbers = numbers.Numbers()
        self.version = ""
        self._fabric = fabric
        self._news = news
        self._devices_max = devices_max
        self._clock = clock
        self._hosts = _Hosts(news)
        self._devices: dict[str, contract.Device] = {}
        self._lost = losses.Tracker()
        # The names of devices with a report since the present listing began.
        self._reported: set[str] = set()
        self._is_listing = False

    @property
    def hosts(self) -> tuple[contract.Host, ...]:
        """Return all hosts, as last reported."""
        return tuple(self._hosts.by_id.values())

    def host(self, host_id: str) -> contract.Host | None:
        """Return the host of that id, as last reported."""
        return self._hosts.by_id.get(host_id)

    @property
    def devices(self) -> Mapping[str, contract.Device]:
        """Return all devices by name, as last reported, with the memory chunks that have DeviceAttachments."""
        return self._devices

    @property
    def missing(self) -> frozenset[str]:
        """Return the names of unlisted devices that are not lost yet, even of some that never were listed."""
        return frozenset(self._lost.missing)

    @property
    def is_missing(self) -> bool:
        """Return whether an unlisted device or host keeps its earlier state."""
        return bool(self._lost.missing or self._hosts.lost.missing)

    @property
    def list_missing_seconds(self) -> float | None:
        """Return the seconds between listings while something is missing, or None while nothing is."""
        if not self.is_missing:
            return None
        undecided = self._lost.undecided or self._hosts.lost.undecided
        return losses.APART_SECONDS if undecided else MISSING_EVERY_SECONDS

    def update_holdings(self, held: holdings.Holdings) -> None:
        """Take in the cluster's present holdings: a missing device may be lost by them, and a part become free."""
        before, self.held = self.held, held
        self.parts.update_holdings(held, arranges=self.listed)
        if held.parts is before.parts:
            return
        for name in self.missing:
            if held.parts.get(name) != before.parts.get(name) and name in self._lost.missing:
                self._judge_missing(name, self._lost.missing[name].counted_at)

    async def read(self, adapter: contract.FabricAdapter) -> None:
        """List the fabric; never called concurrently.

        Raises:
            errors.FabricError: it cannot be read.
        """
        began, self._is_listing = clocks.loop_seconds(), True
        try:
            listed = await adapter.devices()
            listed_hosts = await adapter.hosts()
            if self.parts.are_chosen:
                # With all reports made meanwhile.
                listed = dataclasses.replace(listed, devices=self.parts.visible_parts)
                self._reported.clear()
            is_complete = self._learn_all(listed, listed_hosts) and not listed.unread
            complete = began if is_complete else self.listings.complete
            self.listings = losses.Listings(last=began, complete=complete)
        finally:
            self._is_listing = False
            self._reported.clear()
            self._hosts.reported.clear()

    def take(self, event: contract.WatchEvent) -> None:
        """Take in a report of the watch."""
        match event:
            case contract.DeviceChanged(device=device):
                self.learn(device)
            case contract.DeviceGone(device_id=device_id):
                name = names.label(device_id)
                if self._has_namesake(name, device_id):
                    return
                if self._is_listing:
                    self._reported.add(name)
                if name in self._devices and name not in self._lost.missing:
                    self._judge_missing(name, clocks.loop_seconds())
            case contract.HostChanged(host=host):
                self._hosts.change(host, is_listing=self._is_listing)
            case contract.OperationChanged(operation=operation):
                self._news.tell_operation(operation)
            case contract.Bookmark() | contract.Resync():
                return

    def learn(self, device: contract.Device) -> None:
        """Take in a device from an operation's answer or from the watch."""
        name = names.label(device.id)
        is_reserved = not self.parts.exist and names.is_share(name)
        if is_reserved or self._has_namesake(name, device.id):
            return
        if self._is_listing:
            self._reported.add(name)
        self._put(name, device)

    def withdraw(self, name: str) -> None:
        """Take in that a device is now shown as another one, or that a part no longer exists."""
        self._lost.missing.pop(name, None)
        if name in self._devices:
            self._lose((name,))

    def _has_namesake(self, name: str, device_id: str) -> bool:
        """Return whether another device has that name; it keeps it, and the next listing reports the other one."""
        namesake = self._devices.get(name)
        return namesake is not None and namesake.id != device_id

    def _put(self, name: str, device: contract.Device) -> None:
        if self._lost.missing.pop(name, None) is not None:
            self._lose()
        old = self._devices.get(name)
        if old != device:
            self._devices[name] = device
            self.numbers.put(device)
            self._news.tell_device(name, old, device)

    def _learn_all(self, listing: contract.Inventory, listed_hosts: Iterable[contract.Host]) -> bool:
        """Take in a listing, except for objects with a report since it began; return whether it was taken in."""
        partial, first = bool(listing.unread), not self.listed
        hosts_by_id = {host.id: host for host in listed_hosts}
        hosts_by_id |= {host_id: self._hosts.by_id[host_id] for host_id in self._hosts.reported}
        self.version = listing.version
        self._news.report(UNREAD, _unread(listing))
        in_use = first and bool(self.held.parts or self.held.list_published())
        if not self._hosts.judge(hosts_by_id, first=first, in_use=in_use, partial=partial):
            return False
        listed = self._unambiguous(listing)
        self.listed = True
        lost = self._judge(listed, first=first, partial=partial)
        if self._hosts.take_listing(hosts_by_id) or first:
            self._news.tell_hosts()
        self._lose(lost)
        self._put_all({name: device for name, device in listed.items() if name not in self._reported})
        return True

    def _unambiguous(self, listing: contract.Inventory) -> dict[str, contract.Device]:
        """Return, by name, the listed devices with a name of their own; report the others."""
        held = {name: device.id for name, device in self._devices.items()}
        reserved = self.parts.find_reserved_ids(listing.devices)
        ids = (device.id for device in listing.devices if self.parts.exist or device.id not in reserved)
        shown, namesakes = names.unambiguous(ids, held)
        refused = (*namesakes, *((device_id, "a share") for device_id in reserved))
        self._news.report(NAMESAKES, _namesakes(refused))
        return {names.label(device.id): device for device in listing.devices if device.id in shown}

    def _put_all(self, listed: Mapping[str, contract.Device]) -> None:
        """Take in the devices of a listing; new ones only if there is room, since missing ones keep theirs."""
        room = max(self._devices_max - len(self._devices), 0)
        newcomers = [name for name in listed if name not in self._devices]
        for name, device in listed.items():
            if name in self._devices:
                self._put(name, device)
        for name in newcomers[:room]:
            self._put(name, listed[name])
        left = len(newcomers) - room
        self._news.report(
            NEWCOMERS,
            f"{left} new devices have to wait: with those that are not listed any more the fabric has {self._devices_max}, "
            f"as many as spec.policy.limits.devices allows; wait for two further listings, or raise it (kubectl edit fabric {self._fabric})"
            if left > 0
            else "",
        )

    def _judge(self, listed: Mapping[str, contract.Device], *, first: bool, partial: bool) -> tuple[str, ...]:
        """Decide on the devices that a listing omits; return the names of the lost ones."""
        expected = dict.fromkeys((*self._devices, *self._lost.missing))
        is_whole = not first and expected.keys() <= listed.keys()
        reports = {} if is_whole else self.held.reports(self._clock())
        # Before its first listing, a session expects the attached and the published devices.
        expected |= dict.fromkeys((*reports, *self.held.list_published()) if first else ())
        absent = [name for name in expected if name not in listed and name not in self._reported]
        withdrawn = self.parts.withdrawn(tuple(expected)).intersection(absent) - reports.keys()
        absent = [name for name in absent if name not in withdrawn]
        over = [name for name in self._lost.missing if name not in self._reported]
        lost = self._lost.judge(
            absent, over, reports=reports, now=clocks.loop_seconds(), count=len(expected), partial=partial
        )
        return (*lost, *sorted(withdrawn))

    def _judge_missing(self, name: str, now: float) -> None:
        reports = self.held.reports(self._clock())
        self._lose(self._lost.judge([name], [name], reports=reports, now=now))

    def _lose(self, names_lost: tuple[str, ...] = ()) -> None:
        """Report the lost and the missing devices."""
        for name in names_lost:
            device = self._devices.pop(name, None)
            if device is not None:
                self.numbers.remove(device)
                self._news.tell_device(name, device, None)
            else:
                # The device was attached or published before this session began, and never listed.
                self._news.tell_connection()
        count = len(self._devices.keys() | self._lost.missing.keys())
        self._news.report(MISSING, self._lost.trouble(count))


def _unread(inventory: contract.Inventory) -> str:
    """Return a sentence on the parts of a listing that the manager failed to show; empty without any."""
    if not inventory.unread:
        return ""
    return (
        f"the fabric manager cannot show a part of its listing, whose devices count as they were: "
        f"{wording.join_some(inventory.unread, UNREAD_SHOWN_MAX, '; ')}; look at its log, then run `drawbar fabric check`"
    )


def _namesakes(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a sentence on the devices that are not offered because others have their names; empty without any."""
    if not pairs:
        return ""
    named = wording.join_some([f"{device} (as {other})" for device, other in pairs], NAMESAKES_SHOWN_MAX)
    return (
        f"devices are not offered, for other ones have the same name in Kubernetes: {named}; give them "
        "other ids at the fabric manager"
    )
