"""The other drivers, device plugins and processes with devices of this node, for the local pool and the attachments.

Other drivers' ResourceSlices are watched with the field selector `spec.nodeName`, so a node sees only its own. At most
`SLICES_MAX` are kept. If there are more, devices that may be in one of the others are not offered. Extended resources are
read from the Node, because the daemon may not watch Nodes. This happens only if a device is to be offered that a device
plugin may have, and at most once in `NODE_SECONDS`.

The left-out devices are stored in `left-out.json` in the driver's directory at the kubelet. At the next start they stay
left out for the quiet time: after a reboot of the node, a vendor's driver may start later than this daemon.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from drawbar.driver import containment
from drawbar.driver.api import deviceplugins, leftout, otherslices
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import client, events, kinds, mirror
from drawbar.driver.node.classes import users
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import coexistence, openers, residents, selections

log = logging.getLogger(__name__)

SLICES_MAX = 128
NODE_SECONDS = 30.0
QUIET_JITTER = 1.2
FILE = "left-out.json"
FILE_BYTES = 1024 * 1024
PAGE = "docs/beside-other-drivers.md"


class Neighbours:
    """The other components of this node.

    Attributes:
        left_out: the devices left to them.
        again_seconds: the seconds until the next check if nothing changes before; None: never.
        conflicts: signs that another component has a device in use by a claim here, by the device's name.
    """

    def __init__(
        self,
        api: client.Client,
        *,
        driver: str,
        node_name: str,
        selection: selections.Selection,
        host: users.Host,
        directory: Path,
        recorder: events.Recorder,
        changed: Callable[[], None],
        clock: Callable[[], float],
        contained: containment.Containment | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        self._api = api
        self._driver = driver
        self._node_name = node_name
        self._wanted = selection
        rows = map(deviceplugins.parse, selection.plugin_resources)
        self._rows = tuple(row for row in rows if isinstance(row, deviceplugins.Row))
        self._host = host
        self._file = directory / FILE
        self._recorder = recorder
        self._changed = changed
        self._clock = clock
        self._slices = mirror.Mirror(
            api,
            kinds.SLICE,
            into=otherslices.Slice,
            changed=self._slice_changed,
            fields=f"spec.nodeName={node_name}",
            keep=self._has_room,
            contained=contained,
        )
        # Two drivers that leave devices to each other must not keep taking them back at the same moment.
        self._quiet_seconds = selection.quiet_seconds * (jitter or random.Random()).uniform(1.0, QUIET_JITTER)  # noqa: S311
        self._slices.report_unreadable(lambda _old, _new: changed())
        self._names: set[str] = set()
        self._overflows = asyncio.Event()
        self._room = asyncio.Event()
        self._offered: tuple[otherslices.OtherDevice, ...] | None = None
        self._resources: frozenset[str] = frozenset()
        self._node_uid = ""
        self._node_read_at = -NODE_SECONDS
        self._unknown: tuple[str, ...] = ()
        self._memories: Mapping[str, coexistence.Memory] | None = None
        self.left_out: tuple[leftout.LeftOut, ...] = ()
        self.conflicts: Mapping[str, coexistence.Sign] = {}
        self.again_seconds: float | None = None

    @property
    def worker(self) -> str:
        """Return the name of the watch among the daemon's workers."""
        return self._slices.worker

    @property
    def synced(self) -> asyncio.Event:
        """Return an event that is set once the other drivers' slices are here."""
        return self._slices.synced

    def find_offered(self) -> tuple[otherslices.OtherDevice, ...]:
        """Return the devices of other drivers on this node."""
        if self._offered is None:
            self._offered = tuple(otherslices.devices(self._slices))
        return self._offered

    def count_left_out(self) -> dict[str, float]:
        """Return the number of left-out devices, by `leftout.Why`."""
        counted = Counter(each.why for each in self.left_out)
        return {str(why): float(counted[why]) for why in leftout.Why}

    async def run(self) -> None:
        """Follow the slices until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._slices.run(), name="other-slices")
            while True:
                await self._overflows.wait()
                await self._room.wait()
                # Some slices were skipped, since there was no room.
                self._overflows.clear()
                await self._slices.renew()
                self._changed()

    async def _find_openers(self, cards: Collection[model.Card]) -> dict[str, str]:
        return await asyncio.to_thread(openers.find_openers, self._host, cards)

    async def judge(
        self, candidates: Collection[residents.Resident], held: Collection[str], offered: Collection[str]
    ) -> Mapping[str, str]:
        """Return why a device is left to another component, by its name. A device in use by a claim is never left out.

        Args:
            candidates: the devices to offer otherwise.
            held: names of the devices in use by a claim here.
            offered: names of the devices that are offered now.

        Raises:
            errors.KubeError: the Node cannot be read.
        """
        judged = [each for each in candidates if not self._wanted.is_offered_anyway(each.name)]
        has_plugins = any(
            cards.has(function.vendor, function.device_class)
            for row in (*self._rows, *deviceplugins.ROWS)
            for cards in row.cards
            for each in judged
            for function in each.card.functions
        )
        if has_plugins and self._clock() - self._node_read_at >= NODE_SECONDS:
            await self._read_node()
        free = [each.card for each in judged if each.name not in held]
        opened = await self._find_openers(free) if free else {}
        seen = self._build_components()
        signs = {
            each.name: sign
            for each in judged
            if (sign := coexistence.find_sign(each, seen, self._rows, opened)) is not None
        }
        if self._memories is None:
            self._memories = await asyncio.to_thread(self._recall)
        decision = coexistence.decide(
            {name: sign for name, sign in signs.items() if name not in held},
            self._memories,
            offered,
            self._clock(),
            quiet_seconds=self._quiet_seconds,
        )
        self._memories = decision.memories
        looks = [NODE_SECONDS] if has_plugins or opened else []
        looks += [decision.again_seconds] if decision.again_seconds is not None else []
        self.again_seconds = min(looks, default=None)
        names = {each.name for each in judged} - set(held)
        left = {name: sign for name, sign in decision.left_out.items() if name in names}
        await self._report(left, {name: sign for name, sign in signs.items() if name in held})
        return {name: sign.reason for name, sign in left.items()}

    def _build_components(self) -> coexistence.Components:
        incomplete = ""
        if self._overflows.is_set():
            incomplete = f"more than {SLICES_MAX} ResourceSlices of other drivers name this node, and it may be in one that was not read"
        elif self._slices.unreadable:
            names = ", ".join(sorted(name for _, name in self._slices.unreadable)[:3])
            incomplete = f"it may be in a ResourceSlice of this node that cannot be read: {names}"
        return coexistence.Components(
            offered=self.find_offered(), resources=self._resources, incomplete=incomplete
        )

    def _has_room(self, item: otherslices.Slice) -> bool:
        if item.spec.driver == self._driver:
            return False
        if item.metadata.name not in self._names and len(self._names) >= SLICES_MAX:
            if not self._overflows.is_set():
                log.warning(
                    "more ResourceSlices of other drivers name this node than are read; find their driver with "
                    "kubectl get resourceslices --field-selector spec.nodeName=%s",
                    self._node_name,
                    extra={"most": SLICES_MAX},
                )
            self._room.clear()
            self._overflows.set()
            return False
        self._names.add(item.metadata.name)
        return True

    def _slice_changed(self, old: otherslices.Slice | None, new: otherslices.Slice | None) -> None:
        if new is None and old is not None:
            self._names.discard(old.metadata.name)
            self._room.set()
        if old is None or new is None or old.spec != new.spec:
            self._offered = None
            self._changed()

    async def _read_node(self) -> None:
        node = await self._api.read(kinds.NODE, self._node_name, into=otherslices.Node)
        self._node_read_at, self._node_uid = self._clock(), node.metadata.uid
        self._resources = node.resources
        unknown = coexistence.unknown_resources(self._build_components(), self._rows)
        if unknown != self._unknown and unknown:
            log.warning(
                "extended resources of this node belong to device plugins that are not known: %s; if one hands out PCI devices, "
                "name its cards in localPool.pluginResources",
                ", ".join(unknown[:8]),
            )
        self._unknown = unknown

    async def _report(
        self, left: Mapping[str, coexistence.Sign], conflicts: Mapping[str, coexistence.Sign]
    ) -> None:
        """Report the news: in the file, as Events on the Node, and in the log."""
        listed = tuple(
            leftout.LeftOut(device=name, why=sign.why, reason=sign.reason)
            for name, sign in sorted(left.items())
        )
        before = {each.device for each in self.left_out}
        fresh = [each for each in listed if each.device not in before and each.why != leftout.Why.PROCESS]
        twice = {name: sign for name, sign in conflicts.items() if sign.why is not leftout.Why.PROCESS}
        if fresh:
            await self._emit(
                reasons.DEVICES_LEFT_TO_OTHERS,
                False,
                f"{self._driver} does not offer {_summarise(fresh)}; {PAGE} has the settings",
            )
        for name in sorted(twice.keys() - self.conflicts.keys()):
            message = (
                f"{self._driver} has given {name} to a claim, and {twice[name].reason}: keep the other component from it, "
                f"see {PAGE}"
            )
            log.warning("%s", message, extra={"device": name})
            await self._emit(reasons.DEVICE_OFFERED_TWICE, True, message)
        self.conflicts = twice
        if listed != self.left_out:
            self.left_out = listed
            await asyncio.to_thread(self._remember)

    async def _emit(self, reason: str, is_warning: bool, message: str) -> None:
        if not self._node_uid:
            await self._read_node()
        record = self._recorder.node_warning if is_warning else self._recorder.node_normal
        record(self._node_name, self._node_uid, reason=reason, message=message)

    def _recall(self) -> dict[str, coexistence.Memory]:
        """Return the devices left out before this start, as if seen just now."""
        now = self._clock()
        until = now + self._quiet_seconds
        try:
            with self._file.open("rb") as opened:
                listed = leftout.decode(opened.read(FILE_BYTES), coexistence.DEVICES_MAX)
        except OSError:
            return {}
        whys = {str(why): why for why in (leftout.Why.DRIVER, leftout.Why.PLUGIN)}
        self.left_out = tuple(each for each in listed if each.why in whys)
        return {
            each.device: coexistence.Memory(
                sign=coexistence.Sign(why=whys[each.why], reason=each.reason),
                since=now,
                until=until,
                left_out=True,
            )
            for each in self.left_out
        }

    def _remember(self) -> None:
        draft = self._file.with_suffix(".tmp")
        try:
            draft.write_bytes(leftout.encode(self.left_out, coexistence.DEVICES_MAX).encode() or b"[]")
            draft.replace(self._file)
        except OSError as error:
            log.warning(
                "cannot write %s: %s; after a restart, these devices may be offered for a moment",
                self._file,
                error.strerror,
            )


def _summarise(listed: Collection[leftout.LeftOut]) -> str:
    first, *rest = listed
    more = f", nor {len(rest)} more devices" if rest else ""
    return f"{first.device}, since {first.reason}{more}"
