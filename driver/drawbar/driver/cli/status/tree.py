"""The tree of fabric, enclosure, device, node, claim and pod of a cluster; pure.

A device is in the tree if a slice publishes it, a DeviceAttachment holds it or a claim has it. So no device in use is
missing.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import msgspec

from drawbar.driver.api import (
    attachments,
    bindings,
    claims,
    fabrics,
    leftout,
    meta,
    nodepools,
    slices,
    taintrules,
)
from drawbar.driver.catalogue import reasons
from drawbar.driver.cli import objects
from drawbar.driver.cli.doctor.plans import fabrics as judging
from drawbar.driver.cli.status import observed
from drawbar.driver.controller import names, outcomes
from drawbar.fabric import attributes

FREE, ALLOCATED, IN_USE, HELD = "Free", "Allocated", "InUse", "Held"
# The states in which a device waits for nothing.
SETTLED = frozenset({FREE, IN_USE, HELD, "Ready", "Idle"})


class Node(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of the tree's entries; its JSON has each field."""


class Taint(Node, frozen=True):
    """A taint of the device.

    Attributes:
        rule: the DeviceTaintRule that sets it; empty if the driver publishes it.
    """

    key: str
    value: str
    effect: str
    rule: str = ""


class Problem(Node, frozen=True):
    """A trouble and the next step; `severity` as in `doctor.findings.Severity`."""

    severity: str
    message: str
    remedy: str


class Claim(Node, frozen=True):
    """A claim.

    Attributes:
        state: `Pending`, `Allocated` or `Reserved`.
        since: the time of its allocation, else of its creation; RFC 3339.
        node: the node of its devices, if there is one.
        pods: the names of the pods that it is reserved for.
        waits_for: the missing step before its pods can start; empty if none is missing.
    """

    namespace: str
    name: str
    state: str
    since: str
    node: str
    pods: tuple[str, ...]
    waits_for: str


class Device(Node, frozen=True):
    """A device.

    Attributes:
        pool: the pool of its slice.
        name: the name in its slice.
        id: the fabric manager's id; empty if unknown.
        device_class: see `fabric.contract.DeviceClass`.
        state: the phase of its DeviceAttachment; else `Free`, `Allocated` (the controller has not begun), `InUse` (a
            device of a node's own pool), or `Held` (ready, by hand).
        since: the known begin of that state; RFC 3339.
        waits_for: the next necessary step; empty if there is none.
        node: the present or future node.
        host: the fabric's present or future host.
        port: the host's port.
        slot: the slot behind that port.
        health: `Healthy`, `Unhealthy` or `Unknown` as the device's node reports it; empty without a report.
        health_message: the reason, in one sentence.
        attachment: the name of its DeviceAttachment.
        published: whether a slice has it.
        composite: the name of the composite that it is attached for. A composite itself has the state and attachment of
            the member with the least progress.
        attributes: the attributes of the fabric's adapter, by name.
    """

    pool: str
    name: str
    id: str = ""
    device_class: str = ""
    model: str = ""
    serial: str = ""
    state: str = FREE
    since: str = ""
    waits_for: str = ""
    node: str = ""
    host: str = ""
    port: str = ""
    slot: str = ""
    health: str = ""
    health_message: str = ""
    attachment: str = ""
    published: bool = False
    composite: str = ""
    attributes: dict[str, str | int | bool] = {}
    taints: tuple[Taint, ...] = ()
    claims: tuple[Claim, ...] = ()


class ReachGroup(Node, frozen=True):
    """Devices and their reachable hosts; see `api.fabrics.ReachGroup`."""

    id: str
    devices: int
    hosts: int
    nodes: int


class RefusedPair(Node, frozen=True):
    """A device and a host that the fabric manager refused to connect."""

    device: str
    host: str
    message: str
    refused_at: str


class Enclosure(Node, frozen=True):
    """The devices of one chassis; the name is empty for a fabric's only, unnamed chassis."""

    name: str
    devices: tuple[Device, ...]


