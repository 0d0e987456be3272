"""Publishes the node's own pools, one write per action of `plan`.

The kubelet deletes every slice of its node when it starts, and a driver's when its last plugin has been gone for 30 s:
a deletion is answered at once, and again and again after growing pauses, should another instance of ours with another
configuration delete what this one publishes. Every few minutes the slices are listed anew, past our own copy of them:
publishers that trusted their watch alone have lost slices for good (kubernetes/kubernetes#140011).

A write is compared with what the API server stored. What it dropped is adopted, said once, and asked for again at the
next full round with a dry run: the gate may have been turned on since. Where the null device is offered, that is asked
before the first write, too, so a start leaves its copies as they are.
"""

import asyncio
import logging
import random
from pathlib import Path
from typing import Protocol

from drawbar.cdi import errors as cdi_errors
from drawbar.cdi import files
from drawbar.driver import backoff, clocks, containment
from drawbar.driver.api import core, leftout, meta, nodepools, slices
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import client, events, exclusions, kinds, mirror
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.local import nulls, plan
from drawbar.driver.slices import encoding, retries
from drawbar.driver.slices import plan as slice_plan
from drawbar.driver.slices import publisher as slice_publisher

log = logging.getLogger(__name__)

RESYNC_SECONDS = 300.0
RESYNC_JITTER = 0.2
# What changes together is written together: the functions of a card, all slices that a kubelet wipes.
SETTLE_SECONDS = 0.02
FAILED_FIRST_SECONDS = 0.2
FAILED_MAX_SECONDS = 60.0
DISTURBED_FIRST_SECONDS = 0.5
DISTURBED_MAX_SECONDS = 30.0
# A kubelet wipes once per start; more often than this is another client that disagrees.
CALM_SECONDS = 60.0


class Pace:
    """The pauses of one publisher; times are seconds of a clock that only goes forward.

    A failed round is made again after a pause that grows with the failures in a row. A change by another writer, such as
    the wipe of a kubelet that starts, is answered at once; if it happens again soon after, then after a growing pause: two
    writers who disagree must not chase each other.
    """

    def __init__(self, *, jitter: random.Random) -> None:
        self._failures = backoff.Backoff(FAILED_FIRST_SECONDS, FAILED_MAX_SECONDS, uniform=jitter.uniform)
        self._disturbances = backoff.Backoff(
            DISTURBED_FIRST_SECONDS, DISTURBED_MAX_SECONDS, uniform=jitter.uniform
        )
        self._pause = 0.0
        self._disturbed_at = float("-inf")
        self._counted_at = float("-inf")

    def succeeded(self) -> None:
        """A round went through."""
        self._failures.reset()

    def failed(self) -> float:
        """A round failed; gives the pause in seconds."""
        return self._failures.failed()

    def disturbed(self, now: float) -> None:
        """Another client deleted or changed a slice of ours. What happens together counts once; what goes on, again."""
        if now - self._disturbed_at > CALM_SECONDS:
            self._disturbances.reset()
            self._pause, self._counted_at = 0.0, now
        elif now - self._counted_at > DISTURBED_FIRST_SECONDS:
            self._pause, self._counted_at = self._disturbances.failed(), now
        self._disturbed_at = now

    def disturbed_pause(self, now: float) -> float:
        """Seconds to wait before it is written again; none after the first time in a long while."""
        return self._pause if now - self._disturbed_at <= CALM_SECONDS else 0.0


# With these dropped, something else is published.
_DECISIVE = frozenset({"taints", encoding.SHARING}) | encoding.CONDITIONS
_INFORMATION = "taints of effect None"


def _monotonic() -> float:
    return asyncio.get_running_loop().time()


class Devices(Protocol):
    """What is published; `pool.LocalPool`."""

    async def survey(self, published_slices: tuple[slices.ResourceSlice, ...]) -> tuple[plan.Offer, ...]:
        """Return what should be published now; `published_slices` is what is or was published."""
        ...

    def watch(self, keys: frozenset[verdicts.Key]) -> None:
        """Have the health of just these devices watched."""
        ...

    @property
    def left_out(self) -> tuple[leftout.LeftOut, ...]:
        """The devices that the last survey left to other components."""
        ...

    @property
    def again_seconds(self) -> float | None:
        """When the next survey is due, if nothing changes before; None: never."""
        ...


