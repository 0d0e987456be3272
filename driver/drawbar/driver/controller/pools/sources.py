"""What the plan of a fabric's pools rests on, gathered from where it is known."""

import datetime
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from drawbar.driver.api import attachments, fabrics, meta, slices
from drawbar.driver.controller import names, policies
from drawbar.driver.controller.attachments import plan as attachment_plan
from drawbar.driver.controller.fabrics import losses
from drawbar.driver.controller.pools import explanations, plan
from drawbar.driver.slices import encoding
from drawbar.fabric import contract


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What of an attachment shows in its pool.

    Attributes:
        ours: a claim of this cluster has the device, or it is kept for the next one.
        held: an operator attached it by hand.
        failing: the reason that the device is to blame for, or empty.
        lost: its node had it and lost it.
        unhealthy: its node says that it is.
        findings: what its node found wrong with it.
        stuck: its node does not let go of it.
        evidence: the words behind all that.
    """

    ours: bool
    failing: str
    held: bool = False
    lost: bool = False
    unhealthy: bool = False
    findings: tuple[attachments.NodeFinding, ...] = ()
    stuck: bool = False
    evidence: explanations.Evidence = explanations.NOTHING

    @property
    def shown(self) -> Hashable:
        """Changes when a taint comes, goes or says something else; the same all through an attach that goes well."""
        causes = (self.failing, self.held, self.lost, self.unhealthy, self.findings, self.stuck)
        return (*causes, self.evidence) if any(causes) else ()


def verdict(attachment: attachments.DeviceAttachment | None) -> Verdict:
    """What the pool shows of a device because of its attachment, if it has one."""
    if attachment is None:
        return Verdict(ours=False, failing="")
    failure = attachment_plan.problem(attachment)
    blamed = failure is not None and failure.reason not in attachment_plan.NOT_THE_DEVICE
    reason = failure.reason if failure is not None and blamed else ""
    ours = not attachment.held_by_hand
    released = meta.find(attachment.status.conditions, attachments.RELEASED)
    visible = meta.find(attachment.status.conditions, attachments.VISIBLE)
    return Verdict(
        ours=ours,
        failing=reason,
        held=not ours,
        lost=ours and reason == losses.NODE_SAYS_LOST and attachment.holds(attachments.ATTACHED),
        unhealthy=attachment.status.node is not None and attachment.status.node.unhealthy,
        findings=attachment.status.node.findings if attachment.status.node is not None else (),
        stuck=attachment.deleting and released is not None and released.status == "False",
        evidence=explanations.Evidence(
            node=attachment.spec.node_name,
            message=failure.message if failure is not None and blamed else "",
            by_node=visible is not None and visible.status == "False" and visible.reason == reason,
            blocking=released.reason if released is not None else "",
            symptoms=attachment.status.node.health_message if attachment.status.node is not None else "",
        ),
    )


def given(attached: Iterable[attachments.DeviceAttachment]) -> dict[str, str]:
    """By device name the pool that its claim names; what an operator attached by hand was given out of none."""
    return {one.spec.device: one.spec.pool for one in attached if not one.held_by_hand}


def reserved(wanted: fabrics.Reservation, found: Iterable[contract.Device]) -> frozenset[str]:
    """Names of the devices that are reserved for immediate allocation."""
    return frozenset(names.label(device.id) for device in found if wanted.holds(device.id, device.model))


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the fabric manager and its history say.

    Attributes:
        fabric: its object.
        devices: as last listed; None while it never told.
        silent_seconds: how long it has not been reached.
        probations: by device name how long its failure counts, where it is not the usual time.
        failures: by device name how often in a row it failed.
        claimed: by device name the pool that the allocation of a claim names.
        missing: names of the devices that count as they were although they are not listed.
    """

    fabric: fabrics.Fabric
    devices: tuple[contract.Device, ...] | None
    silent_seconds: float
    probations: dict[str, datetime.timedelta]
    failures: Mapping[str, int] = field(default_factory=dict)
    claimed: Mapping[str, str] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()


def observed(
    driver: str,
    told: Told,
    attached: Iterable[attachments.DeviceAttachment],
    published: tuple[slices.ResourceSlice, ...],
    kept: encoding.Kept,
    *,
    overdue: Collection[str] = (),
) -> plan.Observed:
    """Everything together.

    Args:
        driver: the DRA driver's name.
        told: what the fabric says.
        attached: the attachments of this fabric.
        published: its slices as they are.
        kept: what the API server keeps of slices.
        overdue: names of devices whose release takes too long, whoever is to blame.
    """
    attached = tuple(attached)
    verdicts = {one.spec.device: verdict(one) for one in attached}
    fabric, policy = told.fabric, told.fabric.spec.policy
    return plan.Observed(
        driver=driver,
        fabric=fabric.metadata.name,
        # Nothing new is given out of a fabric that goes; what is attached stays until its claim lets go.
        devices=() if fabric.deleting else told.devices,
        attached_by_us=frozenset(name for name, one in verdicts.items() if one.ours),
        claimed=told.claimed,
        given=given(attached),
        held=frozenset(name for name, one in verdicts.items() if one.held),
        failing={name: one.failing for name, one in verdicts.items() if one.failing},
        lost=frozenset(name for name, one in verdicts.items() if one.lost),
        unhealthy=frozenset(name for name, one in verdicts.items() if one.unhealthy),
        findings={name: one.findings for name, one in verdicts.items() if one.findings},
        stuck=frozenset(overdue).union(name for name, one in verdicts.items() if one.stuck),
        missing=told.missing,
        maintenance=frozenset(fabric.spec.maintenance),
        reserved=reserved(policy.immediate, told.devices or ()),
        restricted=policies.restricted(policy.models),
        unreachable=0 < told.silent_seconds >= policy.unreachable_grace_seconds,
        published=published,
        keeps_conditions=kept.conditions,
        going=fabric.deleting,
        probation=datetime.timedelta(seconds=policy.probation_seconds),
        probations=told.probations,
        form=kept.form,
        details=kept.details,
        informs=kept.informs,
        evictions_per_second=policy.evictions_per_second,
        evidence={
            name: replace(one.evidence, failures=told.failures.get(name, 0)) for name, one in verdicts.items()
        },
    )
