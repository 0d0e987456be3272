"""Monitors the health of the devices that are watched, and keeps the verdict on each.

Each device is read on an interval with jitter, and soon after an event of it. A read happens in a thread of its own and
has a deadline: one that hangs (a driver that waits for dead hardware) costs its thread and nothing else, and its device
is not read again before it has ended.

Nothing is stored. After a restart every verdict is Unknown until the device has been read once, the counters of that
reading are the base line, and findings have to last anew; what stands on the API server stands until then.
"""

import asyncio
import contextlib
import functools
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from drawbar.driver import containment
from drawbar.driver.kube import workers
from drawbar.driver.node.health import judgement, policy, samples, verdicts
from drawbar.driver.node.inventory import model

log = logging.getLogger(__name__)

Supplier = Callable[[], model.Card | None]
Read = Callable[[model.Card], samples.Sample]

WATCHED_MAX = 1024
# Devices that are read at the same time: one that hangs until its deadline leaves the others their turn.
WORKERS = 2
# Devices with hanging reads at most: each has a thread.
HANGING_MAX = 16
# An event of a device makes it be read again at most so often.
EVENT_GAP_SECONDS = 1.0
JITTER = 0.1


@dataclass(slots=True, kw_only=True)
class _Watched:
    """One device.

    Attributes:
        addresses: of its functions when it was last read; none if it was absent.
        looked_at: when that was, on the event loop's clock.
    """

    supplier: Supplier
    history: judgement.History = field(default_factory=judgement.History)
    verdict: verdicts.Verdict = verdicts.UNKNOWN
    addresses: frozenset[str] = frozenset()
    looked_at: float = float("-inf")