class Fabric(Node, frozen=True):
    """A fabric.

    Attributes:
        state: `Connected` if each condition is good; else the reason why it is not connected, `NotPublished`,
            `NotWritable`, `Degraded`, `Deleting`, or `Missing` if only its devices name it.
        since: the begin of the state; RFC 3339.
        message: the message of the state, unless it is `Connected`.
        problems: a finding for each bad condition.
        not_offered: the number of the manager's devices outside of `spec.offer`.
        reach_groups: the reachability groups of a fabric that cannot connect every device with every host.
        incompatible: the pairs that are not tried now.
    """

    name: str
    state: str
    since: str
    message: str
    enclosures: tuple[Enclosure, ...]
    not_offered: int = 0
    reach_groups: tuple[ReachGroup, ...] = ()
    incompatible: tuple[RefusedPair, ...] = ()
    problems: tuple[Problem, ...] = ()


class LeftOut(Node, frozen=True):
    """A device that the node leaves to another component, and the reason."""

    name: str
    reason: str


class Local(Node, frozen=True):
    """The devices of a node's own pools, and the devices that it leaves to other components."""

    node: str
    devices: tuple[Device, ...]
    left_out: tuple[LeftOut, ...] = ()


class Tree(Node, frozen=True):
    """The requested part of the cluster.

    Attributes:
        fabrics: the fabrics, by name.
        local: the nodes' own devices, by name of the node.
        claims: the claims requested by name, and the claims without a device.
        unread: one sentence for each reading that failed.
    """

    fabrics: tuple[Fabric, ...]
    local: tuple[Local, ...]
    claims: tuple[Claim, ...]
    unread: tuple[str, ...]

    @property
    def devices(self) -> tuple[Device, ...]:
        """Return all devices."""
        of_fabrics = (
            device
            for fabric in self.fabrics
            for enclosure in fabric.enclosures
            for device in enclosure.devices
        )
        return (*of_fabrics, *(device for local in self.local for device in local.devices))


_STANDARD = "resource.kubernetes.io/"
# The first member of a composite is the one with the least progress.
_ORDER = ("Failed", reasons.OTHER, "Pending", "Attached", "Releasing", "Released", "Idle", "Ready")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    device: slices.Device
    node: str
    taints: tuple[slices.Taint, ...]

    def text(self, name: str) -> str:
        attribute = self.device.attributes.get(name)
        return (attribute.string or "") if attribute is not None else ""


@dataclass(slots=True, kw_only=True)
class _Facts:
    """The objects about one device."""

    published: _Published | None = None
    attachment: attachments.DeviceAttachment | None = None
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
    def taints(self) -> tuple[Taint, ...]:
        """Return the published taints."""
        listed = self.published.taints if self.published is not None else ()
        return tuple(Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in listed)


def build(cluster: observed.Cluster) -> Tree:
    """Return the tree of the cluster."""
    facts = _gather(cluster)
    rules = _Rules(cluster.rules, cluster.driver)
    by_fabric: dict[str, dict[str, list[Device]]] = defaultdict(lambda: defaultdict(list))
    by_node: dict[str, list[Device]] = defaultdict(list)
    for key, fact in sorted(
        facts.items(), key=lambda entry: (natural(entry[0].pool), natural(entry[0].device))
    ):
        fabric, enclosure = _place(key, fact)
        device = _device(key, fact, is_local=not fabric, driver=cluster.driver, rules=rules.of(key))
        if fabric:
            by_fabric[fabric][enclosure].append(device)
        else:
            by_node[device.node].append(device)
    left_out = _left_out(cluster.slices, cluster.driver)
    objects = {
        fabric.metadata.name: fabric for fabric in cluster.fabrics if fabric.spec.driver == cluster.driver
    }
    return Tree(
        fabrics=tuple(
            describe_fabric(name, objects.get(name), by_fabric.get(name, {}), is_listed=bool(cluster.fabrics))
            for name in sorted(objects.keys() | by_fabric.keys(), key=natural)
        ),
        local=tuple(
            Local(node=node, devices=tuple(by_node.get(node, ())), left_out=left_out.get(node, ()))
            for node in sorted(by_node.keys() | left_out.keys(), key=natural)
        ),
        claims=_claims(cluster),
        unread=cluster.unread,
    )


