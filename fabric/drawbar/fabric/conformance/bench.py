"""The bench of the checks: one device, one or two hosts, and functions that state an expectation.

The device is free when a check begins. The check may leave it in any state; the suite frees it again. Where the
fabric chooses the device of a model, the bench's device is the last one attached, and the suite frees all of them.
"""

import asyncio
import itertools
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from drawbar.fabric import contract, errors

POLL_SECONDS_MIN = 0.01
POLL_SECONDS_MAX = 1.0


class CheckFailed(Exception):
    """The adapter breaks the contract."""


class CheckSkipped(Exception):
    """This fabric does not allow the check."""


class CheckWarned(Exception):
    """The adapter keeps the contract, and has room for improvement."""


def fail(message: str) -> NoReturn:
    """End the check as failed."""
    raise CheckFailed(message)


def expect(condition: bool, message: str) -> None:
    """End the check with the message unless the condition holds."""
    if not condition:
        fail(message)


@contextmanager
def expect_refusal(
    *codes: errors.Code, reason: str | None = None, host_id: str | None = None
) -> Iterator[None]:
    """Expect the block to be refused with one of the codes, and with the reason and host if they are given."""
    expected = " or ".join(codes)
    try:
        yield
    except errors.FabricError as error:
        expect(error.code in codes, f"expected {expected}, got {error.code}: {error.message}")
        if reason is not None:
            expect(error.reason == reason, f"expected the reason {reason}, got {error.reason}")
        if host_id is not None:
            expect(error.host_id == host_id, f"expected host {host_id} to be named, got {error.host_id}")
        return
    fail(f"expected {expected}, got no error")


class Bench:
    """One device and its hosts, for as long as the suite runs."""

    def __init__(
        self,
        adapter: contract.FabricAdapter,
        capabilities: contract.Capabilities,
        *,
        device: contract.Device,
        host_id: str,
        other_host_id: str | None,
        unreached_host_id: str | None = None,
        device_ids: frozenset[str] | None = None,
    ) -> None:
        """Set up a bench.

        Args:
            adapter: the adapter to check.
            capabilities: its capabilities.
            device: the device to attach and detach.
            host_id: the host to attach to.
            other_host_id: another host; None if there is none.
            unreached_host_id: a host that no device of this model can reach; None if there is none.
            device_ids: the only devices that may be touched; None to allow those chosen by the fabric as well.
        """
        self.adapter = adapter
        self.capabilities = capabilities
        self.device_id = device.id
        self.model = device.model
        self._is_pool = device.carving is not None and device.carving.is_pool
        self.device_ids = device_ids
        self._used = {device.id}
        self.host_id = host_id
        self._other_host_id = other_host_id
        self._unreached_host_id = unreached_host_id
        self._prefix = f"conformance-{secrets.token_hex(6)}-"
        self._numbers = itertools.count(1)
        self.slices = Slices(self)

    @property
    def other_host_id(self) -> str:
        """Return a second host; skip the check if there is none."""
        if self._other_host_id is None:
            raise CheckSkipped("needs a second host with a free port")
        return self._other_host_id

    @property
    def unreached_host_id(self) -> str:
        """Return a host that the device cannot reach; skip the check if there is none."""
        if self._unreached_host_id is None:
            raise CheckSkipped("every host is in a reachability group of the device, or no groups are known")
        return self._unreached_host_id

    @property
    def host_ids(self) -> tuple[str, ...]:
        """Return the hosts that the checks may use."""
        return (self.host_id, *([self._other_host_id] if self._other_host_id is not None else []))

    def require_exact_device(self) -> None:
        """Skip the check where an attach cannot name its device."""
        if not self.capabilities.exact_device:
            raise CheckSkipped("the fabric chooses the device")

    def require_whole_device(self) -> None:
        """Skip the check for a pool of memory, which is attached in slices."""
        if self._is_pool:
            raise CheckSkipped("a pool of memory is attached only in chunks")

    async def require_whole_listing(self) -> None:
        """Skip the check if the fabric cannot show all of its devices: an unknown one may be among the others."""
        if unread := (await self.adapter.devices()).unread:
            raise CheckSkipped(f"a part of the fabric cannot be read: {unread[0]}")

    async def require_model_within_bounds(self) -> None:
        """Skip the check where an attach by model could choose a device that is not to be touched."""
        if self.device_ids is None:
            return
        devices = (await self.adapter.devices()).devices
        outside = [item.id for item in devices if item.model == self.model and not self.may_touch(item.id)]
        if outside:
            raise CheckSkipped(f"the fabric could choose {outside[0]}, which is not to be touched")

    def may_touch(self, device_id: str) -> bool:
        """Return whether the checks may attach, detach or carve the device."""
        return self.device_ids is None or device_id in self.device_ids

    def request_id(self) -> str:
        """Return an id that was never used."""
        return f"{self._prefix}{next(self._numbers)}"

    def is_own(self, request_id: str | None) -> bool:
        """Return whether the request is one of the checks."""
        return request_id is not None and request_id.startswith(self._prefix)

    def attach_request(
        self, host_id: str | None = None, request_id: str | None = None
    ) -> contract.AttachRequest:
        """Return an attach of the device, or of one of its model, to a host."""
        exact = self.capabilities.exact_device
        return contract.AttachRequest(
            request_id=request_id or self.request_id(),
            device_id=self.device_id if exact else None,
            model=None if exact else self.model,
            host_id=host_id or self.host_id,
        )

    def detach_request(
        self, host_id: str | None = None, *, host_prepared: bool = True
    ) -> contract.DetachRequest:
        """Return a detach of the device from a host."""
        return contract.DetachRequest(
            request_id=self.request_id(),
            device_id=self.device_id,
            host_id=host_id or self.host_id,
            host_prepared=host_prepared,
        )

    async def attach(self, request: contract.AttachRequest | None = None) -> contract.Operation:
        """Attach and return the finished operation, which must succeed and name its device."""
        self.require_whole_device()
        operation = await self.await_success(await self.adapter.attach(request or self.attach_request()))
        if operation.device is None:
            fail("the finished operation names no device")
        if not self.may_touch(operation.device.id):
            fail(
                f"the fabric attached the device {operation.device.id}, which was not to be touched; detach it by hand"
            )
        self.device_id = operation.device.id
        self._used.add(self.device_id)
        return operation

    async def detach(self, request: contract.DetachRequest | None = None) -> contract.Operation:
        """Detach and return the finished operation, which must succeed."""
        return await self.await_success(await self.adapter.detach(request or self.detach_request()))

    async def await_end(self, operation: contract.Operation) -> contract.Operation:
        """Wait for the end of the operation and return it; the suite's deadline bounds the wait."""
        while not operation.done:
            pause = operation.retry_after_seconds or POLL_SECONDS_MIN
            await asyncio.sleep(min(max(pause, POLL_SECONDS_MIN), POLL_SECONDS_MAX))
            operation = await self.adapter.operation(operation_id=operation.id)
        return operation

    async def device(self) -> contract.Device:
        """Return the device as the fabric lists it now; fail the check if it is not listed."""
        device = (await self.adapter.devices()).device(self.device_id)
        return device if device is not None else fail(f"the listing has lost the device {self.device_id}")

    async def find_attached_host(self) -> str | None:
        """Return the device's current host, or None."""
        connection = (await self.device()).connection
        return None if connection is None else connection.host_id

    async def mark(self) -> str | None:
        """Return the mark of the connection; fail the check if there is no connection."""
        connection = (await self.device()).connection
        return connection.mark if connection is not None else fail("the device is not attached")

    async def await_success(self, operation: contract.Operation) -> contract.Operation:
        """Wait for the end of the operation and return it; it must succeed."""
        ended = await self.await_end(operation)
        if ended.error is not None:
            fail(f"the {ended.kind} failed: {ended.error.code} {ended.error.message}")
        return ended

    async def free_device(self) -> None:
        """Wait for operations in flight, detach each used device, and delete each slice that was made."""
        await self.slices.free()
        for operation in await self.adapter.operations():
            device = operation.device
            if self.is_own(operation.request_id) or (device is not None and device.id in self._used):
                device = (await self.await_end(operation)).device
                if device is not None and device.slice_of is None and self.may_touch(device.id):
                    self._used.add(device.id)
        for device_id in sorted(self._used):
            self.device_id = device_id
            if (host_id := await self.find_attached_host()) is not None:
                if self.device_ids is not None and host_id not in self.host_ids:
                    fail(f"the device {device_id} came to host {host_id}, which is not to be touched")
                await self.detach(self.detach_request(host_id))


