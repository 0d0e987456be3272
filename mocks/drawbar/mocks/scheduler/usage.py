"""What the allocations of all claims take of the devices. Pure.

A device is either taken whole, or shared: then each allocation has a share ID and an amount of every capacity. Admin
access takes nothing from anybody. A share whose amount cannot be read takes the device whole.
"""

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
        whole: devices that nobody else can have.
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


def _amounts(consumed: Mapping[str, str] | None) -> Mapping[str, Decimal] | None:
    try:
        return capacity.numbers(consumed or {})
    except ValueError:
        return None
