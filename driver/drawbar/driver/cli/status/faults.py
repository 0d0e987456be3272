"""The findings on a device's taints and on a waiting claim, the same in status, explain and doctor; pure."""

import datetime
from collections.abc import Iterator

from drawbar.driver.api import meta
from drawbar.driver.catalogue import attachment_conditions, links, reasons, taints
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity
from drawbar.driver.cli.status import tree

LEADER = "drawbar doctor --brief shows whether a controller leads"
"""The next step for a device whose attach has not begun."""


def judge_taint(device: tree.Device, taint: tree.Taint) -> Finding:
    """Return the finding on a taint: its users and its end."""
    users = [
        f"claim {claim.namespace}/{claim.name}" + (f" (pod {', '.join(claim.pods)})" if claim.pods else "")
        for claim in device.claims
    ]
    by = f", set by DeviceTaintRule {taint.rule}" if taint.rule else ""
    used = f", used by {', '.join(users)}" if users else ""
    refused = ""
    if _find_row(device, taint) is taints.RELEASE_BLOCKED:
        refused = f": node {device.node} does not release it ({device.release_blocker}): {device.waits_for}"
    return Finding(
        check=Check.DEVICES_TAINTED,
        severity=Severity.NOTE if taint.effect == taints.NO_EFFECT else Severity.WARNING,
        subject=f"device {device.pool}/{device.name}",
        message=f"has the taint {taint.text}{by}{used}{refused}",
        remedy=_advise(device, taint),
    )


def list_problems(device: tree.Device, now: datetime.datetime) -> Iterator[tree.Problem]:
    """Yield the problems of a device: a failure, a step that takes too long, a refusal or bad health, then its taints for faults."""
    remedy = f"drawbar explain device/{device.pool}/{device.name}"
    if device.state == "Failed":
        message = f"failed: {device.waits_for or 'no reason is reported'}"
        yield tree.Problem(severity=Severity.ERROR.value, message=message, remedy=remedy)
    elif device.health == "Unhealthy":
        message = f"is unhealthy: {device.health_message or 'no reason is reported'}"
        yield tree.Problem(severity=Severity.ERROR.value, message=message, remedy=remedy)
    elif _is_overdue(device, now) and not device.release_blocker:
        is_begun = device.state != tree.ALLOCATED
        yield tree.Problem(
            severity=(Severity.ERROR if is_begun else Severity.WARNING).value,
            message=f"is {device.state} for too long: it waits for {device.waits_for}",
            remedy=remedy if is_begun else LEADER,
        )
    elif device.refusal:
        step = "detached" if device.state in ("Releasing", "Released") else "attached"
        message = f"is not {step} yet ({device.refusal}): it waits for {device.waits_for}"
        advice = attachment_conditions.find_attached(device.refusal).advise(
            deviceattachment=device.attachment
        )
        yield tree.Problem(severity=Severity.WARNING.value, message=message, remedy=advice)
    for found in list_faults(device):
        yield tree.Problem(severity=found.severity.value, message=found.message, remedy=found.remedy)


def _is_overdue(device: tree.Device, now: datetime.datetime) -> bool:
    deadline = meta.moment(device.overdue_at)
    return deadline is not None and now > deadline


def list_faults(device: tree.Device) -> Iterator[Finding]:
    """Yield the findings on taints for faults of a device, unless its state or health already shows the fault."""
    for taint in device.taints:
        if _is_fault(_find_row(device, taint), taint) and not _is_shown(device, taint):
            yield judge_taint(device, taint)


def _find_row(device: tree.Device, taint: tree.Taint) -> taints.Taint | None:
    """Return the catalogue's row of a taint, or None if it has none."""
    row = taints.find(_get_name(taint), taint.value)
    is_blocked = device.release_blocker not in ("", reasons.CLEANING)
    return taints.RELEASE_BLOCKED if row is taints.RELEASING and is_blocked else row


def _get_name(taint: tree.Taint) -> str:
    """Return the key without its domain."""
    return taint.key.partition("/")[2]


def _is_fault(row: taints.Taint | None, taint: tree.Taint) -> bool:
    """Return whether a taint shows a fault; a finding of a node has no row."""
    return not taint.rule and (row is None or row.is_fault)


def _is_shown(device: tree.Device, taint: tree.Taint) -> bool:
    """Return whether the device's state or health already shows the fault behind a taint."""
    name = _get_name(taint)
    if name == taints.ATTACH_FAILED.key:
        return device.state == "Failed"
    return device.health == "Unhealthy" and (name == taints.NODE_UNHEALTHY.key or name not in taints.KEYS)


def judge_claim(claim: tree.Claim, age: str) -> Finding:
    """Return the finding on a claim that waits for a device; `age` is its age, empty if unknown."""
    pods = f" (pod {', '.join(claim.pods)})" if claim.pods else ""
    since = f" {age}" if age else ""
    return Finding(
        check=Check.CLAIMS_ALLOCATED,
        severity=Severity(claim.severity),
        subject=f"claim {claim.namespace}/{claim.name}{pods}",
        message=f"waits{since}: {claim.waits_for}",
        remedy=f"drawbar explain claim/{claim.name} -n {claim.namespace}",
    )


def _advise(device: tree.Device, taint: tree.Taint) -> str:
    """Return the next step: the taint's end, and another device for a claim on a faulty one."""
    if taint.rule:
        return f"when the work is done: drawbar taint remove {taint.rule}; drawbar taint show {taint.rule} has reason and end"
    row = _find_row(device, taint)
    if row is None:
        advice = f"its driver publishes it; {links.url('health.md')} explains taints"
    elif row is taints.ATTACH_FAILED and taint.value:
        events = f"kubectl get events -A --field-selector reason={taint.value} shows the message"
        advice = f"{events}; {attachment_conditions.find_failure(taint.value).advise()}; {row.advise()}"
    elif row is taints.RELEASE_BLOCKED:
        advice = attachment_conditions.RELEASED.find(device.release_blocker).advise(
            deviceattachment=device.attachment
        )
    else:
        advice = row.advise(device=f"{device.pool}/{device.name}", deviceattachment=device.attachment)
    if not _is_fault(row, taint) or taint.effect == taints.NO_EFFECT or "/" not in device.pool:
        return advice
    moves = [f"drawbar move {claim.name} -n {claim.namespace}" for claim in device.claims]
    return "; ".join([*(f"{move} restarts its pods on another device" for move in moves), advice])