def _gather(cluster: observed.Cluster) -> dict[bindings.Key, _Facts]:
    """Return the objects about each device."""
    facts: dict[bindings.Key, _Facts] = defaultdict(_Facts)
    for key, published in _published(cluster.slices, cluster.driver).items():
        facts[key].published = published
    for attachment in cluster.attachments:
        if attachment.spec.driver == cluster.driver:
            key = bindings.Key(pool=attachment.spec.pool, device=attachment.spec.device)
            facts[key].attachment = attachment
            if attachment.spec.composite is not None:
                whole = bindings.Key(pool=attachment.spec.pool, device=attachment.spec.allocated)
                facts[whole].members.append(attachment)
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
                key=lambda member: (_ORDER.index(outcomes.phase(member)), member.metadata.name),
            )
    return facts


class _Rules:
    """The taints that DeviceTaintRules set on the devices of one driver.

    Rules that select by class or expression (up to Kubernetes 1.34) are not evaluated.
    """

    def __init__(self, listed: Iterable[taintrules.DeviceTaintRule], driver: str) -> None:
        self._driver = driver
        self._rules = [
            rule
            for rule in listed
            if rule.spec.device_selector is not None
            and rule.spec.device_selector.is_computable
            and rule.spec.device_selector.driver in (None, driver)
        ]

    def of(self, key: bindings.Key) -> tuple[Taint, ...]:
        """Return the taints of a device."""
        return tuple(
            Taint(
                key=rule.spec.taint.key,
                value=rule.spec.taint.value or "",
                effect=rule.spec.taint.effect,
                rule=rule.metadata.name,
            )
            for rule in self._rules
            if rule.spec.device_selector is not None
            and rule.spec.device_selector.selects(self._driver, key.pool, key.device)
        )


_DIGITS = re.compile(r"(\d+)")


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts chassis-2 before chassis-10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name))


def within(whole: Tree, target: objects.Target, chosen_claims: Set[tuple[str, str]] | None = None) -> Tree:
    """Return the target's part of the tree.

    Args:
        whole: the tree of the cluster, or of a node, claim or pod.
        target: an object; a fabric, enclosure, device or attachment is selected here.
        chosen_claims: the namespaces and names of the claims without a device to keep; None for all.

    Raises:
        objects.Missing: there is no object of that name.
    """
    if chosen_claims is not None:
        listed = tuple(claim for claim in whole.claims if (claim.namespace, claim.name) in chosen_claims)
        whole = msgspec.structs.replace(whole, claims=listed)
    if target.kind not in ("fabric", "enclosure", "device", "attachment"):
        return whole

    def is_meant(device: Device, fabric: str, enclosure: str) -> bool:
        match target.kind:
            case "fabric":
                return fabric == target.name
            case "enclosure":
                return f"{fabric}/{enclosure}".rstrip("/") == target.name
            case "device":
                return target.name in (device.name, f"{device.pool}/{device.name}", device.id)
        return bool(device.attachment) and device.attachment == target.name

    chosen: list[Fabric] = []
    for fabric in whole.fabrics:
        enclosures = []
        for enclosure in fabric.enclosures:
            devices = tuple(
                device for device in enclosure.devices if is_meant(device, fabric.name, enclosure.name)
            )
            if devices:
                enclosures.append(Enclosure(name=enclosure.name, devices=devices))
        if enclosures or (target.kind == "fabric" and fabric.name == target.name):
            chosen.append(msgspec.structs.replace(fabric, enclosures=tuple(enclosures)))
    local = tuple(
        Local(node=entry.node, devices=devices)
        for entry in whole.local
        if (devices := tuple(device for device in entry.devices if is_meant(device, "", "")))
    )
    if not chosen and not local:
        raise objects.Missing(f"there is no {target.kind} {target.name}{_others(whole, target.kind)}")
    return msgspec.structs.replace(whole, fabrics=tuple(chosen), local=local, claims=())


