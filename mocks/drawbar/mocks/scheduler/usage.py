"""The usage of devices by the allocations of all claims. Pure.

A device is used as a whole, or shared. A shared allocation has a share ID and an amount of every capacity. Admin
access uses nothing. A share with an invalid amount uses the whole device.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import capacity, objects


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The usage of one allocated device. `amounts` is None for a whole device."""

    device: documents.DeviceID
    amounts: Mapping[str, Decimal] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The sum.

    Attributes:
        whole: the devices in whole use, closed to other claims.
        shared: the used amounts of shared devices.
    """

    whole: frozenset[documents.DeviceID] = frozenset()
    shared: Mapping[documents.DeviceID, Mapping[str, Decimal]] = field(default_factory=dict)


def of_claim(claim: documents.Document) -> tuple[Use, ...]:
    """Return the usage of a stored allocation."""
    return tuple(
        Use(
            device=(result["driver"], result["pool"], result["device"]),
            amounts=_amounts(result.get("consumedCapacity")) if result.get("shareID") else None,
        )
        for result in documents.results(claim)
        if not result.get("adminAccess")
    )


def of_allocation(allocation: objects.Allocation) -> tuple[Use, ...]:
    """Return the usage of an allocation in progress."""
    return tuple(
        Use(
            device=(result.driver, result.pool, result.device),
            amounts=_amounts(result.consumed_capacity) if result.share_id else None,
        )
        for result in allocation.devices.results
        if not result.admin_access
    )


def total(uses: Iterable[Use]) -> Usage:
    """Return the sum of all uses."""
    whole: set[documents.DeviceID] = set()
    shared: dict[documents.DeviceID, Mapping[str, Decimal]] = {}
    for use in uses:
        if use.amounts is None:
            whole.add(use.device)
        else:
            shared[use.device] = capacity.add_amounts(shared.get(use.device, {}), use.amounts)
    return Usage(whole=frozenset(whole), shared=shared)


class Tally:
    """A sum of changing uses, by owner."""

    def __init__(self) -> None:
        self._uses: dict[str, tuple[Use, ...]] = {}
        self._whole: Counter[documents.DeviceID] = Counter()
        self._shares: dict[documents.DeviceID, Counter[str]] = {}
        self._total: Usage | None = Usage()

    def put(self, owner: str, uses: tuple[Use, ...]) -> None:
        """Replace the uses of an owner; an empty tuple removes them."""
        before = self._uses.pop(owner, ())
        if before == uses:
            self._uses |= {owner: uses} if uses else {}
            return
        self._total = None
        if uses:
            self._uses[owner] = uses
        for use in before:
            self._count(owner, use, -1)
        for use in uses:
            self._count(owner, use, 1)

    def total(self) -> Usage:
        """Return the sum of all uses."""
        if self._total is None:
            shared = (
                use
                for device, owners in self._shares.items()
                for owner in owners
                for use in self._uses[owner]
                if use.device == device and use.amounts is not None
            )
            self._total = Usage(whole=frozenset(self._whole), shared=total(shared).shared)
        return self._total

    def _count(self, owner: str, use: Use, number: int) -> None:
        if use.amounts is None:
            self._whole[use.device] += number
            if not self._whole[use.device]:
                del self._whole[use.device]
            return
        owners = self._shares.setdefault(use.device, Counter())
        owners[owner] += number
        if not owners[owner]:
            del owners[owner]
        if not owners:
            del self._shares[use.device]


def _amounts(consumed: Mapping[str, str] | None) -> Mapping[str, Decimal] | None:
    try:
        return capacity.numbers(consumed or {})
    except ValueError:
        return None
