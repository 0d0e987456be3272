"""The publisher of the node's own pools, with one write for each action of `plan`.

The kubelet deletes every slice of its node at its start, and a driver's slices 30 s after its last plugin has gone. The
first deletion is undone at once. Repeated deletions are undone after growing pauses, in case another instance with
another configuration keeps deleting these slices. Every few minutes the slices are listed from the API server, bypassing
the local copy. Publishers that relied only on their watch have lost slices for good (kubernetes/kubernetes#140011).

The result of a write is compared with the request. Fields dropped by the API server are remembered and logged once. The
next full round probes them again with a dry run, because the gate may have been enabled since. If the null device is
offered, this probe also precedes the first write. A restart therefore leaves its copies unchanged.
"""

import asyncio
import logging
import random
from pathlib import Path

from drawbar.cdi import errors as cdi_errors
from drawbar.cdi import files
from drawbar.driver import backoff, clocks, containment
from drawbar.driver.api import core, meta, nodepools, slices
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import client, events, kinds, mirror
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node.local import nulls, plan, pool
from drawbar.driver.slices import encoding, pool_writes, retries
from drawbar.driver.slices import publisher as slice_publisher

log = logging.getLogger(__name__)

RESYNC_SECONDS = 300.0
RESYNC_JITTER = 0.2
# Changes in quick succession are written together: the functions of a card, or all slices deleted by a kubelet.
SETTLE_SECONDS = 0.02
FAILED_FIRST_SECONDS = 0.2
FAILED_MAX_SECONDS = 60.0
DISTURBED_FIRST_SECONDS = 0.5
DISTURBED_MAX_SECONDS = 30.0
# A kubelet deletes slices once per start. More frequent deletions come from another client.
CALM_SECONDS = 60.0


class Pace:
    """The pauses of one publisher; times are seconds of a monotonic clock.

    A failed round is repeated after a pause that grows with consecutive failures. The first change by another writer, such as
    the deletion by a starting kubelet, is undone at once. Further changes soon after are undone after growing pauses, so that
    two writers that disagree do not chase each other.
    """

    def __init__(self, *, jitter: random.Random) -> None:
        self._failures = backoff.Backoff(FAILED_FIRST_SECONDS, FAILED_MAX_SECONDS, uniform=jitter.uniform)
        self._disturbances = backoff.Backoff(
            DISTURBED_FIRST_SECONDS, DISTURBED_MAX_SECONDS, uniform=jitter.uniform
        )
        self._pause = 0.0
        self._disturbed_at = float("-inf")
        self._counted_at = float("-inf")

    def note_success(self) -> None:
        """Note a successful round."""
        self._failures.reset()

    def note_failure(self) -> float:
        """Note a failed round; return the pause in seconds."""
        return self._failures.count_failure()

    def note_disturbance(self, now: float) -> None:
        """Note that another client deleted or changed a slice; changes in quick succession count once."""
        if now - self._disturbed_at > CALM_SECONDS:
            self._disturbances.reset()
            self._pause, self._counted_at = 0.0, now
        elif now - self._counted_at > DISTURBED_FIRST_SECONDS:
            self._pause, self._counted_at = self._disturbances.count_failure(), now
        self._disturbed_at = now

    def compute_pause(self, now: float) -> float:
        """Return the seconds to wait before the next write; 0 after the first disturbance in a long while."""
        return self._pause if now - self._disturbed_at <= CALM_SECONDS else 0.0


# If the API server drops one of these, the plan changes.
_DECISIVE = frozenset({"taints", encoding.SHARING}) | encoding.CONDITIONS
_INFORMATION = "taints of effect None"


