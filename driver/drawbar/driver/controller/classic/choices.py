"""Which nodes will do for a party, and with which devices; pure.

All claims of a pod are looked at together. Optional requests count while some node can have them; only where none can, the
party does without, so that a pod goes without a device only when there is none left for it.

A node whose devices have longer names than an allocation has room for will not do: that is known before anything is
attached.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from drawbar.driver.api import handles
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import attempts, parties

Share = tuple[tuple[str, tuple[names.DeviceKey, ...]], ...]
"""The devices of a claim, by the name of its request."""
Nodes = Callable[[], Iterable[str]]
# For so many devices there is always room.
SURELY_FIT = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request of one claim."""

    claim: str
    request: matching.Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The outcome.

    Attributes:
        asked: what all these nodes can give; optional requests that none can are not among them.
        suitable: by node name the devices for each of `asked`, in the order in which the nodes were asked for.
    """

    asked: tuple[Asked, ...]
    suitable: Mapping[str, matching.Given]

    def of(self, claim: str, node: str) -> Share:
        """What one claim gets there, by request."""
        return tuple(
            (one.request.name, keys)
            for one, keys in zip(self.asked, self.suitable[node], strict=True)
            if one.claim == claim
        )

    def devices(self, node: str) -> tuple[names.DeviceKey, ...]:
        """All devices that the node would get."""
        return tuple(key for keys in self.suitable[node] for key in keys)


def choose(left: matching.Stock, waiting: Iterable[parties.Waiting], nodes: Nodes) -> Choice:
    """Judges the nodes.

    Args:
        left: what is left.
        waiting: claims of one party, each once.
        nodes: gives those that come into question; not asked where too few devices are left for any of them.
    """
    everything = [
        Asked(claim=one.claim.uid, request=request) for one in waiting for request in one.wanted.requests
    ]
    found = _judged(left, everything, nodes)
    optional = [one for one in everything if one.request.optional]
    if found.suitable or not optional:
        return found
    mandatory = [one for one in everything if not one.request.optional]
    found = _judged(left, mandatory, nodes)
    for one in optional:
        better = _judged(left, [*found.asked, one], nodes) if found.suitable else found
        found = better if better.suitable else found
    return found


def with_room(
    choice: Choice, left: matching.Stock, waiting: Iterable[parties.Waiting], began: str
) -> tuple[Choice, Mapping[str, str]]:
    """Leaves out the nodes where an allocation would be too large; by claim uid, why nodes were left out."""
    large = [one for one in waiting if one.wanted.devices > SURELY_FIT]
    refused: dict[str, str] = {}
    kept = {}
    for node, given in choice.suitable.items():
        expected = {one.claim.uid: _handle(choice, left, one, node, began) for one in large}
        found = {uid: why for uid, handle in expected.items() if (why := attempts.too_large(handle))}
        refused |= found
        if not found:
            kept[node] = given
    return replace(choice, suitable=kept), refused


def _handle(
    choice: Choice, left: matching.Stock, one: parties.Waiting, node: str, began: str
) -> handles.Handle:
    """The allocation that an attempt with these devices would end in."""
    share = dict(choice.of(one.claim.uid, node))
    return handles.Handle(
        node=node,
        allocated_at=began,
        devices=tuple(
            handles.HandleDevice(
                request=request,
                fabric=key.fabric,
                pool=left.device(key).pool,
                device=key.device,
                attachment=key.attachment,
            )
            for request, keys in share.items()
            for key in keys
        ),
        without=tuple(request.name for request in one.wanted.requests if request.name not in share),
    )


def _judged(left: matching.Stock, asked: Iterable[Asked], nodes: Nodes) -> Choice:
    wanted = tuple(asked)
    search = matching.Search(left, tuple(one.request for one in wanted))
    if search.hopeless:
        return Choice(asked=wanted, suitable={})
    suitable = {node: given for node in nodes() if (given := search.on(node)) is not None}
    return Choice(asked=wanted, suitable=suitable)
