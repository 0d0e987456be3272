"""What the allocations of all claims take of the devices. Pure.

A device is either taken whole, or shared: then each allocation has a share ID and an amount of every capacity. Admin
access takes nothing from anybody. A share whose amount cannot be read takes the device whole.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import capacity, objects


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What one allocated device takes. `amounts` is None where it takes the device whole."""

    device: documents.DeviceID
    amounts: Mapping[str, Decimal] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The sum.

    Attributes:
        whole: devices that no other claim can have.
        shared: the amounts taken of devices that are shared.
    """

    whole: frozenset[documents.DeviceID] = frozenset()
    shared: Mapping[documents.DeviceID, Mapping[str, Decimal]] = field(default_factory=dict)

    def touches(self, device: documents.DeviceID) -> bool:
        """Whether anybody has anything of the device."""
        return device in self.whole or device in self.shared


def of_claim(claim: documents.Document) -> tuple[Use, ...]:
    """What a stored allocation takes."""
    return tuple(
        Use(
            device=(result["driver"], result["pool"], result["device"]),
            amounts=_amounts(result.get("consumedCapacity")) if result.get("shareID") else None,
        )
        for result in documents.results(claim)
        if not result.get("adminAccess")
    )


def of_allocation(allocation: objects.Allocation) -> tuple[Use, ...]:
    """What an allocation under way takes."""
    return tuple(
        Use(
            device=(result.driver, result.pool, result.device),
            amounts=_amounts(result.consumed_capacity) if result.share_id else None,
        )
        for result in allocation.devices.results
        if not result.admin_access
    )


def total(uses: Iterable[Use]) -> Usage:
    """The sum of all uses."""
    whole: set[documents.DeviceID] = set()
    shared: dict[documents.DeviceID, Mapping[str, Decimal]] = {}
    for use in uses:
        if use.amounts is None:
            whole.add(use.device)
        else:
            shared[use.device] = capacity.added(shared.get(use.device, {}), use.amounts)
    return Usage(whole=frozenset(whole), shared=shared)


class Tally:
    """The sum of uses that come and go, each under the name of who has it."""

    def __init__(self) -> None:
        self._uses: dict[str, tuple[Use, ...]] = {}
        self._whole: Counter[documents.DeviceID] = Counter()
        self._shares: dict[documents.DeviceID, Counter[str]] = {}
        self._total: Usage | None = Usage()

    def put(self, owner: str, uses: tuple[Use, ...]) -> None:
        """What the owner has from now on; nothing, if that is empty."""
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
        """The sum of what all have."""
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