class Publisher:
    """The single writer of this node's pools."""

    def __init__(
        self,
        api: client.Client,
        *,
        driver: str,
        node_name: str,
        devices: pool.LocalPool,
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
        # By pool, the last written content and its resource version.
        self._settled: dict[str, tuple[slices.SliceSpec, dict[str, str], str]] = {}
        self._foreign: frozenset[str] = frozenset()
        self._fields = f"spec.driver={driver},spec.nodeName={node_name}"
        self._published = mirror.Mirror(
            api,
            kinds.SLICE,
            into=slices.ResourceSlice,
            changed=self._slice_changed,
            fields=self._fields,
            contained=self._contained,
            recorder=recorder,
        )
        self._published.report_unreadable(recorder.unreadable)
        self._writer = slice_publisher.Publisher(slice_publisher.Store(api), self._published)
        self._retries = retries.Retries(clocks.loop_seconds, uniform=self._jitter.uniform)
        self._refused = ""

    def count_unreadable(self) -> dict[str, float]:
        """Return the number of the node's unreadable slices, by the plural of their kind."""
        return mirror.count_unreadable((self._published,))

    @property
    def dropped_fields(self) -> tuple[str, ...]:
        """Return the device fields that the API server rejects or drops, as far as known."""
        return tuple(sorted(self._dropped))

    @property
    def published(self) -> tuple[slices.ResourceSlice, ...]:
        """Return this node's pools, as they are now."""
        return tuple(
            published_slice
            for published_slice in self._published
            if nodepools.is_pool(published_slice.spec.pool.name, self._node_name)
        )

    def request_survey(self) -> None:
        """Survey again soon, after a change of the inventory, an attachment, or the devices in use by claims."""
        self._wake.set()

    async def run(self) -> None:
        """Publish until cancelled; the published slices then stay."""
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
                        await self._probe_fields()
                        is_asked = True
                    if loop.time() >= resync_at:
                        await self._relist()
                        resync_at = _next_resync(self._resync_seconds, self._jitter)
                    self._wake.clear()
                    await self._round()
                    self._pace.note_success()
                due = (resync_at - loop.time(), self._retries.seconds_left(), self._devices.again_seconds)
                pause = min(seconds for seconds in due if seconds is not None)
                pause = self._pace.note_failure() if attempt.failure else pause
            except kube_errors.KubeError as error:
                pause = self._pace.note_failure()
                log.warning(
                    "local pool not published, trying again: %s", error, extra={"seconds": round(pause, 2)}
                )
            await self._wait(pause)

    async def _wait(self, seconds: float) -> None:
        """Wait until something changes or the time is up; after a change, wait a moment longer for related changes."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(max(SETTLE_SECONDS, self._pace.compute_pause(asyncio.get_running_loop().time())))

    async def _round(self) -> None:
        """Compare the desired with the published slices, and write the difference."""
        remembered = tuple(self._remembered.values())
        nothing = nulls.offers(self._null, shared=encoding.SHARING not in self._dropped)
        offers = (*await self._devices.survey(remembered), *nothing)
        self._holds_back = any(offer.device.binding_conditions for offer in offers)
        published = tuple(self._published)
        self._report_foreign(published)
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
        # This includes devices withdrawn for their health, so that they can return.
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
                # A refused slice does not delay the others.
                self._retries.refuse(action, before, error)
                if self._retries.is_over:
                    break
                continue
            self._retries.accept(action)
            if dropped:
                # The plan assumed fields that this API server drops.
                self._wake.set()
                return
        self._report_refused(self._retries.message())
        if self._retries.stale is not None:
            raise self._retries.stale

    async def _write(self, action: pool_writes.Write) -> bool:
        """Carry out a write; return whether the API server turned out to drop a field that changes the plan."""
        self._writing = action.slice.metadata.name
        try:
            stored = await self._writer.write(action)
            dropped = stored is not None and self._note_result(action.slice, stored)
        except kube_errors.Invalid as error:
            # Kubernetes releases up to 1.34 reject the effect None.
            if isinstance(action, pool_writes.Delete) or not encoding.informs(action.slice.spec):
                raise
            log.info("taints of effect None are not taken, so they are left out: %s", error)
            self._dropped |= {_INFORMATION}
            dropped = True
        finally:
            self._writing = ""
        if isinstance(action, pool_writes.Delete):
            self._remembered.pop(action.slice.spec.pool.name, None)
        return dropped

    def _report_refused(self, message: str) -> None:
        """Log the refused slices and emit an Event on the Node, once for each new message."""
        if message and message != self._refused and self._owner is not None:
            log.warning("%s", message)
            self._recorder.node_warning(
                self._owner.name, self._owner.uid, reason=reasons.SLICES_REFUSED, message=message
            )
        self._refused = message

    def _note_result(self, desired: slices.ResourceSlice, stored: slices.ResourceSlice) -> bool:
        """Note the result of a write; return whether the API server turned out to drop a field that changes the plan."""
        if self._published.get(stored.metadata.name) != stored:
            # Another client wrote later, and the watch reported that first.
            self._wake.set()
        self._settled[desired.spec.pool.name] = (
            desired.spec,
            desired.metadata.annotations,
            stored.metadata.resource_version,
        )
        return self._adopt(encoding.find_lost_fields(desired.spec, stored.spec))

    def _is_settled(self, action: pool_writes.Write) -> bool:
        """Return whether exactly this was written before, with the present slice as its result."""
        wanted = action.slice
        settled = self._settled.get(wanted.spec.pool.name)
        return isinstance(action, pool_writes.Replace) and settled == (
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
        # If copies exist, an earlier instance has reported this.
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
        """List the slices from the API server into the local copy, and probe dropped fields again."""
        listing = await self._api.list_all(kinds.SLICE, into=slices.ResourceSlice, fields=self._fields)
        listed_uids = {listed.metadata.uid for listed in listing.items}
        listed_uids |= {left.metadata.uid for left in listing.unreadable}
        for former in tuple(self._published):
            if former.metadata.uid not in listed_uids:
                self._published.unlearn(former)
        for listed in listing.items:
            self._published.learn(listed)
        self._settled.clear()
        if _DECISIVE & self._dropped:
            await self._probe_fields()
        else:
            self._dropped = frozenset()

    async def _probe_fields(self) -> None:
        """Find out which fields the API server drops, without a write."""
        if self._null.enabled:
            # The Node is needed for an Event about a shortage of null devices.
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

    def _slice_changed(self, old: slices.ResourceSlice | None, new: slices.ResourceSlice | None) -> None:
        """Handle a change of a slice, by this publisher's current write or by another client."""
        changed = new or old
        if changed is None or not nodepools.is_pool(changed.spec.pool.name, self._node_name):
            return
        if new is not None:
            self._remembered[new.spec.pool.name] = new
        if changed.metadata.name == self._writing:
            return
        if old is not None:
            self._pace.note_disturbance(asyncio.get_running_loop().time())
        if new is None:
            # The Node may have been replaced by another of the same name; its slices are deleted with it.
            self._owner = None
        self._wake.set()

    def _report_foreign(self, published: tuple[slices.ResourceSlice, ...]) -> None:
        names = {published_slice.metadata.name for published_slice in published}
        foreign = frozenset(names - {published_slice.metadata.name for published_slice in self.published})
        if foreign - self._foreign:
            log.warning(
                "another publisher has devices of this driver for this node; they are left alone",
                extra={"slices": ",".join(sorted(foreign))},
            )
        self._foreign = foreign


def _next_resync(seconds: float, jitter: random.Random) -> float:
    """Return the time of the next list, on the loop's clock."""
    return asyncio.get_running_loop().time() + seconds * jitter.uniform(1.0, 1.0 + RESYNC_JITTER)


async def say_conflicts(cdi_dir: Path, driver: str) -> None:
    """Log each device of this driver that another CDI file names, too."""
    try:
        listed = await asyncio.to_thread(conflicts, cdi_dir, driver)
    except cdi_errors.CdiError as error:
        log.warning("cannot look for CDI files that name our devices, too: %s", error)
        return
    for conflict in listed:
        log.warning("%s", conflict, extra={"device": conflict.device, "file": str(conflict.file)})


def conflicts(cdi_dir: Path, driver: str) -> list[files.Conflict]:
    """Return every device of this driver's CDI files that another file names, too. Reads all files, so call it in a thread.

    Raises:
        cdi.errors.CdiError: one of the driver's files, or the directory, cannot be read.
    """
    listed: list[files.Conflict] = []
    for owner in sorted(files.owners(cdi_dir, driver)):
        file = files.path(cdi_dir, driver, owner)
        content = files.read(file)
        if content is not None:
            listed += files.conflicts(files.read_by_runtimes(cdi_dir), file, content)
    return listed
