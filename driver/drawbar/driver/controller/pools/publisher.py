"""The publisher of the fabrics' pools, with one write for each action of `pools.desired`.

Everything is computed again from the slices and the fabric's reports. Only three things are remembered between rounds:
whether the API server keeps the fields we need, when the taints of failures were first seen, and which slices are
refused. A refused slice delays only itself (`slices.retries`).
"""

import asyncio
import datetime
import logging
from collections.abc import Iterable, Mapping
from typing import assert_never

import msgspec

from drawbar.driver import clocks, sightings
from drawbar.driver.api import fabrics, slices
from drawbar.driver.catalogue import taints
from drawbar.driver.controller import attachment_index, damping, maintenance, names
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller.fabrics import sessions
from drawbar.driver.controller.offers import group, selection
from drawbar.driver.controller.pools import causes, desired, fabric_state, health
from drawbar.driver.kube import client, mirror
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.slices import encoding, pool_writes, retries
from drawbar.driver.slices import publisher as slice_publisher
from drawbar.fabric import contract

log = logging.getLogger(__name__)

# An API server is upgraded, or its gates are set, while the controller runs.
PROBE_EVERY = datetime.timedelta(minutes=10)
# An API server may write these in another way.
_ADOPTED = frozenset({"attributes", "capacity"})


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of the plan of a fabric's pools, besides its slices: Fabrics, sessions, attachments, claims and Maintenances."""

    fabrics: mirror.Mirror[fabrics.Fabric]
    sessions: sessions.Sessions
    placed: attachment_index.Index
    allocated: claim_index.Index
    maintenance: maintenance.Index


