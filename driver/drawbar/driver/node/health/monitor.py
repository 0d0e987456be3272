"""The monitor of the watched devices' health; it keeps a verdict on each.

Each device is read at an interval with jitter, and soon after one of its events. Every read has a thread and a deadline. A
read hangs if a driver waits for dead hardware. This costs one thread, and its device is not read again until that read
ends.

Nothing is stored. After a restart every verdict is Unknown until the device's first read. The counters of that reading
are the base line, and the duration of findings starts again. Until then the state on the API server stays.
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
# The number of concurrent reads: a hanging one must not delay all others until its deadline.
WORKERS = 2
# The maximum number of hanging reads, each with a thread.
HANGING_MAX = 16
# The shortest time between two reads of a device caused by events.
EVENT_GAP_SECONDS = 1.0
JITTER = 0.1


@dataclass(slots=True, kw_only=True)
class _Watched:
    """One watched device.

    Attributes:
        addresses: its functions' addresses at the last read; none if it was absent.
        looked_at: the time of that read, on the event loop's clock.
    """

    supplier: Supplier
    history: judgement.History = field(default_factory=judgement.History)
    verdict: verdicts.Verdict = verdicts.UNKNOWN
    addresses: frozenset[str] = frozenset()
    looked_at: float = float("-inf")


class Monitor:
    """The health monitor; implements `verdicts.Verdicts`. `run` reads and judges; call everything else in the event loop.

    Args:
        read: reads a card in a thread, as `readings.read` does.
        rules: the health policy.
        clock: the time in seconds, for the judgement.
        jitter: spreads the reads.
        contained: isolates other devices from an unexpected error of one; without it, the error is raised.
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
        """Start to watch a device; for a watched device, only replace its supplier.

        Args:
            key: its DRA name.
            supplier: returns the inventory's current card, or None while it is absent; must not block.
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
        """Forget a device: its verdict becomes Unknown, and its next watch starts from the beginning."""
        watched = self._watched.pop(key, None)
        if watched is not None and watched.verdict != verdicts.UNKNOWN:
            self._notify(key)

    def request_reading(self, addresses: Collection[str] | None = None) -> None:
        """Read the devices of these functions soon, or all devices if None."""
        now = asyncio.get_running_loop().time()
        gap = min(EVENT_GAP_SECONDS, self._policy.interval_seconds)
        for key, watched in self._watched.items():
            # A device absent so far may be the one that arrived.
            concerned = (
                addresses is None or not watched.addresses or not watched.addresses.isdisjoint(addresses)
            )
            if concerned:
                self._queue.add_after(key, max(0.0, watched.looked_at + gap - now))

    def verdict(self, key: verdicts.Key) -> verdicts.Verdict:
        """Return the verdict on a device; `UNKNOWN` if it is not watched."""
        watched = self._watched.get(key)
        return watched.verdict if watched is not None else verdicts.UNKNOWN

    def all(self) -> Mapping[verdicts.Key, verdicts.Verdict]:
        """Return the verdict on every watched device."""
        return {key: watched.verdict for key, watched in self._watched.items()}

    def subscribe(self, changed: Callable[[verdicts.Key], None]) -> Callable[[], None]:
        """Call `request_reading` in the event loop after each change of a verdict; return a function to unsubscribe."""
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
        """Read and judge until cancelled."""
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
        """Judge one device; return the seconds until the next time, or None if it is not watched."""
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
        """Read the card in a thread; if the read does not end in time, return `Stuck` and leave the thread to itself."""
        limit = self._policy.read_timeout_seconds
        self._hanging = {key: thread for key, thread in self._hanging.items() if thread.is_alive()}
        if key in self._hanging or len(self._hanging) >= HANGING_MAX:
            return samples.Stuck(seconds=limit)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[samples.Sample] = loop.create_future()
        # A hanging daemon thread does not prevent the end of the process; a pool's thread would.
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
    except Exception as error:  # noqa: BLE001 - not swallowed: the waiting task gets it
        failure = error

    def give() -> None:
        if answer.done():
            return
        if failure is not None:
            answer.set_exception(failure)
        elif sample is not None:
            answer.set_result(sample)

    # The loop may have ended during this read.
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
