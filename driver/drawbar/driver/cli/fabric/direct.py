"""Attach and detach by the adapter itself, without a cluster.

No lock of a cluster is taken. So a device is refused if its connection carries a cluster's mark, or if it has an
operation in flight.
"""

import asyncio
import sys
import uuid
from collections.abc import Collection
from typing import Any

from drawbar.driver import errors
from drawbar.driver.cli import consent, objects, progress
from drawbar.fabric import contract

POLL_SECONDS = 0.5
POLL_SECONDS_MIN = 0.05
POLL_SECONDS_MAX = 5.0


async def attach(
    adapter: contract.FabricAdapter, device_id: str, host_id: str, *, assumed: bool, dry_run: bool = False
) -> dict[str, Any]:
    """Attach a free device and return the outcome as JSON values; in a dry run, the outcome that it would have.

    Raises:
        DrawbarError: it cannot be attached, or the operator declines.
    """
    can, device = await _read(adapter, device_id)
    if not can.exact_device:
        raise errors.DrawbarError(
            "the fabric chooses the device itself, so none can be named; use `drawbar fabric attach` with --model and --host"
        )
    await _require_host(adapter, host_id)
    if device.connection is not None:
        if device.connection.host_id == host_id:
            return _outcome(device_id, host_id, changed=False)
        raise errors.DrawbarError(
            f"device {device_id} is attached to host {device.connection.host_id}; detach it there first"
        )
    question = f"Attach device {device_id} to host {host_id}?{_warn_of_missing_marks(can)}"
    if await consent.settle(question, assumed=assumed, dry_run=dry_run):
        request = contract.AttachRequest(
            request_id=_request_id(), device_id=device_id, host_id=host_id, expected_etag=device.etag
        )
        activity = f"attaching device {device_id} to host {host_id}"
        await _wait_for_end(adapter, await adapter.attach(request), activity)
    return _outcome(device_id, host_id, changed=True)


async def attach_model(
    adapter: contract.FabricAdapter, model: str, host_id: str, *, assumed: bool, dry_run: bool = False
) -> dict[str, Any]:
    """Attach a device of a model, which the fabric chooses, and return the outcome as JSON values.

    In a dry run, return the outcome that it would have, without a device.

    Raises:
        DrawbarError: none can be attached, or the operator declines.
    """
    async with progress.show_activity("reading the fabric"):
        can = await adapter.capabilities()
        devices = (await adapter.devices()).devices
    if not can.select_by_model:
        raise errors.DrawbarError("the fabric attaches no device by its model; name DEVICE and HOST instead")
    require_free(devices, model)
    await _require_host(adapter, host_id)
    warning = (
        ""
        if can.marks
        else " The fabric keeps no marks: a cluster that waits for such a device on that host may take this one for its own."
    )
    question = f"Attach a device of the model {model}, which the fabric chooses, to host {host_id}?{warning}"
    if not await consent.settle(question, assumed=assumed, dry_run=dry_run):
        return _outcome(None, host_id, changed=True)
    request = contract.AttachRequest(request_id=_request_id(), model=model, host_id=host_id)
    activity = f"attaching a device of the model {model} to host {host_id}"
    operation = await _wait_for_end(adapter, await adapter.attach(request), activity)
    if operation.device is None:
        raise errors.DrawbarError(
            f"the attach of a device of the model {model} ended, and the fabric does not show which device it chose; "
            "`drawbar fabric devices` lists those of the host"
        )
    return _outcome(operation.device.id, host_id, changed=True)


def require_free(devices: Collection[contract.Device], model: str) -> None:
    """Return if a device of the model can be attached.

    Raises:
        DrawbarError: there is none, or none is free.
    """
    alike = [device for device in devices if device.model == model]
    if not alike:
        raise objects.Missing(
            f"there is no device of the model {model}; `drawbar fabric devices` lists the models"
        )
    carved = contract.find_carved(devices)
    if not any(
        device.connection is None and device.slice_of is None and device.id not in carved for device in alike
    ):
        raise errors.DrawbarError(f"no device of the model {model} is free; detach one first")


