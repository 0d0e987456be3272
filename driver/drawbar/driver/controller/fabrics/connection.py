"""The connection to one fabric manager: made, kept, listed and watched until cancelled.

Every trouble with one manager, even a defect of its adapter, ends in `state` and a new try after a growing, jittered
pause. It never reaches another fabric.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from drawbar.driver import backoff, clocks, containment
from drawbar.driver.api import fabrics
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import marks, names
from drawbar.driver.controller.fabrics import credentials, losses, operation_queue, redacting_adapter, status
from drawbar.driver.controller.fabrics.inventory import NEWCOMERS, Inventory
from drawbar.driver.controller.fabrics.news import News
from drawbar.driver.controller.offers.realising import table
from drawbar.fabric import budget, contract, errors, limiting


class Readings:
    """The readings of one fabric, shared by concurrent callers. `read` is never called concurrently.

    Guarantee: `fresh` returns after a reading that began after the call. One further reading serves all calls during a
    reading. A large fabric costs tens of milliseconds per thousand devices, and after a restart many devices need a
    reading at once.
    """

    def __init__(self, read: Callable[[], Awaitable[object]]) -> None:
        self._read = read
        self._lock = asyncio.Lock()
        self._asked = 0
        # The last call before the begin of a finished reading.
        self._answered = 0

    async def fresh(self) -> None:
        """Read, or wait for a reading that began after this call; raise the errors of `read`."""
        self._asked += 1
        mine = self._asked
        async with self._lock:
            if self._answered >= mine:
                return
            covered = self._asked
            await self._read()
            self._answered = covered


log = logging.getLogger(__name__)

PAUSE_FIRST_SECONDS = 0.5
# A manager that comes back is found within 5 s.
PAUSE_MAX_SECONDS = 4.0
# A manager refuses wrong credentials until an administrator acts, and too many attempts may lock the account.
REFUSED_PAUSE_MAX_SECONDS = 30.0
# A connection that lasted this long was a good one: the next pause is the first again.
GOOD_SECONDS = 60.0
# A manager that closes more slowly delays neither the next connection nor the end of the process.
CLOSE_SECONDS = 5.0
LIST_EVERY_SECONDS = 10.0
# The pauses after a listing, or a watch, beyond a limit.
LIMIT_PAUSE_FIRST_SECONDS = 10.0
LIMIT_PAUSE_MAX_SECONDS = 300.0
# The limits, as subjects of troubles.
LISTING, WATCH, STREAM, SLICES = "listing", "watch", "stream", "slices"
LIMITED = (LISTING, NEWCOMERS, WATCH, STREAM, SLICES)


class ManagerConnection:
    """The connection to one fabric manager.

    Attributes:
        spec: the Fabric's spec; the fields for the access to the manager never change.
        state: whether the manager is reached, and why not.
        silent_since: the time since when it has not been reached, on the event loop's clock; None while it is.
        exceeded: the number of times that a limit was passed.
    """

    def __init__(
        self,
        fabric: fabrics.Fabric,
        adapters: redacting_adapter.AdapterOf,
        inventory: Inventory,
        news: News,
        contained: containment.Containment,
        *,
        vault: credentials.Vault | None = None,
        networks: contract.Networks | None = None,
        cluster: str = "",
        report: containment.Report | None = None,
    ) -> None:
        """Prepare a connection; `report` shows an unexpected error on the Fabric."""
        self.spec = fabric.spec
        self.state = status.Connection(
            connected=False, reason=reasons.CONNECTING, message="not connected yet"
        )
        self.silent_since: float | None = clocks.loop_seconds()
        self.queue = operation_queue.OperationQueue()
        self.exceeded = 0
        self._name = fabric.metadata.name
        self._inventory, self._news = inventory, news
        self._contained, self._report_unexpected = contained, report
        self._limits = fabric.spec.policy.limits.budget
        # The limit of the stream counts over all connections.
        self._flow = budget.Flow(self._limits, self._name, clock=clocks.loop_seconds)
        self._limit_pauses = {
            subject: backoff.Backoff(LIMIT_PAUSE_FIRST_SECONDS, LIMIT_PAUSE_MAX_SECONDS)
            for subject in (LISTING, WATCH)
        }
        # On the monotonic clock.
        self._watch_from = 0.0
        self._adapters, self._vault, self._networks = adapters, vault, networks
        self._mark = marks.mark(cluster, self._name, fabric.spec.driver)
        self._adapter: contract.FabricAdapter | None = None
        self._readings = Readings(lambda: self._inventory.read(self.adapter()))

    @property
    def silent_seconds(self) -> float:
        """Return the seconds since the manager was last reached; 0.0 while it is."""
        return 0.0 if self.silent_since is None else clocks.loop_seconds() - self.silent_since

    @property
    def mark(self) -> str | None:
        """Return the mark of our connections, or None if the fabric keeps no marks, or we have none."""
        return self._mark if self.queue.can.marks else None

    def adapter(self) -> contract.FabricAdapter:
        """Return the adapter that is connected to the fabric manager.

        Raises:
            errors.Unavailable: there is none now.
        """
        if self._adapter is None:
            raise errors.Unavailable(f"fabric {self._name} is not connected: {self.state.message}")
        return self._adapter

    def end_operation(self, key: names.DeviceKey) -> None:
        """Note that the manager is not busy with this device, or no longer; the next operation may begin."""
        self._news.tell_admitted(self.queue.give(key))

    async def read(self) -> None:
        """List the fabric; concurrent callers share a listing.

        Raises:
            errors.FabricError: it cannot be read.
        """
        await self._readings.fresh()

    async def run(self) -> None:
        """Connect, list and watch until cancelled, and again whenever the credentials change.

        It ends by itself only if the Fabric names no Secret and its configuration is wrong.
        """
        reference = self.spec.credentials_secret_ref
        if self._vault is None or reference is None:
            await self._serve(contract.Credentials())
            return
        recipient = credentials.Recipient.from_spec(self._name, self.spec)
        following = self._vault.follow(reference.name, recipient)
        async with asyncio.TaskGroup() as tasks, aclosing(following) as followed:
            serving: asyncio.Task[None] | None = None
            async for outcome in followed:
                if serving is not None:
                    serving.cancel()
                    await asyncio.wait({serving})
                    serving = None
                if isinstance(outcome, credentials.Unusable):
                    self.set_state(connected=False, reason=outcome.reason, message=outcome.message)
                else:
                    log.info("credentials read", extra={"fabric": self._name, "parts": outcome.present_parts})
                    serving = tasks.create_task(self._serve(outcome), name=f"fabric-{self._name}-serving")

    async def _serve(self, adapter_credentials: contract.Credentials) -> None:
        """Connect, list and watch with these credentials until cancelled; end if the configuration is wrong."""
        config = contract.AdapterConfig(
            name=self._name,
            endpoint=self.spec.endpoint,
            parameters=self.spec.parameters,
            timeout_seconds=self.spec.timeout_seconds,
            credentials=adapter_credentials,
            tls=contract.Tls(verify=self.spec.tls.verify, server_name=self.spec.tls.server_name),
            limits=self._limits,
            networks=self._networks,
        )
        try:
            adapter_class = self._adapters(self.spec.adapter)
            adapter_class.validate(config)
        except errors.InvalidConfiguration as error:
            # Only a change of the object, or of the Secret, can help, and that begins another session or connection.
            self.set_state(
                connected=False, reason=_reason(error), message=adapter_credentials.redact(error.message)
            )
            return
        except Exception as error:  # noqa: BLE001 -- foreign code; only another version of it can help
            failure = redacting_adapter.defect(
                error, adapter_credentials, fabric=self._name, name=self.spec.adapter
            )
            self.set_state(connected=False, reason=_reason(failure), message=failure.message)
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
                    await asyncio.sleep((refused if _lasts(error) else down).count_failure())
            else:
                down.reset()
                refused.reset()

    async def _stay_connected(
        self, adapter_class: redacting_adapter.AdapterClass, config: contract.AdapterConfig
    ) -> None:
        """Hold one connection from its begin to its end.

        Raises:
            errors.FabricError: it ended too early.
        """
        began = clocks.loop_seconds()
        try:
            connected = await self._connect(adapter_class, config)
            redacting = redacting_adapter.RedactingAdapter(
                connected, config.credentials, fabric=self._name, name=self.spec.adapter
            )
            adapter = limiting.LimitedAdapter(redacting, self._limits, self._flow, fabric=self._name)
            self._adapter = adapter
            try:
                await self._follow(adapter)
            finally:
                self._inventory.parts.disconnect()
                await self._let_go(adapter)
        except errors.FabricError as error:
            redacting_adapter.clean(error, config.credentials)
            self.set_state(connected=False, reason=_reason(error), message=error.message)
            if clocks.loop_seconds() - began < GOOD_SECONDS:
                raise
        finally:
            self._adapter = None

    async def _connect(
        self, adapter_class: redacting_adapter.AdapterClass, config: contract.AdapterConfig
    ) -> contract.FabricAdapter:
        """Return a new connection; behind a RedactingAdapter, its calls raise only errors of the contract."""
        try:
            return await adapter_class.connect(config)
        except errors.FabricError:
            raise
        except Exception as error:
            name = self.spec.adapter
            raise redacting_adapter.defect(error, config.credentials, fabric=self._name, name=name) from error

    async def _let_go(self, adapter: contract.FabricAdapter) -> None:
        """Close a connection at its end.

        An error of the adapter is logged and not raised: it would replace the reason why the connection ended, and a
        session whose cancellation was lost would connect again.
        """
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await adapter.close()
        except (errors.FabricError, TimeoutError) as error:
            why = str(error) or f"no answer within {CLOSE_SECONDS:.0f} s"
            log.warning("the fabric adapter could not be closed: %s", why, extra={"fabric": self._name})

    async def _follow(self, adapter: contract.FabricAdapter) -> None:
        can = await adapter.capabilities()
        self._news.tell_admitted(self.queue.allow(can))
        self._inventory.parts.adapter = None
        realising_class = table.choose(can, self.mark)
        if realising_class is not None:
            realising = realising_class(
                adapter,
                self.mark,
                held=self._inventory.held,
                report=self._inventory.take,
                withdraw=self._inventory.withdraw,
            )
            self._inventory.parts.adapter = self._adapter = adapter = realising
        pauses = backoff.Backoff()
        while True:
            try:
                # The reading is shared with other callers, or the older of two could be taken in last.
                await self.read()
            except errors.Transient as error:
                if not budget.is_exceeded(error):
                    raise
                self._set_connected()
                await asyncio.sleep(self._exceed(LISTING, error))
                continue
            self._limit_pauses[LISTING].reset()
            self._news.report(LISTING)
            version = self._inventory.version
            self._set_connected()
            began = clocks.loop_seconds()
            if not can.watch or began < self._watch_from:
                await asyncio.sleep(LIST_EVERY_SECONDS)
                continue
            try:
                await self._watch(adapter, version)
            except errors.Transient as error:
                if not budget.is_exceeded(error):
                    raise
                self._watch_from = clocks.loop_seconds() + self._exceed(WATCH, error)
                continue
            # A manager that ends its watches at once is not listed without a pause: that would only add to its trouble.
            await asyncio.sleep(pauses.compute_pause(clocks.loop_seconds() - began))

    def _set_connected(self) -> None:
        doubt = "" if self.spec.tls.verify else "; its certificate is not verified (spec.tls.verify)"
        self.set_state(
            connected=True, reason=reasons.CONNECTED, message=f"connected to {self.spec.endpoint}{doubt}"
        )

    def _exceed(self, subject: str, error: errors.FabricError) -> float:
        """Report that a limit was passed; return the seconds until the next try. The earlier state stays."""
        log.warning("fabric: %s", error.message, extra={"fabric": self._name, "reason": error.reason})
        self.exceeded += 1
        self._news.report(subject, error.message)
        return self._limit_pauses[subject].count_failure()

    def _check_watch(self, event: contract.WatchEvent, began: float) -> None:
        """Report limits that the manager passes during its watch; a watch that works is within its own limit again."""
        if isinstance(event, contract.Bookmark):
            self._news.report(STREAM, event.exceeded)
        if WATCH in self._news.troubles and clocks.loop_seconds() - began > GOOD_SECONDS:
            self._limit_pauses[WATCH].reset()
            self._news.report(WATCH)

    async def _watch(self, adapter: contract.FabricAdapter, version: str) -> None:
        """Take in the manager's reports, until it ends the watch or it is time to list missing objects."""
        began = clocks.loop_seconds()
        try:
            async with (
                asyncio.timeout(self._inventory.list_missing_seconds) as limit,
                adapter.watch(version) as events,
            ):
                async for event in events:
                    if isinstance(event, contract.Resync):
                        break
                    # Raised in this context, an error of ours would pass for one of the adapter.
                    attempt = self._contained.attempt(
                        "fabric-events",
                        self._name,
                        extra=lambda: {"fabric": self._name},
                        report=self._report_unexpected,
                    )
                    with attempt:
                        self._inventory.take(event)
                    if attempt.failure:
                        break
                    self._check_watch(event, began)
                    if self._inventory.list_missing_seconds is not None and limit.when() is None:
                        limit.reschedule(clocks.loop_seconds() + losses.APART_SECONDS)
        except TimeoutError:
            if not limit.expired():
                raise

    def set_state(self, *, connected: bool, reason: str, message: str) -> None:
        """Set whether the manager is reached, and report changes."""
        state = status.Connection(connected=connected, reason=reason, message=message)
        if state == self.state:
            return
        level = logging.INFO if connected else logging.WARNING
        log.log(level, "fabric: %s", message, extra={"fabric": self._name, "reason": reason})
        self.state = state
        if connected:
            self.silent_since = None
        elif self.silent_since is None:
            self.silent_since = clocks.loop_seconds()
        self._news.tell_connection()


def _lasts(error: errors.FabricError) -> bool:
    """Return whether only a change of the manager, or of another program, helps."""
    return isinstance(error, errors.Misconfigured) or error.reason == redacting_adapter.DEFECT


def _reason(error: errors.FabricError) -> str:
    """Return the error's code as a condition's reason: FAILED_PRECONDITION becomes FailedPrecondition."""
    if isinstance(error, errors.InvalidConfiguration):
        return reasons.INVALID_CONFIGURATION
    if error.reason == redacting_adapter.DEFECT:
        return reasons.ADAPTER_DEFECT
    if error.reason == errors.Reason.SOCKET_FORBIDDEN:
        return reasons.SOCKET_FORBIDDEN
    if budget.is_exceeded(error):
        return reasons.LIMIT_EXCEEDED
    return "".join(word.capitalize() for word in error.code.value.split("_"))
