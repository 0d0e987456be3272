"""Runs the checks of the contract against any adapter and a fabric with something free in it, and reports."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from drawbar.fabric import contract, errors
from drawbar.fabric.conformance.bench import Bench, CheckFailed, CheckSkipped
from drawbar.fabric.conformance.checks import CHECKS, Check


class Verdict(StrEnum):
    """How one check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One check.

    Attributes:
        name: the sentence that was checked.
        verdict: see `Verdict`.
        detail: what was seen instead, or why it was skipped; empty when it passed.
    """

    name: str
    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All checks, in the order in which they ran."""

    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Nothing failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The checks that failed."""
        return tuple(outcome for outcome in self.outcomes if outcome.verdict is Verdict.FAILED)

    @property
    def skipped(self) -> tuple[Outcome, ...]:
        """The checks that this fabric does not allow."""
        return tuple(outcome for outcome in self.outcomes if outcome.verdict is Verdict.SKIPPED)


CHECK_SECONDS = 60.0


async def check(
    adapter: contract.FabricAdapter,
    *,
    device_id: str | None = None,
    host_ids: tuple[str, ...] = (),
    check_seconds: float = CHECK_SECONDS,
    checks: Iterable[Check] = CHECKS,
) -> Report:
    """Judges an adapter. Uses one free device and up to two hosts, and leaves them as they were found.

    Attaches by model, where the fabric has them, use further free devices of that device's model.

    Args:
        adapter: connected; stays the caller's to close.
        device_id: the device to use; the first free one when None. What it carries may be lost.
        host_ids: the hosts to use; the first two with a free port when empty.
        check_seconds: the longest that one check may take, hardware included.
        checks: which; all by default.

    Raises:
        FailedPrecondition: there is no free device, or no host with a free port.
        FabricError: the fabric cannot be read at all.
    """
    bench = await _bench(adapter, device_id, host_ids)
    outcomes = []
    for next_check in checks:
        outcomes.append(await _outcome(next_check, bench, check_seconds))
        freeing = Check(name=f"the device can be freed after: {next_check.name}", body=Bench.free_device)
        freed = await _outcome(freeing, bench, check_seconds)
        if freed.verdict is not Verdict.PASSED:
            # Every further check would only say the same again.
            outcomes.append(freed)
            break
    return Report(outcomes=tuple(outcomes))


async def _bench(adapter: contract.FabricAdapter, device_id: str | None, host_ids: tuple[str, ...]) -> Bench:
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
    if not host_ids:
        free = [host for host in await adapter.hosts() if _has_free_port(host)]
        host_ids = tuple(host.id for host in free)
    if not host_ids:
        raise errors.FailedPrecondition("no host has a free port to check with; free one, or name one")
    return Bench(
        adapter,
        can,
        device=device,
        host_id=host_ids[0],
        other_host_id=host_ids[1] if len(host_ids) > 1 else None,
    )


def _has_free_port(host: contract.Host) -> bool:
    return any(port.state is contract.PortState.FREE for port in host.ports)


async def _outcome(single: Check, bench: Bench, check_seconds: float) -> Outcome:
    def ended(verdict: Verdict, detail: str = "") -> Outcome:
        return Outcome(name=single.name, verdict=verdict, detail=detail)

    try:
        async with asyncio.timeout(check_seconds):
            await single.body(bench)
    except CheckSkipped as reason:
        return ended(Verdict.SKIPPED, str(reason))
    except CheckFailed as reason:
        return ended(Verdict.FAILED, str(reason))
    except errors.FabricError as error:
        return ended(Verdict.FAILED, f"unexpected {error.code}: {error.message}")
    except TimeoutError:
        return ended(Verdict.FAILED, f"not finished within {check_seconds:g} s")
    return ended(Verdict.PASSED)