class Monitor:
    """Implements `verdicts.Verdicts`. `run` reads and judges; everything else is called in the event loop.

    Args:
        read: reads a card in a thread, as `readings.read` does.
        rules: the health policy.
        clock: seconds that pass, for the judgement.
        jitter: spreads the reads.
        contained: keeps an unexpected error of one device from the others; without it, that is raised.
    """

    def __init__(
        self,
        read: Read,
        rules: policy.Policy,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: random.Random | None = None,
        contained: containment.Containment | None = None,
    ) -> None:
        self._contained = contained or containment.Uncontained()
        self._callbacks: containment.Callbacks[tuple[object, verdicts.Key]] = containment.Callbacks(
            self._contained, "health-changes"
        )
        self._read = read
        self._policy = rules
        self._clock = clock
        self._jitter = jitter or random.Random()  # noqa: S311 - spreads reads, guards nothing
        self._watched: dict[verdicts.Key, _Watched] = {}
        self._queue: workers.WorkQueue[verdicts.Key] = workers.WorkQueue()
        self._subscribers: list[Callable[[verdicts.Key], None]] = []
        self._hanging: dict[verdicts.Key, threading.Thread] = {}

    def watch(self, key: verdicts.Key, supplier: Supplier) -> None:
        """Watches a device from now on. Watching one that is watched changes its supplier alone.

        Args:
            key: its DRA name.
            supplier: the card as the inventory has it now, None while it is not there; must not block.
        """
        watched = self._watched.get(key)
        if watched is not None:
            watched.supplier = supplier
            return
        if len(self._watched) >= WATCHED_MAX:
            log.warning("too many devices to watch", extra={"device": key.device, "limit": WATCHED_MAX})
            return
        self._watched[key] = _Watched(supplier=supplier)
        self._queue.add(key)

    def unwatch(self, key: verdicts.Key) -> None:
        """Forgets a device: its verdict is Unknown, and its next watch begins anew."""
        watched = self._watched.pop(key, None)
        if watched is not None and watched.verdict != verdicts.UNKNOWN:
            self._notify(key)

    def changed(self, addresses: Collection[str] | None = None) -> None:
        """Read the devices of these functions soon, or all of them for None."""
        now = asyncio.get_running_loop().time()
        gap = min(EVENT_GAP_SECONDS, self._policy.interval_seconds)
        for key, watched in self._watched.items():
            # One that was not there may be what came.
            concerned = (
                addresses is None or not watched.addresses or not watched.addresses.isdisjoint(addresses)
            )
            if concerned:
                self._queue.add_after(key, max(0.0, watched.looked_at + gap - now))

    def verdict(self, key: verdicts.Key) -> verdicts.Verdict:
        """The verdict on a device; `UNKNOWN` for one that is not watched."""
        watched = self._watched.get(key)
        return watched.verdict if watched is not None else verdicts.UNKNOWN

    def all(self) -> Mapping[verdicts.Key, verdicts.Verdict]:
        """Every watched device."""
        return {key: watched.verdict for key, watched in self._watched.items()}

    def subscribe(self, changed: Callable[[verdicts.Key], None]) -> Callable[[], None]:
        """Calls `changed` in the event loop whenever a verdict changes; the answer ends it."""
        self._subscribers.append(changed)

        def end() -> None:
            with contextlib.suppress(ValueError):
                self._subscribers.remove(changed)

        return end

    def _notify(self, key: verdicts.Key) -> None:
        for subscriber in tuple(self._subscribers):
            self._callbacks.call(
                (subscriber, key), functools.partial(subscriber, key), extra=functools.partial(_extra, key)
            )

    async def run(self) -> None:
        """Reads and judges until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(WORKERS):
                    work = functools.partial(
                        self._queue.run,
                        self._judge,
                        _extra,
                        worker="health-devices",
                        contained=self._contained,
                    )
                    self._contained.start(tasks, "health-devices", work, subject=f"worker {number}")
        finally:
            self._queue.close()
            self._callbacks.close()

    async def _judge(self, key: verdicts.Key) -> float | None:
        """Judge one device; return the seconds until it is to be judged again, or None for one that is not watched."""
        watched = self._watched.get(key)
        if watched is None:
            return None
        card = watched.supplier()
        watched.looked_at = asyncio.get_running_loop().time()
        sample = samples.Gone() if card is None else await self._sample(key, card)
        if self._watched.get(key) is not watched:
            return None
        watched.addresses = (
            frozenset(function.address for function in card.functions) if card else frozenset()
        )
        now = self._clock()
        watched.history, verdict = judgement.judge(watched.history, sample, now, self._policy)
        pause = judgement.look_again_seconds(watched.history, self._policy)
        if verdict != watched.verdict:
            before, watched.verdict = watched.verdict, verdict
            _log_change(key, before, verdict)
            self._notify(key)
        return pause * self._jitter.uniform(1.0, 1.0 + JITTER)

    async def _sample(self, key: verdicts.Key, card: model.Card) -> samples.Sample:
        """Reads the card in a thread; one that does not end in time is left behind."""
        limit = self._policy.read_timeout_seconds
        self._hanging = {key: thread for key, thread in self._hanging.items() if thread.is_alive()}
        if key in self._hanging or len(self._hanging) >= HANGING_MAX:
            return samples.Stuck(seconds=limit)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[samples.Sample] = loop.create_future()
        # A daemon thread: one that hangs must not keep the process from ending, as a pool's would.
        thread = threading.Thread(
            target=_answer, args=(self._read, card, loop, answer), name=f"health {card.address}", daemon=True
        )
        thread.start()
        try:
            async with asyncio.timeout(limit):
                return await answer
        except TimeoutError:
            self._hanging[key] = thread
            return samples.Stuck(seconds=limit)


def _answer(
    read: Read, card: model.Card, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[samples.Sample]
) -> None:
    sample: samples.Sample | None = None
    failure: Exception | None = None
    try:
        sample = read(card)
    except Exception as error:  # noqa: BLE001 - not swallowed: whoever waits gets it
        failure = error

    def give() -> None:
        if answer.done():
            return
        if failure is not None:
            answer.set_exception(failure)
        elif sample is not None:
            answer.set_result(sample)

    # The loop may have ended while this read hung.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(give)


def _log_change(key: verdicts.Key, before: verdicts.Verdict, after: verdicts.Verdict) -> None:
    extra = {"pool": key.pool, "device": key.device, "taints": ",".join(taint.key for taint in after.taints)}
    if after.status is verdicts.Status.UNHEALTHY or after.taints:
        log.warning("device is %s: %s", after.status, after.message, extra=extra)
    elif before.taints:
        log.info("device is %s again", after.status, extra=extra)


def _extra(key: verdicts.Key) -> dict[str, object]:
    return {"pool": key.pool, "device": key.device}