class Publisher:
    """The one writer of fabric pools."""

    def __init__(
        self,
        api: client.Client,
        *,
        driver: str,
        published: mirror.Mirror[slices.ResourceSlice],
        sources: Sources,
        clock: clocks.Clock,
        time_of_day: clocks.Clock,
        store: slice_publisher.Store | None = None,
    ) -> None:
        self._store = store or slice_publisher.Store(api)
        self._publisher = slice_publisher.Publisher(self._store, published)
        self._driver = driver
        self._sources = sources
        self._clock = clock
        self._time_of_day = time_of_day
        self._locks: dict[str, asyncio.Lock] = {}
        self._kept: encoding.Kept | None = None
        self._probed_at: datetime.datetime | None = None
        self._left_out: dict[str, tuple[str, ...]] = {}
        # By fabric with too many pools.
        self._withheld: dict[str, desired.Withheld] = {}
        self._retries: dict[str, retries.Retries] = {}
        # By fabric and name: every node of a cluster has slices of this driver too.
        self._slices: dict[str, dict[str, slices.ResourceSlice]] = {}
        # By fabric and the name of a slice with composites; these are queried with every device.
        self._composites: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {}
        # By fabric and failed device.
        self._failed: sightings.Sightings[tuple[str, str]] = sightings.Sightings()
        # By fabric: the health of its manager and devices.
        self._health: dict[str, health.Health] = {}

    @property
    def dropped_fields(self) -> tuple[str, ...]:
        """Return the fields that the API server does not keep, as far as they were tried."""
        return self._kept.dropped if self._kept is not None else ()

    @property
    def keeps_conditions(self) -> bool:
        """Return whether the API server keeps binding conditions; False before the first try."""
        return self._kept is not None and self._kept.conditions

    def left_out(self, fabric: str) -> tuple[str, ...]:
        """Return the names of the devices whose taints had no room when the fabric was last published."""
        return self._left_out.get(fabric, ())

    def withheld(self, fabric: str) -> desired.Withheld | None:
        """Return the pools beyond the limit of slices when the fabric was last published, or None."""
        return self._withheld.get(fabric)

    def find_refused(self, fabric: str) -> str:
        """Return the refused slices of the fabric with the reasons; empty if there are none."""
        return self._retries[fabric].message() if fabric in self._retries else ""

    def error_of(self, fabric: str, device: str) -> kube_errors.KubeError | None:
        """Return why the news of a device are not published, or None if they are."""
        return self._retries[fabric].error_of(device) if fabric in self._retries else None

    async def publish(self, fabric: str) -> float | None:
        """Publish the due changes; return the seconds until a taint may be lifted, or a refused slice be tried again, or None.

        Raises:
            kube_errors.KubeError: the view was stale, or the API server does not answer; try again after a pause.
        """
        # A taint and a new inventory may want the same slice at once: one round after the other.
        async with self._locks.setdefault(fabric, asyncio.Lock()):
            kept, now = await self._what_is_kept(), self._clock()
            observed = self._observe(fabric, kept, now)
            if observed is None:
                return None
            again: list[float] = []
            left_out: tuple[str, ...] = ()
            self._withheld.pop(fabric, None)
            writes: list[pool_writes.Write] = []
            for action in desired.plan(observed, now):
                match action:
                    case desired.LookAgain(at=moment):
                        again.append(max(damping.LOOK_AGAIN_SECONDS, (moment - now).total_seconds()))
                    case desired.LeftOut(devices=devices):
                        left_out = devices
                    case desired.Withheld():
                        self._withheld[fabric] = action
                    case pool_writes.Create() | pool_writes.Replace() | pool_writes.Delete():
                        writes.append(action)
                    case _:
                        assert_never(action)
            self._left_out[fabric] = left_out
            held = (
                self._health[fabric].compute_delay(clocks.loop_seconds()) if fabric in self._health else None
            )
            left = await self._write(fabric, writes)
            return min((moment for moment in (*again, held, left) if moment is not None), default=None)

    async def _write(self, fabric: str, writes: list[pool_writes.Write]) -> float | None:
        """Carry out the due writes; return the seconds until a refused one is due, or None."""
        if not writes:
            self._retries.pop(fabric, None)
            return None
        delayed = self._retries.setdefault(fabric, retries.Retries(asyncio.get_running_loop().time))
        delayed.begin(writes)
        published = self._slices.get(fabric, {})
        for action in writes:
            before = published.get(action.slice.metadata.name)
            if delayed.has_to_wait(action, before):
                continue
            try:
                stored = await self._publisher.write(action)
            except retries.OF_ONE_SLICE as error:
                delayed.refuse(action, before, error)
                log.log(kube_errors.level(error), "slice not published: %s", error, extra={"fabric": fabric})
                if delayed.is_over:
                    break
                continue
            delayed.accept(action)
            if stored is not None:
                self._compare(action.slice, stored)
        if delayed.stale is not None:
            raise delayed.stale
        return delayed.seconds_left()

    def _observe(
        self, name: str, kept: encoding.Kept, now: datetime.datetime
    ) -> fabric_state.FabricState | None:
        """Return the observed state for the plan, or None if there is no such Fabric and nothing published."""
        fabric, view = self._sources.fabrics.get(name), self._sources.sessions.get(name)
        placed, published = self._sources.placed, self.in_fabric(name)
        failed_since = {
            device: since
            for each in published
            for device in causes.failures(self._driver, each)
            if (since := self._failed.since((name, device))) is not None
        }
        if fabric is None and self._sources.fabrics.is_unreadable(name):
            return None
        if fabric is None:
            self._health.pop(name, None)
            # The fabric's slices are left over.
            withdrawal = fabric_state.withdrawal(self._driver, name, published, self._time_of_day())
            return (
                msgspec.structs.replace(withdrawal, failed_since=failed_since)
                if withdrawal is not None
                else None
            )
        scope = self._sources.maintenance.scope(name)
        report = fabric_state.Facts(
            fabric=fabric, devices=None, silent_seconds=0.0, probations={}, maintenance=scope
        )
        if view is not None:
            probation = datetime.timedelta(seconds=fabric.spec.policy.probation_seconds)
            refused = view.pairs.ends(probation, now)
            steady, seconds = self._health.setdefault(name, health.Health()), clocks.loop_seconds()
            report = fabric_state.Facts(
                fabric=fabric,
                devices=steady.damp_devices(self.find_offered(name), seconds) if view.has_listing else None,
                not_offered=self.find_not_offered(name),
                silent_seconds=steady.measure_silence(
                    view.silent_seconds, fabric.spec.policy.unreachable_grace_seconds, seconds
                ),
                probations=view.faults.probations(probation, now),
                failures=view.faults.failures(),
                missing=view.missing,
                chooses=view.inventory.parts.are_chosen,
                worn=view.erasures.find_exhausted(fabric.spec.policy.erases_per_device_per_day, now),
                maintenance=scope,
                refused=tuple(refused),
                refused_until=min(refused.values(), default=None),
                allocated_pools=self._sources.allocated.pools(name),
                made={
                    device.id: view.inventory.parts.made_bytes(device, view.mark)
                    for device in (self.find_offered(name) if view.inventory.parts.are_carved else ())
                    if device.carving is not None and device.carving.is_pool
                },
            )
        observed = fabric_state.observe(
            self._driver,
            report,
            placed.in_fabric(name),
            published,
            kept,
            date=self._time_of_day(),
            overdue=placed.overdue(name, now),
        )
        return msgspec.structs.replace(observed, failed_since=failed_since)

    async def _what_is_kept(self) -> encoding.Kept:
        """Return the fields that the API server keeps, probed at most `PROBE_EVERY` ago."""
        now = self._clock()
        if self._kept is not None and self._probed_at is not None and now - self._probed_at < PROBE_EVERY:
            return self._kept
        kept = await self._store.find_kept_fields(self._driver)
        if kept != self._kept:
            extra = {"taints": kept.form, "dropped": ",".join(kept.dropped)}
            log.log(logging.WARNING if kept.dropped else logging.INFO, "probed", extra=extra)
        self._kept, self._probed_at = kept, now
        return kept

    def note_change(self, old: slices.ResourceSlice | None, new: slices.ResourceSlice | None) -> None:
        """Take in a change of a published slice."""
        for published_slice in (old, new):
            fabric = fabric_state.fabric_of(published_slice)
            if published_slice is None or fabric is None or published_slice.spec.driver != self._driver:
                continue
            by_name, name = self._slices.setdefault(fabric, {}), published_slice.metadata.name
            of_fabric = self._composites.setdefault(fabric, {})
            if published_slice is new:
                by_name[name] = published_slice
                of_fabric[name] = group.find_published_members([published_slice])
            else:
                by_name.pop(name, None)
            if published_slice is not new or not of_fabric[name]:
                of_fabric.pop(name, None)
            for indexed in (self._slices, self._composites):
                if not indexed[fabric]:
                    del indexed[fabric]
            failed = causes.failures(self._driver, new)
            for name in causes.failures(self._driver, old).keys() | failed.keys():
                self._failed.see((fabric, name), failed.get(name), self._clock())

    def in_fabric(self, fabric: str) -> tuple[slices.ResourceSlice, ...]:
        """Return the fabric's published slices."""
        return tuple(self._slices.get(fabric, {}).values())

    def find_not_offered(self, fabric: str) -> frozenset[str]:
        """Return the names of the listed devices outside of the Fabric's offer, even those with a claim."""
        view = self._sources.sessions.get(fabric)
        if view is None or view.spec.offer.is_everything:
            return frozenset()
        attached = {attachment.spec.device for attachment in self._sources.placed.in_fabric(fabric)}
        return selection.not_offered(
            view.spec.offer,
            view.devices,
            held=attached | self._find_claimed_names(fabric),
            published=_models(self.in_fabric(fabric), self.composites(fabric)),
            missing=view.missing,
        )

    def find_offered(self, fabric: str) -> tuple[contract.Device, ...]:
        """Return the listed devices that may be published: those in the offer, and those with a claim."""
        view, beyond = self._sources.sessions.get(fabric), self.find_not_offered(fabric)
        if view is None or not beyond:
            return view.devices if view is not None else ()
        withdrawn = beyond - self._find_claimed_names(fabric)
        return tuple(device for device in view.devices if names.label(device.id) not in withdrawn)

    def _find_claimed_names(self, fabric: str) -> set[str]:
        """Return the names of the fabric's devices that are attached for a claim, or have one, with composites' members."""
        attached = {
            attachment.spec.device
            for attachment in self._sources.placed.in_fabric(fabric)
            if not attachment.held_by_hand
        }
        allocated, members = self._sources.allocated.pools(fabric).keys(), self.composites(fabric)
        return {*attached, *allocated, *(member for name in allocated for member in members.get(name, ()))}

    def composites(self, fabric: str) -> dict[str, tuple[str, ...]]:
        """Return, by name, the members of the fabric's published composites."""
        return {
            name: members
            for by_name in self._composites.get(fabric, {}).values()
            for name, members in by_name.items()
        }

    def has_composites(self, fabric: str) -> bool:
        """Return whether a composite of the fabric is published."""
        return fabric in self._composites

    def is_tainted(self, fabric: str, device: str) -> bool:
        """Return whether the scheduler avoids a device with a failed attach: it is tainted, or unpublished."""
        keys = {f"{self._driver}/{key}" for key in (taints.ATTACH_FAILED.key, taints.LOST.key)}
        found = encoding.taints_of(self.in_fabric(fabric), device)
        return found is None or any(taint.key in keys for taint in found)

    def _compare(self, desired: slices.ResourceSlice, stored: slices.ResourceSlice) -> None:
        """Raise a conflict, and probe again later, if the API server dropped a field that it kept before."""
        lost = encoding.find_lost_fields(desired.spec, stored.spec) - {*self.dropped_fields, *_ADOPTED}
        if lost:
            self._kept = None
            raise kube_errors.Conflict(
                f"ResourceSlice {stored.metadata.name}: the API server dropped {', '.join(sorted(lost))}"
            )


def _models(
    published: Iterable[slices.ResourceSlice], composites: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """Return, by name, the model of each device in a fabric's slices, with the members of composites."""
    models: dict[str, str] = {}
    for device in (each for listed in published for each in listed.spec.devices):
        attribute = device.attributes.get("model") or device.attributes.get("class")
        model = (attribute.string or "") if attribute is not None else ""
        models |= dict.fromkeys((device.name, *composites.get(device.name, ())), model)
    return models