class Publisher:
    """The one writer of the pools of this node."""

    def __init__(
        self,
        api: client.Client,
        *,
        driver: str,
        node_name: str,
        devices: Devices,
        time_of_day: clocks.Clock,
        null: nulls.NullDevice,
        recorder: events.Recorder,
        resync_seconds: float = RESYNC_SECONDS,
        jitter: random.Random | None = None,
        contained: containment.Containment | None = None,
    ) -> None:
        self._contained = contained or containment.Uncontained()
        self._api = api
        self._driver = driver
        self._node_name = node_name
        self._devices = devices
        self._time_of_day = time_of_day
        self._null = null
        self._recorder = recorder
        self._resync_seconds = resync_seconds
        self._jitter = jitter or random.Random()  # noqa: S311 - spreads lists, guards nothing
        self._wake = asyncio.Event()
        self._pace = Pace(jitter=self._jitter)
        self._owner: meta.OwnerReference | None = None
        self._remembered: dict[str, slices.ResourceSlice] = {}
        self._dropped: frozenset[str] = frozenset()
        self._writing = ""
        self._holds_back = False
        # By pool what was written last, and the version that it had then.
        self._settled: dict[str, tuple[slices.SliceSpec, dict[str, str], str]] = {}
        self._foreign: frozenset[str] = frozenset()
        self._fields = f"spec.driver={driver},spec.nodeName={node_name}"
        self._published = mirror.Mirror(
            api,
            kinds.SLICE,
            into=slices.ResourceSlice,
            changed=self._seen,
            fields=self._fields,
            contained=self._contained,
            recorder=recorder,
        )
        self._published.report_unreadable(self._unreadable_changed)
        self._writer = slice_publisher.Publisher(slice_publisher.Store(api), self._published)
        self._retries = retries.Retries(_monotonic, uniform=self._jitter.uniform)
        self._refused = ""

    def count_unreadable(self) -> dict[str, float]:
        """Return the number of the node's slices that cannot be read, by the plural of their kind."""
        return mirror.count_unreadable((self._published,))

    def _unreadable_changed(
        self, _old: exclusions.Unreadable | None, new: exclusions.Unreadable | None
    ) -> None:
        if new is not None:
            self._recorder.unreadable(new)

    @property
    def dropped_fields(self) -> tuple[str, ...]:
        """What the API server does not take or keep of a device, as far as it was tried."""
        return tuple(sorted(self._dropped))

    @property
    def published(self) -> tuple[slices.ResourceSlice, ...]:
        """The pools as they are."""
        return tuple(
            published_slice
            for published_slice in self._published
            if nodepools.is_pool(published_slice.spec.pool.name, self._node_name)
        )

    def changed(self) -> None:
        """Look again soon: the inventory, an attachment, or what claims hold has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Publish until cancelled; what is published then stays."""
        async with asyncio.TaskGroup() as tasks:
            self._contained.start(tasks, self._published.worker, self._published.run)
            self._contained.start(tasks, "local-pool", self._publish)

    async def _publish(self) -> None:
        loop = asyncio.get_running_loop()
        await self._published.synced.wait()
        resync_at, is_asked = _next_resync(self._resync_seconds, self._jitter), not self._null.enabled
        while True:
            attempt = self._contained.attempt("local-pool", expected=kube_errors.KubeError)
            try:
                with attempt:
                    if not is_asked:
                        await self._ask()
                        is_asked = True
                    if loop.time() >= resync_at:
                        await self._relist()
                        resync_at = _next_resync(self._resync_seconds, self._jitter)
                    self._wake.clear()
                    await self._round()
                    self._pace.succeeded()
                due = (resync_at - loop.time(), self._retries.seconds_left(), self._devices.again_seconds)
                pause = min(seconds for seconds in due if seconds is not None)
                pause = self._pace.failed() if attempt.failure else pause
            except kube_errors.KubeError as error:
                pause = self._pace.failed()
                log.warning(
                    "local pool not published, trying again: %s", error, extra={"seconds": round(pause, 2)}
                )
            await self._wait(pause)

    async def _wait(self, seconds: float) -> None:
        """Until something changed, or for so long; then what else changes with it has a moment to do so."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(
            max(SETTLE_SECONDS, self._pace.disturbed_pause(asyncio.get_running_loop().time()))
        )

    async def _round(self) -> None:
        """One look at what should be there and at what is, and the writes between them."""
        remembered = tuple(self._remembered.values())
        nothing = nulls.offers(self._null, shared=encoding.SHARING not in self._dropped)
        offers = (*await self._devices.survey(remembered), *nothing)
        self._holds_back = any(offer.device.binding_conditions for offer in offers)
        published = tuple(self._published)
        self._say_foreign(published)
        left_out = self._devices.left_out
        if not offers and not left_out and not self.published:
            self._devices.watch(frozenset())
            return
        observed = plan.Observed(
            driver=self._driver,
            node_name=self._node_name,
            owner=await self._node(),
            offers=offers,
            published=published,
            remembered=remembered,
            keeps_taints="taints" not in self._dropped,
            informs=_INFORMATION not in self._dropped,
            left_out=left_out,
            keeps_conditions=encoding.CONDITIONS.isdisjoint(self._dropped),
        )
        # Also what is not published for its health's sake: it is to come back.
        self._devices.watch(plan.keys(observed))
        writes = [
            action for action in plan.plan(observed, self._time_of_day()) if not self._is_settled(action)
        ]
        self._retries.begin(writes)
        for action in writes:
            before = self._published.get(action.slice.metadata.name)
            if self._retries.has_to_wait(action, before):
                continue
            try:
                dropped = await self._write(action)
            except retries.OF_ONE_SLICE as error:
                # A refused slice delays itself, and no other one.
                self._retries.refuse(action, before, error)
                if self._retries.is_over:
                    break
                continue
            self._retries.accept(action)
            if dropped:
                # Decided for an API server that keeps more than this one does.
                self._wake.set()
                return
        self._report_refused(self._retries.message())
        if self._retries.stale is not None:
            raise self._retries.stale

    async def _write(self, action: slice_plan.Write) -> bool:
        """Carry out a write; return whether the API server was found to drop what decides."""
        self._writing = action.slice.metadata.name
        try:
            stored = await self._writer.write(action)
            dropped = stored is not None and self._take(action.slice, stored)
        except kube_errors.Invalid as error:
            # Releases up to 1.34 do not know the effect None.
            if isinstance(action, slice_plan.Delete) or not encoding.informs(action.slice.spec):
                raise
            log.info("taints of effect None are not taken, so they are left out: %s", error)
            self._dropped |= {_INFORMATION}
            dropped = True
        finally:
            self._writing = ""
        if isinstance(action, slice_plan.Delete):
            self._remembered.pop(action.slice.spec.pool.name, None)
        return dropped

    def _report_refused(self, message: str) -> None:
        """Log which slices are refused, and emit an Event on the Node, once for each news of that."""
        if message and message != self._refused and self._owner is not None:
            log.warning("%s", message)
            self._recorder.node_warning(
                self._owner.name, self._owner.uid, reason=reasons.SLICES_REFUSED, message=message
            )
        self._refused = message

    def _take(self, wanted: slices.ResourceSlice, stored: slices.ResourceSlice) -> bool:
        """Note what became of a write; return whether the API server was found to drop what decides."""
        if self._published.get(stored.metadata.name) != stored:
            # Another client wrote after us, and the watch reported it first.
            self._wake.set()
        self._settled[wanted.spec.pool.name] = (
            wanted.spec,
            wanted.metadata.annotations,
            stored.metadata.resource_version,
        )
        return self._adopt(encoding.lost(wanted.spec, stored.spec))

    def _is_settled(self, action: slice_plan.Write) -> bool:
        """Whether just this was written before, and the API server made of it what is there now."""
        wanted = action.slice
        settled = self._settled.get(wanted.spec.pool.name)
        return isinstance(action, slice_plan.Replace) and settled == (
            wanted.spec,
            wanted.metadata.annotations,
            wanted.metadata.resource_version,
        )

    def _adopt(self, missing: frozenset[str]) -> bool:
        fresh = missing - self._dropped
        if fresh:
            self._dropped |= fresh
            log.warning(
                "the API server drops fields of devices; devices with a taint that it drops are not offered, and without binding "
                "conditions a pod waits for its device on the node",
                extra={"fields": ",".join(sorted(fresh))},
            )
        # Where there are copies, an instance before this one has said so.
        names = (device.name for each in self.published for device in each.spec.devices)
        is_news = encoding.SHARING in fresh and not any(map(nulls.is_copy, names))
        if is_news and self._owner is not None:
            message = nulls.shortage(self._null, self._node_name)
            log.warning("%s", message)
            self._recorder.node_warning(
                self._owner.name, self._owner.uid, reason=reasons.NULL_DEVICE_NOT_SHARED, message=message
            )
        return bool(fresh & _DECISIVE)

    async def _node(self) -> meta.OwnerReference:
        if self._owner is None:
            node = await self._api.read(kinds.NODE, self._node_name, into=core.Node)
            self._owner = meta.OwnerReference(
                api_version="v1", kind="Node", name=self._node_name, uid=node.metadata.uid, controller=True
            )
        return self._owner

    async def _relist(self) -> None:
        """Lists past our own copy, and asks again for what was dropped."""
        listing = await self._api.list_all(kinds.SLICE, into=slices.ResourceSlice, fields=self._fields)
        there = {listed.metadata.uid for listed in listing.items}
        there |= {left.metadata.uid for left in listing.unreadable}
        for former in tuple(self._published):
            if former.metadata.uid not in there:
                self._published.unlearn(former)
        for listed in listing.items:
            self._published.learn(listed)
        self._settled.clear()
        if _DECISIVE & self._dropped:
            await self._ask()
        else:
            self._dropped = frozenset()

    async def _ask(self) -> None:
        """Finds out what the API server drops, without a write."""
        if self._null.enabled:
            # Gets an Event, should it be short of null devices.
            await self._node()
        fields = await slice_publisher.probe_node(
            self._api,
            self._driver,
            self._node_name,
            shared=self._null.enabled,
            held_back=self._holds_back,
        )
        self._dropped &= fields
        self._adopt(fields)

    def _seen(self, old: slices.ResourceSlice | None, new: slices.ResourceSlice | None) -> None:
        """A slice changed: by a write of ours that is going on, or by another client."""
        changed = new or old
        if changed is None or not nodepools.is_pool(changed.spec.pool.name, self._node_name):
            return
        if new is not None:
            self._remembered[new.spec.pool.name] = new
        if changed.metadata.name == self._writing:
            return
        if old is not None:
            self._pace.disturbed(asyncio.get_running_loop().time())
        if new is None:
            # Perhaps because the Node is gone and there is another of its name: the slices go with it.
            self._owner = None
        self._wake.set()

    def _say_foreign(self, published: tuple[slices.ResourceSlice, ...]) -> None:
        names = {published_slice.metadata.name for published_slice in published}
        foreign = frozenset(names - {published_slice.metadata.name for published_slice in self.published})
        if foreign - self._foreign:
            log.warning(
                "another publisher has devices of this driver for this node; they are left alone",
                extra={"slices": ",".join(sorted(foreign))},
            )
        self._foreign = foreign


def _next_resync(seconds: float, jitter: random.Random) -> float:
    """Return when to list next, in the loop's time."""
    return asyncio.get_running_loop().time() + seconds * jitter.uniform(1.0, 1.0 + RESYNC_JITTER)


async def say_conflicts(cdi_dir: Path, driver: str) -> None:
    """Logs where a file that is not ours names a device of ours."""
    try:
        listed = await asyncio.to_thread(conflicts, cdi_dir, driver)
    except cdi_errors.CdiError as error:
        log.warning("cannot look for CDI files that name our devices, too: %s", error)
        return
    for conflict in listed:
        log.warning("%s", conflict, extra={"device": conflict.device, "file": str(conflict.file)})


def conflicts(cdi_dir: Path, driver: str) -> list[files.Conflict]:
    """Every device of our files that another file names, too. Reads all of them, so call it in a thread.

    Raises:
        cdi.errors.CdiError: one of our files, or the directory, cannot be read.
    """
    listed: list[files.Conflict] = []
    for owner in sorted(files.owners(cdi_dir, driver)):
        file = files.path(cdi_dir, driver, owner)
        content = files.read(file)
        if content is not None:
            listed += files.conflicts(files.read_by_runtimes(cdi_dir), file, content)
    return listed