def _others(whole: Tree, kind: str) -> str:
    """Return the first names of a kind, as the end of a sentence."""
    match kind:
        case "fabric":
            known = [fabric.name for fabric in whole.fabrics]
        case "enclosure":
            known = [f"{fabric.name}/{part.name}" for fabric in whole.fabrics for part in fabric.enclosures]
        case "device":
            known = [device.name for device in whole.devices]
        case _:
            known = [device.attachment for device in whole.devices if device.attachment]
    return f"; there is {', '.join(known[:5])}" if known else ""


_PREEMPTION = re.compile(r"\.? (?:still not schedulable|preemption:)")
"""The part of the scheduler's message about pods that it could evict; none of them frees a device."""
UNUSED = "no pod uses the claim yet; the scheduler allocates it for its first pod"
UNTRIED = "the scheduler has not tried to place its pod yet"


def _pending(cluster: observed.Cluster) -> tuple[Claim, ...]:
    """Return the claims without a device, each with the reason; the claims of unschedulable pods come first."""
    pods: dict[tuple[str, str], list[observed.UnscheduledPod]] = defaultdict(list)
    for pod in cluster.pods:
        for name in pod.claim_names:
            pods[pod.metadata.namespace, name].append(pod)
    result = []
    for claim in cluster.claims:
        if claim.status.allocation is not None or claim.metadata.deletion_timestamp:
            continue
        users = pods.get((claim.metadata.namespace, claim.metadata.name), [])
        shown = _claim(claim, cluster.driver)
        if "pods" not in cluster.unlisted:
            said = next((pod.reason for pod in users if pod.reason), UNTRIED if users else UNUSED)
            reason = _PREEMPTION.split(said)[0]
            shown = msgspec.structs.replace(
                shown, pods=tuple(pod.metadata.name for pod in users), waits_for=reason
            )
        result.append(shown)
    return tuple(sorted(result, key=lambda claim: (claim.waits_for in (UNUSED, UNTRIED), claim.since)))


def _claims(cluster: observed.Cluster) -> tuple[Claim, ...]:
    """Return the requested claims, and the other claims without a device."""
    pending = {(claim.namespace, claim.name): claim for claim in _pending(cluster)}
    wanted = [_claim(claim, cluster.driver) for claim in cluster.wanted]
    named = {(claim.namespace, claim.name) for claim in wanted}
    return (
        *(pending.get((claim.namespace, claim.name), claim) for claim in wanted),
        *(claim for key, claim in pending.items() if key not in named),
    )


def _published(listed: Iterable[slices.ResourceSlice], driver: str) -> Mapping[bindings.Key, _Published]:
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
            result[key] = _Published(device=device, node=entry.spec.node_name or "", taints=both)
    return result


def _left_out(listed: Iterable[slices.ResourceSlice], driver: str) -> Mapping[str, tuple[LeftOut, ...]]:
    """Return, by node, the devices that its daemon leaves to other components."""
    notes = {
        entry.spec.node_name: leftout.decode(entry.metadata.annotations.get(leftout.ANNOTATION, ""))
        for entry in sorted(listed, key=lambda entry: entry.spec.pool.generation)
        if entry.spec.driver == driver
        and entry.spec.node_name
        and entry.spec.pool.name == nodepools.pool(entry.spec.node_name)
    }
    return {
        node: tuple(LeftOut(name=each.device, reason=each.reason) for each in devices)
        for node, devices in notes.items()
        if devices
    }


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


