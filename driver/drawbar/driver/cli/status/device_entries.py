"""The devices of the tree, from the objects about each; pure."""

import datetime
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from drawbar.driver.api import attachments, bindings, claims, fabrics, meta, slices
from drawbar.driver.catalogue import reasons
from drawbar.driver.cli.doctor.plans import attachments as attachment_plan
from drawbar.driver.cli.status import claim_entries, observed, tree
from drawbar.driver.controller import names, outcomes
from drawbar.fabric import attributes

_STANDARD = "resource.kubernetes.io/"
BEGIN_SECONDS = 60.0
"""The longest usual time until a leading controller begins an attach; it needs less than a second, unless limits delay it."""
# The first member of a composite is the one with the least progress.
_ORDER = ("Failed", reasons.OTHER, "Pending", "Attached", "Releasing", "Released", "Idle", "Ready")


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A device as its slice publishes it.

    Attributes:
        node: the node of the slice; empty if it has none.
        taints: the taints of the device and of its slice.
    """

    device: slices.Device
    node: str
    taints: tuple[slices.Taint, ...]

    def text(self, name: str) -> str:
        """Return an attribute; empty without it."""
        attribute = self.device.attributes.get(name)
        return (attribute.string or "") if attribute is not None else ""


@dataclass(slots=True, kw_only=True)
class Facts:
    """The objects about one device."""

    published: Published | None = None
    attachment: attachments.DeviceAttachment | None = None
    fabric: fabrics.Fabric | None = None
    members: list[attachments.DeviceAttachment] = field(default_factory=list)
    holders: list[claims.ResourceClaim] = field(default_factory=list)

    def text(self, name: str) -> str:
        """Return a published attribute; empty without it."""
        return self.published.text(name) if self.published is not None else ""

    @property
    def device_id(self) -> str:
        """Return the fabric manager's id; empty if unknown."""
        return self.attachment.device_id if self.attachment is not None else self.text("deviceID")

    @property
    def device_class(self) -> str:
        """Return the class, first from the slice; empty if unknown."""
        if self.published is None and self.attachment is not None:
            return self.attachment.spec.identity.device_class
        return self.text("class")

    @property
    def model(self) -> str:
        """Return the model, first from the slice; empty if unknown."""
        if self.published is None and self.attachment is not None:
            return self.attachment.spec.model
        return self.text("model")

    @property
    def serial(self) -> str:
        """Return the serial number, first from the attachment; empty if unknown."""
        own = self.attachment.identity.serial if self.attachment is not None else ""
        return own or self.text("serial")

    @property
    def composite(self) -> str:
        """Return the name of the composite that the device is attached for; empty if there is none."""
        if self.attachment is None or self.members:
            return ""
        spec = self.attachment.spec
        return spec.allocated if spec.allocated != spec.device else ""

    @property
    def node(self) -> str:
        """Return the node of the attachment, of the slice, or of the claims; empty if there is none."""
        if self.attachment is not None:
            return self.attachment.spec.node_name
        if self.published is not None and self.published.node:
            return self.published.node
        allocations = (claim.status.allocation for claim in self.holders)
        return next((each.node for each in allocations if each is not None and each.node), "")

    @property
    def release_blocker(self) -> str:
        """Return the reason why the node does not release the device; empty without one."""
        return _find_blocker(self.attachment) if self.attachment is not None else ""

    @property
    def overdue_at(self) -> str:
        """Return when the present step of the attachment is overdue; empty without such a step."""
        if self.attachment is None:
            return ""
        deadline = attachment_plan.find_deadline(self.attachment, self.fabric)
        return _format(deadline) if deadline is not None else ""

    @property
    def refusal(self) -> str:
        """Return the reason why the fabric manager does not attach or detach the device; empty without one."""
        if self.attachment is None or self.attachment.status.error is not None:
            return ""
        side = attachments.DETACHED if self.attachment.deleting else attachments.ATTACHED
        condition = meta.find(self.attachment.status.conditions, side)
        return condition.reason if condition is not None and not condition.is_true else ""

    @property
    def taints(self) -> tuple[tree.Taint, ...]:
        """Return the published taints."""
        listed = self.published.taints if self.published is not None else ()
        return tuple(tree.Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in listed)


