"""The conformance suite: it runs the contract's checks on any adapter with a free device, and reports the outcomes."""

import asyncio
from collections.abc import Callable, Iterable

from drawbar.fabric import contract, errors
from drawbar.fabric.conformance.bench import Bench, CheckFailed, CheckSkipped, CheckWarned
from drawbar.fabric.conformance.checks import CHECKS, Check
from drawbar.fabric.conformance.reports import Outcome, Report, Verdict

CHECK_SECONDS = 60.0


async def check(
    adapter: contract.FabricAdapter,
    *,
    device_id: str | None = None,
    device_ids: tuple[str, ...] = (),
    host_ids: tuple[str, ...] = (),
    check_seconds: float = CHECK_SECONDS,
    checks: Iterable[Check] = CHECKS,
    ended: Callable[[Outcome], None] | None = None,
) -> Report:
    """Check an adapter and return the report. Use one free device and up to two hosts, and leave them as they were.

    If the fabric has attaches by model, the suite uses further free devices of that model, unless `device_ids` is
    given.

    Args:
        adapter: connected; the caller closes it.
        device_id: the device to use; None for the first free one. Its data may be lost.
        device_ids: the only devices to touch, all of them free; the first is the one to use. Checks in which the
            fabric could choose another one are skipped.
        host_ids: the hosts to use; if empty, the first two with a free port.
        check_seconds: the longest time of one check, hardware included.
        checks: the checks to run; all by default.
        ended: called with each check's outcome.

    Raises:
        FailedPrecondition: there is no free device, or no host with a free port; with `device_ids`, one of them is
            not free, the fabric chooses the device itself among others, or a host of `host_ids` is not listed.
        FabricError: the fabric cannot be read at all.
    """
    if device_ids:
        await _verify_bounds(adapter, device_ids, host_ids)
        device_id = device_ids[0]
    bench = await _bench(adapter, device_id, host_ids, frozenset(device_ids) or None)
    outcomes = []
    for next_check in checks:
        outcomes.append(await _outcome(next_check, bench, check_seconds))
        if ended is not None:
            ended(outcomes[-1])
        freeing = Check(name=f"the device can be freed after: {next_check.name}", body=Bench.free_device)
        freed = await _outcome(freeing, bench, check_seconds)
        if freed.verdict is not Verdict.PASSED:
            # Every further check would fail for the same reason.
            outcomes.append(freed)
            break
    return Report(outcomes=tuple(outcomes))


async def _verify_bounds(
    adapter: contract.FabricAdapter, device_ids: tuple[str, ...], host_ids: tuple[str, ...]
) -> None:
    """Raise FailedPrecondition if the checks cannot be limited to these devices and hosts."""
    can, inventory = await adapter.capabilities(), await adapter.devices()
    for device_id in device_ids:
        device = inventory.device(device_id)
        if device is None:
            raise errors.FailedPrecondition(inventory.explain_missing(device_id, "name one that is listed"))
        if device.connection is not None:
            raise errors.FailedPrecondition(
                f"device {device_id} is attached to host {device.connection.host_id}; detach it, or name another one"
            )
    missing = set(host_ids) - {host.id for host in await adapter.hosts()}
    if missing:
        raise errors.FailedPrecondition(f"there is no host {min(missing)}; name one that is listed")
    model = next(device.model for device in inventory.devices if device.id == device_ids[0])
    outside = [item.id for item in inventory.devices if item.model == model and item.id not in device_ids]
    if not can.exact_device and outside:
        raise errors.FailedPrecondition(
            f"the fabric chooses the device itself, and could choose {outside[0]}; name all devices of the model {model}"
        )


async def _bench(
    adapter: contract.FabricAdapter,
    device_id: str | None,
    host_ids: tuple[str, ...],
    device_ids: frozenset[str] | None,
) -> Bench:
    can = await adapter.capabilities()
    device = next(
        (
            device
            for device in (await adapter.devices()).devices
            if (device.connection is None if device_id is None else device.id == device_id)
            and (can.exact_device or device.model)
        ),
        None,
    )
    if device is None:
        raise errors.FailedPrecondition("the fabric has no free device to check with; free one, or name one")
    hosts = await adapter.hosts()
    alike = [
        other
        for other in (await adapter.devices()).devices
        if other.id == device.id or (not can.exact_device and other.model == device.model)
    ]
    unreached = [
        host.id
        for host in hosts
        if not any(map(host.reaches, alike)) and (not host_ids or host.id in host_ids)
    ]
    if not host_ids:
        free = [host for host in hosts if _has_free_port(host) and host.reaches(device)]
        host_ids = tuple(host.id for host in free)
    host_ids = tuple(host_id for host_id in host_ids if host_id not in unreached)
    if not host_ids:
        raise errors.FailedPrecondition(
            f"no host has a free port and reaches device {device.id}; free a port, or name another device"
        )
    return Bench(
        adapter,
        can,
        device=device,
        host_id=host_ids[0],
        other_host_id=host_ids[1] if len(host_ids) > 1 else None,
        unreached_host_id=next(iter(unreached), None),
        device_ids=device_ids,
    )


def _has_free_port(host: contract.Host) -> bool:
    return any(port.state is contract.PortState.FREE for port in host.ports)


async def _outcome(single: Check, bench: Bench, check_seconds: float) -> Outcome:
    def make_outcome(verdict: Verdict, detail: str = "") -> Outcome:
        return Outcome(name=single.name, verdict=verdict, detail=detail)

    try:
        async with asyncio.timeout(check_seconds):
            await single.body(bench)
    except CheckSkipped as reason:
        return make_outcome(Verdict.SKIPPED, str(reason))
    except CheckWarned as reason:
        return make_outcome(Verdict.WARNED, str(reason))
    except CheckFailed as reason:
        return make_outcome(Verdict.FAILED, str(reason))
    except errors.FabricError as error:
        return make_outcome(Verdict.FAILED, f"unexpected {error.code}: {error.message}")
    except TimeoutError:
        return make_outcome(Verdict.FAILED, f"not finished within {check_seconds:g} s")
    return make_outcome(Verdict.PASSED)