def _place(key: bindings.Key, fact: _Facts) -> tuple[str, str]:
    """Return the names of fabric and enclosure; both empty for a device of a node's own pool."""
    if fact.published is not None:
        return fact.published.text("fabric"), fact.published.text("enclosure")
    # A fabric's pool is `<fabric>/<enclosure>`, with a suffix if an enclosure has several pools.
    fabric, _, rest = key.pool.partition("/")
    if fact.attachment is not None:
        return fact.attachment.spec.fabric, names.enclosure_of(key.pool)
    return (fabric, names.enclosure_of(key.pool)) if rest else ("", "")


def _device(
    key: bindings.Key, fact: _Facts, *, is_local: bool, driver: str, rules: tuple[Taint, ...]
) -> Device:
    published, attachment = fact.published, fact.attachment
    holders = fact.holders
    is_shared = published is not None and bool(published.device.allow_multiple_allocations)
    state, since, waits_for = _progress(attachment, holders, attaches=not is_local and not is_shared)
    if is_local and any(_is_awaited(claim, key, driver) for claim in holders):
        state, waits_for = ALLOCATED, "the node, to make the device ready"
    connection = attachment.status.connection if attachment is not None else None
    report = attachment.status.node if attachment is not None else None
    return Device(
        pool=key.pool,
        name=key.device,
        id=fact.device_id,
        device_class=fact.device_class,
        model=fact.model,
        serial=fact.serial,
        state=state,
        since=since,
        waits_for=waits_for,
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
        claims=tuple(_claim(claim, driver) for claim in holders),
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
        return _attaching(attachment)
    if not holders:
        return FREE, "", ""
    since = min(_allocated(claim) for claim in holders)
    return (ALLOCATED, since, "the controller, to begin the attach") if attaches else (IN_USE, since, "")


def _attaching(attachment: attachments.DeviceAttachment) -> tuple[str, str, str]:
    status = attachment.status
    phase = outcomes.phase(attachment)
    created = attachment.metadata.creation_timestamp or ""
    attached = meta.find(status.conditions, attachments.ATTACHED)
    visible = meta.find(status.conditions, attachments.VISIBLE)
    released = meta.find(status.conditions, attachments.RELEASED)
    problem = outcomes.problem(attachment)
    contradiction = outcomes.contradiction(attachment)
    not_shown = _forgetful_manager(contradiction) if contradiction is not None else ""
    why = problem.message if problem is not None else ""
    if not why and attached is not None and not attached.is_true:
        why = not_shown or f"the fabric manager: {attached.message}"
    match phase:
        case "Attached":
            if problem is not None and status.error is None:
                why = f"the node: {why}"
            return phase, _since(attached) or created, not_shown or why or "the node, to see the device"
        case "Ready":
            return (HELD if attachment.held_by_hand else phase), _since(visible) or created, not_shown
        case "Idle":
            return phase, attachment.spec.idle_since or created, not_shown
        case "Releasing":
            waits_for = released.message if released is not None and released.message else ""
            since = attachment.metadata.deletion_timestamp or ""
            return phase, since, waits_for or "the node, to release the device"
        case "Released":
            refused = meta.find(status.conditions, attachments.DETACHED)
            words = f"the fabric manager: {refused.message}" if refused is not None else ""
            return phase, _since(released), words or "the fabric manager, to detach the device"
        case "Failed":
            moments = [_since(condition) for condition in (attached, visible) if condition is not None]
            return phase, max(moments, default=created), why
    started = status.operation.started_at if status.operation is not None else ""
    return phase, started or created, why or "the fabric manager, to attach the device"


def _forgetful_manager(contradiction: meta.Condition) -> str:
    """Return a contradiction as the cause of a wait."""
    manager, shows = "the fabric manager", contradiction.message.removeprefix("the fabric manager ")
    return f"{manager}: {shows}" if shows == contradiction.message else f"{manager}, which {shows}"


def _since(condition: meta.Condition | None) -> str:
    return (condition.last_transition_time or "") if condition is not None else ""


def _allocated(claim: claims.ResourceClaim) -> str:
    allocation = claim.status.allocation
    stamp = allocation.allocation_timestamp if allocation is not None else None
    return stamp or claim.metadata.creation_timestamp or ""


def _claim(claim: claims.ResourceClaim, driver: str) -> Claim:
    status = claim.status
    allocation = status.allocation
    state = "Pending" if allocation is None else "Reserved" if status.reserved_for else "Allocated"
    return Claim(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        state=state,
        since=_allocated(claim),
        node=(allocation.node or "") if allocation is not None else "",
        pods=tuple(consumer.name for consumer in status.reserved_for if consumer.resource == "pods"),
        waits_for="the scheduler, to allocate it" if allocation is None else _missing(claim, driver),
    )


def _missing(claim: claims.ResourceClaim, driver: str) -> str:
    """Return the failed or missing condition of the claim's devices; empty if none is missing."""
    for result in claim.results(driver):
        conditions = claim.conditions(result)
        for condition_type in result.binding_failure_conditions:
            failed = meta.find(conditions, condition_type)
            if failed is not None and failed.is_true:
                return f"{condition_type} of {result.device}: {failed.message}"
        for condition_type in result.binding_conditions:
            if not meta.is_true(conditions, condition_type):
                return f"{condition_type} of {result.device}"
    return ""


def describe_fabric(
    name: str,
    fabric: fabrics.Fabric | None,
    enclosures: Mapping[str, Iterable[Device]],
    *,
    is_listed: bool,
) -> Fabric:
    """Return a fabric.

    Args:
        name: the Fabric's name.
        fabric: the Fabric object; None if there is none.
        enclosures: the devices of each enclosure.
        is_listed: whether Fabrics could be read; only then is a fabric without an object missing.
    """
    if fabric is None:
        return Fabric(
            name=name,
            state="Missing" if is_listed else "Unknown",
            since="",
            message="",
            enclosures=_sort_enclosures(enclosures),
        )
    troubles = tuple(judging.judge_all(fabric))
    state, since, message = _describe_state(fabric, troubles)
    status = fabric.status
    return Fabric(
        name=name,
        state=state,
        since=since,
        message=message,
        enclosures=_sort_enclosures(enclosures),
        problems=tuple(
            Problem(
                severity=trouble.finding.severity.value,
                message=trouble.finding.message,
                remedy=trouble.finding.remedy,
            )
            for trouble in troubles
        ),
        not_offered=status.not_offered,
        reach_groups=tuple(
            ReachGroup(id=group.id, devices=group.devices, hosts=group.hosts, nodes=group.nodes)
            for group in status.reach_groups
        ),
        incompatible=tuple(
            RefusedPair(device=pair.device, host=pair.host, message=pair.message, refused_at=pair.refused_at)
            for pair in status.incompatible
        ),
    )


def _describe_state(fabric: fabrics.Fabric, troubles: Sequence[judging.Trouble]) -> tuple[str, str, str]:
    """Return the state of a Fabric, its begin, and its message."""
    connected = meta.find(fabric.status.conditions, fabrics.CONNECTED)
    if fabric.deleting:
        return "Deleting", fabric.metadata.deletion_timestamp or "", ""
    if connected is None:
        return "Pending", "", "no controller has written its status yet"
    if not connected.is_true:
        return connected.reason or "NotConnected", _since(connected), connected.message
    if not troubles:
        return "Connected", _since(connected), ""
    worst = troubles[0]
    kind = worst.condition.type
    state = f"Not{kind}" if kind in (fabrics.PUBLISHED, fabrics.WRITABLE) else fabrics.DEGRADED
    return state, _since(worst.condition), worst.finding.message


def _sort_enclosures(enclosures: Mapping[str, Iterable[Device]]) -> tuple[Enclosure, ...]:
    return tuple(
        Enclosure(name=name, devices=tuple(devices))
        for name, devices in sorted(enclosures.items(), key=lambda entry: natural(entry[0]))
    )
