"""What a claim asks for, in one form for both versions of the API; pure.

A request names a class of devices, a model, selectors, or any of these; all that it names must hold. A device with a
taint that keeps others away is unsuitable unless the request tolerates the taint. An optional request is content with
no device where none is left.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from drawbar.driver.api import claims, slices
from drawbar.driver.controller.pools import taints

ANY = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """Taints that a request puts up with.

    Attributes:
        key: of the taint, with its domain; `ANY` for all.
        value: of the taint; None for any.
        effect: of the taint; `ANY` for all.
    """

    key: str = ANY
    value: str | None = None
    effect: str = ANY

    def covers(self, taint: slices.Taint) -> bool:
        """Whether it is about this taint."""
        return (
            self.key in (ANY, taint.key)
            and self.value in (None, taint.value)
            and self.effect in (ANY, taint.effect)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Devices of one kind.

    Attributes:
        name: within its claim.
        device_class: one of `drawbar.fabric.contract.DeviceClass`, or `ANY`.
        model: as the fabric manager tells it, or `ANY`.
        selectors: CEL expressions, all of which must be true.
        optional: all of `count` devices, or none.
    """

    name: str
    count: int = 1
    device_class: str = ANY
    model: str = ANY
    selectors: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """All that one claim asks for.

    Attributes:
        shareable: several pods may use it at a time.
        suitable_nodes: of its classes; a node must match all.
        config: what its classes and itself say of the devices, for the node; v1alpha3.
        problem: why it cannot be served, in one sentence; empty when it can.
    """

    requests: tuple[Request, ...] = ()
    shareable: bool = False
    suitable_nodes: tuple[claims.NodeSelector, ...] = ()
    config: tuple[claims.AllocatedConfiguration, ...] = ()
    problem: str = ""

    @property
    def devices(self) -> int:
        """How many devices it takes at most."""
        return sum(request.count for request in self.requests)


def tolerated(request: Request, found: Iterable[slices.Taint]) -> bool:
    """Whether no taint keeps the device from this request."""
    return all(
        taint.effect == taints.NO_EFFECT or any(one.covers(taint) for one in request.tolerations)
        for taint in found
    )