def _format(moment: datetime.datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _add_seconds(since: str, seconds: float) -> str:
    """Return a later time; empty if `since` is not a time."""
    moment = meta.moment(since)
    return _format(moment + datetime.timedelta(seconds=seconds)) if moment is not None else ""


def gather_facts(cluster: observed.Cluster) -> dict[bindings.Key, Facts]:
    """Return the objects about each device."""
    facts: dict[bindings.Key, Facts] = defaultdict(Facts)
    for key, published in _index_published(cluster.slices, cluster.driver).items():
        facts[key].published = published
    by_name = {fabric.metadata.name: fabric for fabric in cluster.fabrics}
    for attachment in cluster.attachments:
        if attachment.spec.driver == cluster.driver:
            key = bindings.Key(pool=attachment.spec.pool, device=attachment.spec.device)
            facts[key].attachment = attachment
            facts[key].fabric = by_name.get(attachment.spec.fabric)
            if attachment.spec.composite is not None:
                whole = bindings.Key(pool=attachment.spec.pool, device=attachment.spec.allocated)
                facts[whole].members.append(attachment)
                facts[whole].fabric = by_name.get(attachment.spec.fabric)
    for claim in cluster.claims:
        for key in _devices_of(claim, cluster.driver):
            facts[key].holders.append(claim)
    for fact in facts.values():
        # The order does not depend on the order of events.
        fact.holders.sort(key=lambda claim: (claim.metadata.namespace, claim.metadata.name))
    for key, fact in tuple(facts.items()):
        for attachment in fact.members:
            facts[bindings.Key(pool=key.pool, device=attachment.spec.device)].holders = fact.holders
        if fact.members:
            # Members with equal progress are sorted, so that the tree does not depend on the order of events.
            fact.attachment = min(
                fact.members,
                key=lambda member: (
                    _ORDER.index(outcomes.phase(member)),
                    not _find_blocker(member),
                    member.metadata.name,
                ),
            )
    return facts


def _find_blocker(attachment: attachments.DeviceAttachment) -> str:
    """Return the reason why the node does not release a device to be detached; empty without one."""
    return outcomes.blocker(attachment) if attachment.deleting else ""


def _index_published(listed: Iterable[slices.ResourceSlice], driver: str) -> Mapping[bindings.Key, Published]:
    """Return the devices of the newest generation of each pool, with their taints."""
    ours = [entry for entry in listed if entry.spec.driver == driver]
    newest: dict[str, int] = {}
    for entry in ours:
        pool = entry.spec.pool
        newest[pool.name] = max(newest.get(pool.name, 0), pool.generation)
    current = [entry for entry in ours if entry.spec.pool.generation == newest[entry.spec.pool.name]]
    taints: dict[bindings.Key, list[slices.Taint]] = defaultdict(list)
    for entry in current:
        for taint in entry.spec.taints:
            taints[bindings.Key(pool=entry.spec.pool.name, device=taint.device)].append(taint.taint)
    result = {}
    for entry in current:
        for device in entry.spec.devices:
            key = bindings.Key(pool=entry.spec.pool.name, device=device.name)
            both = (*device.taints, *taints.get(key, ()))
            result[key] = Published(device=device, node=entry.spec.node_name or "", taints=both)
    return result


def _devices_of(claim: claims.ResourceClaim, driver: str) -> tuple[bindings.Key, ...]:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    ours = [result for result in results if result.driver == driver]
    # A share is a device of its own, apart from its origin.
    shares = [
        bindings.Key(pool=result.pool, device=names.share(result.share_id))
        for result in ours
        if result.share_id is not None
    ]
    devices = [bindings.Key(pool=result.pool, device=result.device) for result in ours]
    return tuple(dict.fromkeys((*devices, *shares)))


def locate(key: bindings.Key, fact: Facts) -> tuple[str, str]:
    """Return the names of fabric and enclosure; both empty for a device of a node's own pool."""
    if fact.published is not None:
        return fact.published.text("fabric"), fact.published.text("enclosure")
    # A fabric's pool is `<fabric>/<enclosure>`, with a suffix if an enclosure has several pools.
    fabric, _, rest = key.pool.partition("/")
    if fact.attachment is not None:
        return fact.attachment.spec.fabric, names.enclosure_of(key.pool)
    return (fabric, names.enclosure_of(key.pool)) if rest else ("", "")


def describe_device(
    key: bindings.Key,
    fact: Facts,
    *,
    is_local: bool,
    driver: str,
    rules: tuple[tree.Taint, ...],
    are_attachments_known: bool,
) -> tree.Device:
    """Return a device.

    Args:
        key: its pool and name.
        fact: the objects about it.
        is_local: whether it belongs to a node's own pool.
        driver: the DRA driver's name.
        rules: the taints that DeviceTaintRules set on it.
        are_attachments_known: whether the DeviceAttachments could be read; else the claims' conditions tell the state.
    """
    published, attachment = fact.published, fact.attachment
    holders = fact.holders
    is_shared = published is not None and bool(published.device.allow_multiple_allocations)
    state, since, waits_for = _progress(
        attachment, holders, attaches=not is_local and not is_shared and are_attachments_known
    )
    if (is_local or not are_attachments_known) and any(_is_awaited(claim, key, driver) for claim in holders):
        state = tree.ALLOCATED
        waits_for = "the node, to make the device ready" if is_local else "its conditions"
    connection = attachment.status.connection if attachment is not None else None
    report = attachment.status.node if attachment is not None else None
    return tree.Device(
        pool=key.pool,
        name=key.device,
        id=fact.device_id,
        device_class=fact.device_class,
        model=fact.model,
        serial=fact.serial,
        state=state,
        since=since,
        waits_for=waits_for,
        overdue_at=_add_seconds(since, BEGIN_SECONDS) if waits_for == tree.BEGIN else fact.overdue_at,
        refusal=fact.refusal,
        release_blocker=fact.release_blocker,
        node=fact.node,
        host=attachment.spec.host_id if attachment is not None else "",
        port=connection.port if connection is not None else "",
        slot=connection.slot if connection is not None else "",
        health=report.health if report is not None else "",
        health_message=report.health_message if report is not None else "",
        attachment=attachment.metadata.name if attachment is not None else "",
        published=published is not None,
        composite=fact.composite,
        attributes=_own_attributes(published.device.attributes if published is not None else {}),
        taints=(*fact.taints, *rules),
        claims=tuple(claim_entries.describe_claim(claim, driver) for claim in holders),
    )


def _own_attributes(published: Mapping[str, slices.Attribute]) -> dict[str, str | int | bool]:
    """Return the attributes in adapters' domains, as plain values."""
    shown: dict[str, str | int | bool] = {}
    for name, attribute in published.items():
        value = attribute.value
        if "/" in name and not name.startswith(_STANDARD) and value is not None:
            shown[name] = value.text if isinstance(value, attributes.Version) else value
    return shown


def _is_awaited(claim: claims.ResourceClaim, key: bindings.Key, driver: str) -> bool:
    """Return whether the scheduler waits for a condition of the device before it binds the claim's pods."""
    return any(
        not meta.is_true(claim.conditions(result), condition)
        for result in claim.results(driver)
        if bindings.Key.from_result(result) == key
        for condition in result.binding_conditions
    )


def _progress(
    attachment: attachments.DeviceAttachment | None, holders: list[claims.ResourceClaim], *, attaches: bool
) -> tuple[str, str, str]:
    """Return the state of a device, its begin, and the step that it waits for."""
    if attachment is not None:
        return _describe_attaching(attachment)
    if not holders:
        return tree.FREE, "", ""
    since = min(claim_entries.allocated_at(claim) for claim in holders)
    return (tree.ALLOCATED, since, tree.BEGIN) if attaches else (tree.IN_USE, since, "")


def _describe_attaching(attachment: attachments.DeviceAttachment) -> tuple[str, str, str]:
    status = attachment.status
    phase = outcomes.phase(attachment)
    created = attachment.metadata.creation_timestamp or ""
    attached = meta.find(status.conditions, attachments.ATTACHED)
    visible = meta.find(status.conditions, attachments.VISIBLE)
    released = meta.find(status.conditions, attachments.RELEASED)
    problem = outcomes.problem(attachment)
    contradiction = outcomes.contradiction(attachment)
    not_shown = _forgetful_manager(contradiction) if contradiction is not None else ""
    why = (problem.message or problem.reason) if problem is not None else ""
    if not why and attached is not None and not attached.is_true:
        why = not_shown or f"the fabric manager: {attached.message}"
    match phase:
        case "Attached":
            if problem is not None and status.error is None:
                why = f"the node: {why}"
            return (
                phase,
                _read_transition(attached) or created,
                not_shown or why or "the node, to see the device",
            )
        case "Ready":
            return (
                (tree.HELD if attachment.held_by_hand else phase),
                _read_transition(visible) or created,
                not_shown,
            )
        case "Idle":
            return phase, attachment.spec.idle_since or created, not_shown
        case "Releasing":
            waits_for = released.message if released is not None and released.message else ""
            since = attachment.metadata.deletion_timestamp or ""
            return phase, since, waits_for or "the node, to release the device"
        case "Released":
            refused = meta.find(status.conditions, attachments.DETACHED)
            words = f"the fabric manager: {refused.message}" if refused is not None else ""
            return phase, _read_transition(released), words or "the fabric manager, to detach the device"
        case "Failed":
            moments = [
                _read_transition(condition) for condition in (attached, visible) if condition is not None
            ]
            return phase, max(moments, default=created), why
    started = status.operation.started_at if status.operation is not None else ""
    return phase, started or created, why or "the fabric manager, to attach the device"


def _forgetful_manager(contradiction: meta.Condition) -> str:
    """Return a contradiction as the cause of a wait."""
    manager, shows = "the fabric manager", contradiction.message.removeprefix("the fabric manager ")
    return f"{manager}: {shows}" if shows == contradiction.message else f"{manager}, which {shows}"


def _read_transition(condition: meta.Condition | None) -> str:
    return (condition.last_transition_time or "") if condition is not None else ""
