"""The suitable nodes for the claims of one requester, with their devices."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from drawbar.driver.api import handles
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import observation

Share = tuple[tuple[str, tuple[names.DeviceKey, ...]], ...]
"""The devices of a claim, by the name of its request."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The suitable nodes for a requester, with their devices.

    Attributes:
        requests: with the UIDs of their claims, the requests that all these nodes can meet; without optional ones that
            none can.
        suitable: by node name, the devices for each of `requests`, in the order of the candidates.
    """

    requests: tuple[tuple[str, matching.Request], ...]
    suitable: Mapping[str, matching.DevicesByRequest]

    def share(self, claim: str, node: str) -> Share:
        """Return the devices of one claim on a node."""
        return tuple(
            (request.name, keys)
            for (uid, request), keys in zip(self.requests, self.suitable[node], strict=True)
            if uid == claim
        )


def choose(
    stock: matching.Stock, once: tuple[observation.Waiting, ...], candidates: Callable[[], Iterable[str]]
) -> Choice:
    """Return the suitable nodes; optional requests count while some node can have them.

    Args:
        stock: the free devices.
        once: claims of one requester, each once.
        candidates: returns the candidates; not called if too few devices are left for any node.
    """

    def judge(asked: Iterable[tuple[str, matching.Request]]) -> Choice:
        asked = tuple(asked)
        search = matching.Search(stock, tuple(request for _, request in asked))
        nodes = () if search.hopeless else candidates()
        return Choice(
            requests=asked,
            suitable={node: devices for node in nodes if (devices := search.match_on(node)) is not None},
        )

    everything = [(waiting.claim.uid, request) for waiting in once for request in waiting.requests.requests]
    choice = judge(everything)
    optional = [asked for asked in everything if asked[1].optional]
    if choice.suitable or not optional:
        return choice
    choice = judge(asked for asked in everything if not asked[1].optional)
    for optional_request in optional if choice.suitable else ():
        better = judge((*choice.requests, optional_request))
        choice = better if better.suitable else choice
    return choice


def expect_handle(
    choice: Choice, waiting: observation.Waiting, node: str, stock: matching.Stock, began: str
) -> handles.Handle:
    """Return the allocation at the end of an attempt with the devices of the choice."""
    share = dict(choice.share(waiting.claim.uid, node))
    return handles.Handle(
        node=node,
        allocated_at=began,
        devices=tuple(
            handles.HandleDevice(
                request=request,
                fabric=key.fabric,
                pool=stock.device(key).pool,
                device=key.device,
                attachment=key.attachment,
            )
            for request, keys in share.items()
            for key in keys
        ),
        without=tuple(request.name for request in waiting.requests.requests if request.name not in share),
    )
