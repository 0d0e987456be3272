"""The fabrics of the tree, and the state of each; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from drawbar.driver import naturalorder
from drawbar.driver.api import fabrics, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.cli.doctor.findings import Severity
from drawbar.driver.cli.doctor.plans import fabrics as judging
from drawbar.driver.cli.status import categories, tree

CONNECTED, BLOCKED = "Connected", "Blocked"
DELETING, PENDING, MISSING, UNKNOWN = "Deleting", "Pending", "Missing", "Unknown"


def describe_fabric(
    name: str,
    fabric: fabrics.Fabric | None,
    enclosures: Mapping[str, Iterable[tree.Device]],
    *,
    is_listed: bool,
) -> tree.Fabric:
    """Return a fabric.

    Args:
        name: the Fabric's name.
        fabric: the Fabric object; None if there is none.
        enclosures: the devices of each enclosure.
        is_listed: whether Fabrics can be read now; if not, a fabric without an object is not missing, and the state of
            an object is only the last known one.
    """
    if fabric is None:
        return tree.Fabric(
            name=name,
            state=MISSING if is_listed else UNKNOWN,
            since="",
            message="",
            enclosures=_sort_enclosures(enclosures),
        )
    troubles = tuple(judging.judge_all(fabric))
    state, since, message = _describe_state(fabric, troubles)
    problems = tuple(
        tree.Problem(
            severity=trouble.finding.severity.value,
            message=trouble.finding.message,
            remedy=trouble.finding.remedy,
        )
        for trouble in troubles
    )
    if state == CONNECTED and (blocked := _describe_block(enclosures)):
        state, message = BLOCKED, blocked
        remedy = f"drawbar explain fabric/{name}"
        problems = (tree.Problem(severity=Severity.WARNING.value, message=blocked, remedy=remedy),)
    if not is_listed:
        state, since, message = UNKNOWN, "", f"Fabrics cannot be read now; the last known state is {state}"
    status = fabric.status
    return tree.Fabric(
        name=name,
        state=state,
        since=since,
        message=message,
        enclosures=_sort_enclosures(enclosures),
        problems=problems,
        not_offered=status.not_offered,
        reach_groups=tuple(
            tree.ReachGroup(id=group.id, devices=group.devices, hosts=group.hosts, nodes=group.nodes)
            for group in status.reach_groups
        ),
        incompatible=tuple(
            tree.RefusedPair(
                device=pair.device, host=pair.host, message=pair.message, refused_at=pair.refused_at
            )
            for pair in status.incompatible
        ),
    )


def _describe_block(enclosures: Mapping[str, Iterable[tree.Device]]) -> str:
    """Return why no claim can get a device of a fabric; empty if one is free, in use or moving."""
    counts = Counter(
        categories.judge(device) for devices in enclosures.values() for device in devices if device.published
    )
    if not counts or counts.keys() - {categories.BLOCKED, categories.FAILED}:
        return ""
    parts = ", ".join(f"{count} {categories.WORDS[kind]}" for kind, count in sorted(counts.items()))
    return f"no claim can get a device, since none is usable: {parts}"


def _describe_state(fabric: fabrics.Fabric, troubles: Sequence[judging.Trouble]) -> tuple[str, str, str]:
    """Return the state of a Fabric, its begin, and its message."""
    connected = meta.find(fabric.status.conditions, fabrics.CONNECTED)
    if fabric.deleting:
        return DELETING, fabric.metadata.deletion_timestamp or "", ""
    if connected is None:
        return PENDING, "", "no controller has written its status yet"
    if not connected.is_true:
        # The API server writes the condition of a Fabric that no controller serves, with a time of 1970.
        is_unserved = connected.reason == reasons.PENDING
        since = fabric.metadata.creation_timestamp if is_unserved else connected.last_transition_time
        return connected.reason or reasons.NOT_CONNECTED, since or "", connected.message
    if not troubles:
        return CONNECTED, connected.last_transition_time or "", ""
    worst = troubles[0]
    kind = worst.condition.type
    state = f"Not{kind}" if kind in (fabrics.PUBLISHED, fabrics.WRITABLE) else fabrics.DEGRADED
    return state, worst.condition.last_transition_time or "", worst.finding.message


def _sort_enclosures(enclosures: Mapping[str, Iterable[tree.Device]]) -> tuple[tree.Enclosure, ...]:
    return tuple(
        tree.Enclosure(name=name, devices=tuple(devices))
        for name, devices in sorted(enclosures.items(), key=lambda entry: naturalorder.sort_key(entry[0]))
    )