class Slices:
    """The slices that the checks make, and give back in the end."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._made: set[str] = set()

    async def origin(self) -> contract.Device:
        """Return a device with room for two slices; skip the check where there is none."""
        if not self._bench.capabilities.slices:
            raise CheckSkipped("the fabric makes no slices")
        for device in (await self._bench.adapter.devices()).devices:
            carving = device.carving
            if carving is None or device.connection is not None or not self._bench.may_touch(device.id):
                continue
            if carving.free_bytes >= 2 * carving.step_bytes:
                return device
        raise CheckSkipped("no device has room for two slices")

    def create_request(self, origin: contract.Device) -> contract.CreateSliceRequest:
        """Return the creation of a slice of the least size."""
        assert origin.carving is not None
        return contract.CreateSliceRequest(
            request_id=self._bench.request_id(), device_id=origin.id, memory_bytes=origin.carving.step_bytes
        )

    async def create(self, request: contract.CreateSliceRequest) -> contract.Device:
        """Make a slice and return it as named by the operation."""
        operation = await self._bench.await_success(await self._bench.adapter.create_slice(request))
        if operation.device is None:
            fail("the finished operation names no slice")
        self._made.add(operation.device.id)
        return operation.device

    async def delete(self, slice_id: str) -> None:
        """Give a slice back."""
        request = contract.DeleteSliceRequest(request_id=self._bench.request_id(), device_id=slice_id)
        await self._bench.await_success(await self._bench.adapter.delete_slice(request))

    async def free(self) -> None:
        """Detach and delete each slice that was made."""
        for device in (await self._bench.adapter.devices()).devices:
            made = device.slice_of
            if made is None or not (device.id in self._made or self._bench.is_own(made.request_id)):
                continue
            if device.connection is not None:
                detach = contract.DetachRequest(
                    request_id=self._bench.request_id(),
                    device_id=device.id,
                    host_id=device.connection.host_id,
                    host_prepared=True,
                )
                await self._bench.await_success(await self._bench.adapter.detach(detach))
            await self.delete(device.id)