async def detach(
    adapter: contract.FabricAdapter, device_id: str, *, assumed: bool, dry_run: bool = False
) -> dict[str, Any]:
    """Detach a device from its host, and return the outcome as JSON values; in a dry run, the outcome that it would have.

    Raises:
        DrawbarError: it cannot be detached, or the operator declines.
    """
    can, device = await _read(adapter, device_id)
    if device.connection is None:
        return _outcome(device_id, None, changed=False)
    host_id = device.connection.host_id
    question = (
        f"Detach device {device_id} from host {host_id}? The host is not asked: programs that use the device there fail."
        f"{_warn_of_missing_marks(can)}"
    )
    if not await consent.settle(question, assumed=assumed, dry_run=dry_run):
        return _outcome(device_id, None, changed=True)
    # An answer may come late, and a detach has no etag to protect it.
    _, now = await _read(adapter, device_id)
    if now.connection != device.connection:
        raise errors.DrawbarError(
            f"the connection of device {device_id} changed while the question stood, and nothing was done; look at it again"
        )
    request = contract.DetachRequest(
        request_id=_request_id(), device_id=device_id, host_id=host_id, host_prepared=True
    )
    await _wait_for_end(
        adapter, await adapter.detach(request), f"detaching device {device_id} from host {host_id}"
    )
    return _outcome(device_id, None, changed=True)


async def _read(
    adapter: contract.FabricAdapter, device_id: str
) -> tuple[contract.Capabilities, contract.Device]:
    """Return the fabric's capabilities and a device that may be changed."""
    async with progress.show_activity("reading the fabric"):
        can = await adapter.capabilities()
        inventory = await adapter.devices()
        operations = await adapter.operations()
    device = inventory.device(device_id)
    if device is None:
        raise objects.Missing(inventory.explain_missing(device_id, "`drawbar fabric devices` lists the ids"))
    mark = device.connection.mark if device.connection is not None else None
    if mark is not None:
        raise errors.DrawbarError(
            f"device {device_id} is attached by a cluster (mark {mark}); in that cluster delete the pod or claim that has it, "
            "or use `drawbar fabric detach` with --fabric"
        )
    for operation in operations:
        if not operation.done and operation.device is not None and operation.device.id == device_id:
            raise errors.DrawbarError(
                f"device {device_id} has the {operation.kind.value} {operation.id} in flight; wait for its end"
            )
    return can, device


async def _require_host(adapter: contract.FabricAdapter, host_id: str) -> None:
    if host_id not in {host.id for host in await adapter.hosts()}:
        raise objects.Missing(f"there is no host {host_id}; `drawbar fabric hosts` lists the ids")


async def _wait_for_end(
    adapter: contract.FabricAdapter, operation: contract.Operation, activity: str
) -> contract.Operation:
    """Wait for the end of an operation, report its progress and return it; raise an error if it failed."""
    async with progress.show_activity(activity):
        percent = None
        while not operation.done:
            if operation.percent not in (None, percent):
                percent = operation.percent
                sys.stderr.write(f"{activity} ... {percent} %\n")
            pause = operation.retry_after_seconds or POLL_SECONDS
            await asyncio.sleep(min(max(pause, POLL_SECONDS_MIN), POLL_SECONDS_MAX))
            operation = await adapter.operation(operation_id=operation.id)
    failure = operation.failure()
    if failure is not None:
        raise failure
    return operation


def _warn_of_missing_marks(can: contract.Capabilities) -> str:
    """Return the warning for a question if the fabric cannot show a cluster's use of a device."""
    return (
        "" if can.marks else " The fabric keeps no marks: whether a cluster uses the device is not visible."
    )


def _request_id() -> str:
    return f"by-hand-{uuid.uuid4()}"


def _outcome(device_id: str | None, host_id: str | None, *, changed: bool) -> dict[str, Any]:
    return {"device": device_id, "host": host_id, "changed": changed}
