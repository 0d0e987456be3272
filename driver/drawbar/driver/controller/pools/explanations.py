"""What a taint says to people and to programs: what is wrong, what lifts it, and the evidence behind it; pure.

The description is one sentence that names both; the data are a flat object with a few of the same keys for every taint:
`source` (who noticed: fabric, node, controller or operator), `fabric`, `node`, `host`, `reason`, `message`, `failures`,
`probationSeconds`. When it began is the taint's own `timeAdded`. What is not known is left out, and nothing in it changes while
the cause stays the same, for each change is a write.

Source: KEP-5055, DeviceTaint; limits from its validation (1 KiB and 10 KiB).
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

DESCRIPTION_BYTES = 1024
# Somebody else's words, of which the Event has all.
MESSAGE_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a device beside the verdict.

    Attributes:
        fabric: name of the Fabric object.
        node: that has the device, or should get it.
        host: of the fabric, that has it.
        message: about a failed attach, in the words of the fabric manager or the kernel.
        by_node: the node reported that failure.
        failures: how often in a row it failed; 0 when not known.
        blocking: the reason why its node does not let go of it.
        symptoms: what its node says of its health.
    """

    fabric: str = ""
    node: str = ""
    host: str = ""
    message: str = ""
    by_node: bool = False
    failures: int = 0
    blocking: str = ""
    symptoms: str = ""


NOTHING = Evidence()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What stands in the taint."""

    description: str
    data: Mapping[str, str | int]


def attach_failed(reason: str, evidence: Evidence, probation: datetime.timedelta) -> Explanation:
    """It could not be attached, or its node could not use it."""
    seconds = round(probation.total_seconds())
    where = f" to node {evidence.node}" if evidence.node else ""
    return _explanation(
        f"Attaching it{where} failed ({reason}); lifted {seconds} s after the failure, once its DeviceAttachment is gone.",
        source="node" if evidence.by_node else "controller",
        node=evidence.node,
        reason=reason,
        message=evidence.message,
        failures=evidence.failures,
        probationSeconds=seconds,
    )


def lost(evidence: Evidence, *, listed: bool) -> Explanation:
    """It vanished while a claim had it.

    Args:
        evidence: what else is known.
        listed: the fabric manager still has it.
    """
    who = (
        f"Node {evidence.node or 'of its claim'} lost it"
        if listed
        else "Its fabric manager no longer lists it"
    )
    return _explanation(
        f"{who} while a claim has it; lifted when the claim lets go of it.",
        source="node" if listed else "fabric",
        node=evidence.node,
        message=evidence.message if listed else "",
    )


def foreign(evidence: Evidence) -> Explanation:
    """Somebody else has it."""
    return _explanation(
        f"Host {evidence.host} has it, and no claim of this cluster; lifted when the fabric manager says that it is free.",
        source="fabric",
        host=evidence.host,
    )


def held(evidence: Evidence) -> Explanation:
    """An operator attached it."""
    return _explanation(
        f"An operator attached it by hand to node {evidence.node}; lifted when that DeviceAttachment is deleted and the "
        "device is free.",
        source="operator",
        node=evidence.node,
        host=evidence.host,
    )


def stuck(evidence: Evidence) -> Explanation:
    """Its release takes too long; without a report of its node it is not known why."""
    if evidence.blocking:
        text = f"Node {evidence.node} does not let go of it ({evidence.blocking})"
    else:
        text = f"Its release from node {evidence.node} takes long"
    return _explanation(
        f"{text}; lifted when the fabric manager says that it is free.",
        source="node" if evidence.blocking else "controller",
        node=evidence.node,
        reason=evidence.blocking,
    )


def ill(health: str, evidence: Evidence) -> Explanation:
    """The fabric manager says so."""
    return _explanation(
        f"Its fabric manager reports it as {health}; lifted when it reports it well.",
        source="fabric",
        fabric=evidence.fabric,
    )


def unhealthy(evidence: Evidence) -> Explanation:
    """Its node says so."""
    return _explanation(
        f"Node {evidence.node} reports it unhealthy; lifted when it reports it well or has let go of it.",
        source="node",
        node=evidence.node,
        message=evidence.symptoms,
    )


def finding(name: str, message: str, evidence: Evidence) -> Explanation:
    """Its node found something wrong with it."""
    what = f": {_cut(message, MESSAGE_BYTES)}" if message else ""
    return _explanation(
        f"Node {evidence.node} found {name}{what}; lifted when the node finds it no more or has let go of the device.",
        source="node",
        node=evidence.node,
        reason=name,
        message=message,
    )


def unreachable(evidence: Evidence) -> Explanation:
    """Nobody can attach it now."""
    return _explanation(
        f"The fabric manager of the Fabric {evidence.fabric} has been silent for longer than "
        "policy.unreachableGraceSeconds; lifted when it answers.",
        source="controller",
        fabric=evidence.fabric,
    )


def maintenance(evidence: Evidence) -> Explanation:
    """An administrator wants it left alone."""
    return _explanation(
        f"spec.maintenance of the Fabric {evidence.fabric} names it, or all; lifted when it no longer does.",
        source="operator",
        fabric=evidence.fabric,
    )


def reserved(evidence: Evidence) -> Explanation:
    """The claim that has it is the last one that the scheduler gave it to."""
    return _explanation(
        f"policy.immediate of the Fabric {evidence.fabric} reserves it for immediate allocation; it is withdrawn when "
        "the claim that has it lets go of it.",
        source="operator",
        fabric=evidence.fabric,
    )


def _explanation(sentence: str, **data: str | int) -> Explanation:
    known = {
        name: _cut(value, MESSAGE_BYTES) if isinstance(value, str) else value
        for name, value in data.items()
        if value
    }
    return Explanation(description=_cut(sentence, DESCRIPTION_BYTES), data=known)


def _cut(text: str, most: int) -> str:
    """At most so many bytes, without half a character at the end."""
    return text.encode()[:most].decode(errors="ignore")
