"""Other drivers and device plugins that offer the same devices, and the devices left to them; pure."""

from collections import defaultdict
from collections.abc import Iterator

from drawbar.driver import wording
from drawbar.driver.api import attachments, deviceplugins, leftout, meta
from drawbar.driver.catalogue import links
from drawbar.driver.cli.doctor import findings, observed
from drawbar.driver.cli.doctor.findings import Check, Finding, Unread
from drawbar.fabric.classes import DeviceClass

NAMED_MAX = 50
"""The most attachments and nodes with a finding of their own."""
_PAGE = links.url("beside-other-drivers.md")
_REMEDY = f"keep the other component from fabric devices: {_PAGE} has the settings of each"
_LEFT = f"if Drawbar should offer them, keep the other component from them, or name them in localPool.despiteOthers: {_PAGE}"


def plan(cluster: observed.Cluster) -> Iterator[Finding]:
    """Yield the findings on devices with two owners, and on devices left to other components."""
    if isinstance(cluster.attachments, Unread):
        # This is reported with the other findings on attachments.
        return
    driver = cluster.where.driver
    ours = [each for each in cluster.attachments if each.spec.driver == driver]
    doubled = [each for each in ours if _find_double_offer(each) is not None]
    for attachment in doubled[:NAMED_MAX]:
        condition = _find_double_offer(attachment)
        assert condition is not None
        subject = f"attachment {attachment.metadata.name}"
        yield findings.make_error(Check.ATTACHMENTS_EXCLUSIVE, subject, condition.message, _REMEDY)
    if len(doubled) > NAMED_MAX:
        subject, message = (
            "attachments",
            f"{len(doubled) - NAMED_MAX} more devices are offered by another driver, too",
        )
        yield findings.make_error(Check.ATTACHMENTS_EXCLUSIVE, subject, message, _REMEDY)
    yield from _warn_of_plugins(cluster, ours)
    yield from _note_left_out(cluster)


def describe_left_out(subject: str, check: Check, devices: tuple[leftout.LeftOut, ...]) -> Finding:
    """Return the finding on the devices that a node leaves to other components; there is at least one."""
    named = wording.join_some([left.device for left in devices], 1)
    message = f"{named} not offered: {devices[0].reason}"
    return findings.make_note(check, subject, message, _LEFT)


def _find_double_offer(attachment: attachments.DeviceAttachment) -> meta.Condition | None:
    condition = meta.find(attachment.status.conditions, attachments.EXCLUSIVE)
    return None if condition is None or condition.is_true or attachment.deleting else condition


def _warn_of_plugins(
    cluster: observed.Cluster, ours: list[attachments.DeviceAttachment]
) -> Iterator[Finding]:
    """Yield a warning for each device plugin whose resource covers cards of an attached device's kind."""
    resources = {node.metadata.name: node.resources for node in observed.get_objects(cluster.nodes)}
    counted: dict[tuple[str, str], int] = defaultdict(int)
    for attachment in ours:
        node, kind = attachment.spec.node_name, _kind(attachment)
        for resource in resources.get(node, ()) if kind is not None else ():
            if kind is not None and any(
                cards.has(*kind) for cards in deviceplugins.find_cards(resource) or ()
            ):
                counted[node, resource] += 1
    for (node, resource), number in sorted(counted.items())[:NAMED_MAX]:
        message = (
            f"a device plugin has registered {resource}, and {number} attached devices are of that kind: it may hand them out, too, "
            "once it starts again"
        )
        yield findings.make_warning(
            Check.ATTACHMENTS_EXCLUSIVE,
            f"node {node}",
            message,
            f"keep the plugin off the node: {_PAGE} has the settings",
        )


def _kind(attachment: attachments.DeviceAttachment) -> tuple[int, DeviceClass] | None:
    identity = attachment.identity
    try:
        return int(identity.pci_id.partition(":")[0], 16), DeviceClass(identity.device_class)
    except ValueError:
        return None


def _note_left_out(cluster: observed.Cluster) -> Iterator[Finding]:
    notes = {
        published.spec.node_name: leftout.decode(published.metadata.annotations.get(leftout.ANNOTATION, ""))
        for published in observed.get_objects(cluster.published)
        if published.spec.node_name and leftout.ANNOTATION in published.metadata.annotations
    }
    named = [(node, devices) for node, devices in sorted(notes.items()) if devices]
    for node, devices in named[:NAMED_MAX]:
        yield describe_left_out(f"node {node}", Check.NODES_LEFT_OUT, devices)
    if len(named) > NAMED_MAX:
        subject = findings.join_names([node for node, _ in named[NAMED_MAX:]])
        yield findings.make_note(
            Check.NODES_LEFT_OUT, subject, "leave devices to other components as well", _LEFT
        )
